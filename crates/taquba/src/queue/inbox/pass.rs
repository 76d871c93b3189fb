//! One pass over the inbox: list, read, send to the engine in order, delete what is done.
//!
//! An object is deleted only when the engine has said what became of its entry, and it says so only once that is durable.
//! Everything before can be done again: the engine knows an entry that it has seen.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use futures_util::TryStreamExt;
use futures_util::stream::{self, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::group::Group;
use super::looked_at_all;
use super::sender::{Fetched, check, fetch};
use crate::engine::inbox::{Arrival, Wish, refused};
use crate::engine::request::{Op, Prepared};
use crate::engine::{Lane, Shared};
use crate::env::{self, Instant};
use crate::error::{Error, Result};
use crate::inbox::names::Folder;
use crate::inbox::{EnqueueEntry, InboxEntry, InboxRecord, PendingEntry, Rejection, SignalEntry};
use crate::limits::{self, INBOX_UNREADABLE_AFTER, MAX_INBOX_ENTRY_SIZE, clip_error};
use crate::name::QueueName;
use crate::object_store::path::Path;
use crate::object_store::{self, ObjectStore, ObjectStoreExt};

/// Entries that are dealt with after one listing (about 30 MB of names); more take another.
const LISTED: usize = 100_000;
/// Entries that are read at once, and their bytes in units of 1 KiB: one of the largest, or many small ones.
const READS: usize = 16;
const READ_UNITS: usize = MAX_INBOX_ENTRY_SIZE / UNIT;
const UNIT: usize = 1_024;
/// Commands whose answers are awaited at once: they share the PUTs that make them durable.
const SENT: usize = 4_096;
/// Objects that are deleted together.
const DELETES: usize = 1_000;

/// What a pass did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Passed {
    /// Entries that were applied or rejected, now or before.
    pub(super) done: usize,
    /// Entries that could not be read and are tried again.
    pub(super) left: usize,
}

/// See the module.
pub(super) struct Applier {
    shared: Arc<Shared>,
    store: Arc<dyn ObjectStore>,
    folder: Folder,
    queues: BTreeSet<String>,
    keep_ms: u64,
    /// The touch object as it was last seen.
    touch: Option<(Option<String>, i64, u64)>,
    /// Since when objects could not be read.
    unread: HashMap<Path, Instant>,
}

/// What was found in an entry's object.
enum Got {
    Wish(Wish),
    Gone,
    Unreadable(object_store::Error),
    /// The pass cannot go on.
    Failed(Error),
}

/// A command that was sent.
struct Sent {
    answer: oneshot::Receiver<Result<Vec<InboxRecord>>>,
    objects: Vec<Path>,
}

