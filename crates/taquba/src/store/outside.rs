//! What shows of a store from outside, without taking it over or writing: whether it is there, whether its owner works,
//! beats, or has closed it.
//!
//! Every commit of an owner is one more object of the log, and every takeover too, so that the absence of the next
//! one says in a single HEAD that nothing has happened.

use std::time::Duration;

use slatedb::admin::Admin;
use slatedb::{ErrorKind, ValueDeletable, WalReader};

use super::db::Location;
use super::reader::{Following, Reader};
use super::{beat, keys};
use crate::error::{Error, Result};

/// The object of the log that a clean close writes is smaller than this; larger ones are not read to look for it.
const SIGN_OFF_MAX: u64 = 4_096;
/// The reader that reads an owner's rows is closed long before it would poll.
const NEVER: Duration = Duration::from_secs(24 * 3_600);

/// How far a store has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The number of the last takeover.
    pub(crate) epoch: u64,
    /// The last object of its log.
    last: u64,
}

/// What a store's rows say of its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// There are no rows yet: a first open is under way, or was cut short.
    Unknown,
    /// It closed the store cleanly; with the number of its takeover, if it beat.
    Closed { by: Option<u64> },
    /// It has the store, or died with it. Zero: it does not beat.
    Has { interval: Duration },
}

impl Owner {
    /// Whether the store is free: who closed it took it over last. Else somebody is about to open it.
    pub(crate) fn is_gone(&self, seen: &Seen) -> bool {
        matches!(self, Self::Closed { by } if by.is_none_or(|epoch| epoch == seen.epoch))
    }
}

/// See the module.
pub(crate) struct Outside {
    location: Location,
    log: WalReader,
}

impl Outside {
    pub(crate) fn new(location: &Location) -> Self {
        let log = location.wal.as_ref().unwrap_or(&location.main);
        let log = WalReader::new(location.path.clone(), log.clone());
        Self { location: location.clone(), log }
    }

    /// How far the store has come; `None` when there is none.
    pub(crate) async fn look(&self) -> Result<Option<Seen>> {
        self.look_from(0).await
    }

    /// How far it has come since; `None` when nothing has happened.
    pub(crate) async fn news(&self, seen: &Seen) -> Result<Option<Seen>> {
        let next = seen.last + 1;
        if self.is_in_log(next).await? { self.look_from(next).await } else { Ok(None) }
    }

    /// The log is known to reach `last`. The number of the takeover is read before the log is: a takeover in between
    /// adds to the log, so what is seen is never the new number without the object that goes with it.
    async fn look_from(&self, last: u64) -> Result<Option<Seen>> {
        let location = &self.location;
        let admin = Admin::builder(location.path.clone(), location.main.clone()).build();
        let Some(manifest) = admin.read_manifest(None).await? else { return Ok(None) };
        let last = self.end_of_log(last.max(manifest.replay_after_wal_id())).await?;
        Ok(Some(Seen { epoch: manifest.writer_epoch(), last }))
    }

    /// Whether the last thing that happened is that the owner closed the store cleanly.
    pub(crate) async fn is_signed_off(&self, seen: &Seen) -> Result<bool> {
        let object = self.log.get(seen.last);
        if object.metadata().await?.metadata.size > SIGN_OFF_MAX {
            return Ok(false);
        }
        let mut rows = object.iterator().await?;
        let (mut sign_off, mut by) = (None, None);
        while let Some(row) = rows.next().await? {
            match row.value {
                ValueDeletable::Tombstone if row.key == keys::UNCLEAN => sign_off = Some(row.seq),
                ValueDeletable::Value(value) if row.key == keys::HEARTBEAT => {
                    let beat = beat::decode(value).ok();
                    by = beat.filter(|beat| beat.closed).map(|beat| (row.seq, beat.writer_epoch));
                }
                _ => {}
            }
        }
        // One of a commit without a beat has none to compare.
        let by = by.filter(|(seq, _)| Some(*seq) == sign_off).map(|(_, epoch)| epoch);
        Ok(sign_off.is_some() && Owner::Closed { by }.is_gone(seen))
    }

    /// Reads what the store says of its owner, and refuses a store that this version cannot open.
    pub(crate) async fn owner(&self) -> Result<Owner> {
        let how = Following {
            guarded: false,
            poll: NEVER,
            checkpoint_lifetime: NEVER * 2,
            skip_log: false,
        };
        let reader = match Reader::open(&self.location, how).await {
            Ok(reader) => reader,
            Err(Error::StoreNotInitialized { .. }) => return Ok(Owner::Unknown),
            Err(error) => return Err(error),
        };
        let owner = reader.steady(|at| async move {
            let beat = beat::last(&at).await?;
            Ok(match at.get(keys::UNCLEAN).await? {
                None => {
                    let by = beat.filter(|beat| beat.closed).map(|beat| beat.writer_epoch);
                    Owner::Closed { by }
                }
                Some(_) => Owner::Has { interval: beat.map_or(Duration::ZERO, |b| b.interval) },
            })
        });
        let owner = owner.await;
        reader.close().await?;
        owner
    }

    /// The last object of the log at or after `last`. They are numbered without gaps, so it is found by doubling steps
    /// and then halving them.
    async fn end_of_log(&self, mut last: u64) -> Result<u64> {
        let mut step = 1;
        while self.is_in_log(last + step).await? {
            last += step;
            step *= 2;
        }
        while step > 1 {
            step /= 2;
            if self.is_in_log(last + step).await? {
                last += step;
            }
        }
        Ok(last)
    }

    async fn is_in_log(&self, id: u64) -> Result<bool> {
        match self.log.get(id).metadata().await {
            Ok(_) => Ok(true),
            // Nothing else about an object's existence is wrong with the data.
            Err(error) if error.kind() == ErrorKind::Data => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