impl Applier {
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Arc<dyn ObjectStore>,
        folder: Folder,
        queues: BTreeSet<String>,
        keep_ms: u64,
    ) -> Self {
        Self { shared, store, folder, queues, keep_ms, touch: None, unread: HashMap::new() }
    }

    /// Whether a sender has touched the inbox since this was asked last. One HEAD.
    pub(super) async fn is_touched(&mut self) -> bool {
        let seen = match self.store.head(&self.folder.touch()).await {
            Ok(meta) => Some((meta.e_tag, meta.last_modified.timestamp_micros(), meta.size)),
            Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => {
                tracing::debug!(%error, "the inbox could not be asked for a touch");
                return false;
            }
        };
        let news = seen != self.touch;
        self.touch = seen;
        news
    }

    /// Deals with everything that is there.
    pub(super) async fn pass(&mut self) -> Result<Passed> {
        let mut passed = Passed::default();
        loop {
            self.shared.check_open()?;
            let (queues, more) = self.list().await?;
            let before = passed;
            passed.left = 0;
            for (queue, entries) in queues {
                self.apply(&queue, entries, &mut passed).await?;
            }
            if !more {
                break;
            }
            if passed.done == before.done {
                return Ok(passed);
            }
        }
        if passed.left == 0 {
            self.unread.clear();
            looked_at_all(&self.shared, self.keep_ms)?;
        }
        Ok(passed)
    }

    /// The first entries of all, by queue, each queue's in order; and whether there are more.
    async fn list(&self) -> Result<(BTreeMap<String, Vec<PendingEntry>>, bool)> {
        let mut first = BTreeMap::new();
        let mut more = false;
        let mut listed = self.store.list(Some(&self.folder.entries()));
        while let Some(meta) = listed.try_next().await.map_err(Error::InboxStore)? {
            let Some(entry) = self.folder.parse(&meta) else {
                tracing::debug!(at = %meta.location, "what lies in the inbox is no entry");
                continue;
            };
            first.insert((entry.order, entry.id.clone(), entry.at.clone()), entry);
            if first.len() > LISTED {
                first.pop_last();
                more = true;
            }
        }
        let mut queues: BTreeMap<String, Vec<PendingEntry>> = BTreeMap::new();
        for entry in first.into_values() {
            queues.entry(entry.queue.clone()).or_default().push(entry);
        }
        Ok((queues, more))
    }

    /// Deals with entries of one queue, in their order.
    async fn apply(
        &mut self,
        queue: &str,
        entries: Vec<PendingEntry>,
        passed: &mut Passed,
    ) -> Result<()> {
        let queue = QueueName::new(queue)?;
        let reader = Reader {
            shared: Arc::clone(&self.shared),
            store: Arc::clone(&self.store),
            accepted: self.queues.contains(queue.as_str()),
        };
        let room = Arc::new(Semaphore::new(READ_UNITS));
        // One after the other, so that the one whose turn it is has its room.
        let admitted = stream::iter(entries).then(|entry| {
            let room = Arc::clone(&room);
            async move {
                let units = usize::try_from(entry.size).unwrap_or(usize::MAX).div_ceil(UNIT);
                let units = u32::try_from(units.clamp(1, READ_UNITS)).unwrap_or(u32::MAX);
                (entry, room.acquire_many_owned(units).await.ok())
            }
        });
        let read = admitted.map(|(entry, room)| reader.read(entry, room)).buffered(READS);
        let mut read = std::pin::pin!(read);
        let mut group = Group::default();
        let mut sent = VecDeque::new();
        let mut gone = Vec::new();
        while let Some((entry, got, room)) = read.next().await {
            let Some(wish) = self.judge(&entry, got, passed)? else { continue };
            let arrival = Arrival { id: entry.id.as_str().into(), wish };
            if !group.takes(&arrival) {
                sent.push_back(self.send(&queue, std::mem::take(&mut group)).await?);
            }
            group.add(arrival, entry.at);
            drop(room);
            while sent.len() > SENT {
                self.confirm(&mut sent, &mut gone, passed).await?;
            }
        }
        if !group.arrivals.is_empty() {
            sent.push_back(self.send(&queue, group).await?);
        }
        while !sent.is_empty() {
            self.confirm(&mut sent, &mut gone, passed).await?;
        }
        self.delete(gone).await;
        Ok(())
    }

    /// What an entry asks for, unless there is nothing to do about it now.
    fn judge(
        &mut self,
        entry: &PendingEntry,
        got: Got,
        passed: &mut Passed,
    ) -> Result<Option<Wish>> {
        let error = match got {
            Got::Wish(wish) => return Ok(Some(wish)),
            Got::Gone => return Ok(None),
            Got::Failed(error) => return Err(error),
            Got::Unreadable(error) => error,
        };
        let now = env::now();
        let since = *self.unread.entry(entry.at.clone()).or_insert(now);
        if now.saturating_duration_since(since) > INBOX_UNREADABLE_AFTER {
            self.unread.remove(&entry.at);
            let detail = clip_error(&error.to_string()).to_owned();
            return Ok(Some(Wish::Reject(Rejection::Unreadable { detail })));
        }
        tracing::warn!(%error, at = %entry.at, "an inbox entry could not be read; trying again");
        passed.left += 1;
        Ok(None)
    }

    async fn send(&self, queue: &QueueName, group: Group) -> Result<Sent> {
        let Group { arrivals, objects, bytes, .. } = group;
        let queue = queue.clone();
        let op = |reply| Op::Inbox { queue, arrivals, reply };
        let answer = self.shared.send(Lane::Intake, bytes, op).await?;
        Ok(Sent { answer, objects })
    }

    /// Waits for the oldest command; its objects may go.
    async fn confirm(
        &self,
        sent: &mut VecDeque<Sent>,
        gone: &mut Vec<Path>,
        passed: &mut Passed,
    ) -> Result<()> {
        let Some(oldest) = sent.pop_front() else { return Ok(()) };
        let records = self.shared.answer(oldest.answer).await?;
        passed.done += records.len();
        gone.extend(oldest.objects);
        if gone.len() >= DELETES {
            self.delete(std::mem::take(gone)).await;
        }
        Ok(())
    }

    /// Deletes objects. One that stays is found again, and its record.
    async fn delete(&self, objects: Vec<Path>) {
        let objects = stream::iter(objects.into_iter().map(Ok)).boxed();
        let mut deletions = self.store.delete_stream(objects);
        while let Some(deleted) = deletions.next().await {
            match deleted {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => {
                    tracing::warn!(%error, "an inbox entry that is done could not be deleted");
                }
            }
        }
    }
}

/// Reads entries of one queue.
struct Reader {
    shared: Arc<Shared>,
    store: Arc<dyn ObjectStore>,
    accepted: bool,
}

impl Reader {
    async fn read(
        &self,
        entry: PendingEntry,
        room: Option<OwnedSemaphorePermit>,
    ) -> (PendingEntry, Got, Option<OwnedSemaphorePermit>) {
        let got = self.look(&entry).await;
        (entry, got, room)
    }

    async fn look(&self, entry: &PendingEntry) -> Got {
        let reject = |rejection| Got::Wish(Wish::Reject(rejection));
        if !self.accepted {
            return reject(Rejection::QueueNotAccepted);
        }
        if let Err(rejection) = check(entry) {
            return reject(rejection);
        }
        let bytes = match fetch(self.store.as_ref(), entry).await {
            Ok(Fetched::Bytes(bytes)) => bytes,
            Ok(Fetched::TooLarge(size)) => return reject(Rejection::TooLarge { size }),
            Ok(Fetched::Gone) => return Got::Gone,
            Err(error) => return Got::Unreadable(error),
        };
        match InboxEntry::decode(entry.kind(), &bytes) {
            Ok(asked) => self.wish(&entry.queue, asked).await,
            Err(rejection) => reject(rejection),
        }
    }

    /// Checks what is asked, and uploads a large payload.
    async fn wish(&self, queue: &str, asked: InboxEntry) -> Got {
        let wish = match asked {
            InboxEntry::Enqueue(EnqueueEntry { payload, options }) => {
                match self.shared.configs.job(queue, payload, options) {
                    Ok(job) => {
                        let mut what = Prepared { jobs: vec![job], ..Prepared::default() };
                        match self.shared.upload(&mut what).await {
                            Ok(()) => Ok(Wish::Enqueue(what)),
                            Err(error) => return Got::Failed(error),
                        }
                    }
                    Err(error) => Err(error),
                }
            }
            InboxEntry::Cancel(cancel) => Ok(Wish::Cancel(cancel.job_id.into())),
            InboxEntry::Signal(SignalEntry { key, payload }) => {
                limits::check_signal(&key, payload.len())
                    .map(|()| Wish::Signal { key: key.into(), payload: payload.into() })
            }
        };
        Got::Wish(wish.unwrap_or_else(|error| Wish::Reject(refused(&error))))
    }
}
