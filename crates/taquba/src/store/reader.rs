//! A store as those see it who do not own it: behind by a poll, and never in the owner's way.

use std::sync::Arc;
use std::time::Duration;

use slatedb::config::DbReaderOptions;
use slatedb::{DbReader, DbReaderMode};
use tokio::runtime::Handle;

use super::clock::StoreClock;
use super::db::{self, Location};
use super::record::{self, ClaimRow, Counters};
use super::snapshot::Snapshot;
use super::{find, format, keys};
use crate::error::{Error, Result};
use crate::lifecycle::job::{Job, State};
use crate::liveness::StoreActivity;

/// How often rows that must fit together are read again because the reader caught up with more in between. The second
/// time they are at hand, so the read takes no time in which that could happen again.
const TRIES: usize = 1_024;

/// How a reader keeps up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Following {
    /// Guards what it reads from garbage collection, by a note in the store that it renews.
    pub(crate) guarded: bool,
    pub(crate) poll: Duration,
    pub(crate) checkpoint_lifetime: Duration,
    pub(crate) skip_log: bool,
}

/// See the module.
pub(crate) struct Reader {
    inner: Arc<DbReader>,
    path: String,
}

impl Reader {
    /// Opens a store that is there and in use.
    pub(crate) async fn open(location: &Location, how: Following) -> Result<Self> {
        let absent = || Error::StoreNotInitialized { path: location.path.clone() };
        let Some(newest_ms) = db::newest_table(location).await? else { return Err(absent()) };
        let clock = StoreClock::behind(0);
        clock.raise(newest_ms);
        let options = DbReaderOptions {
            manifest_poll_interval: how.poll,
            checkpoint_lifetime: how.checkpoint_lifetime,
            skip_wal_replay: how.skip_log,
            ..DbReaderOptions::default()
        };
        let mode = match how.guarded {
            true => DbReaderMode::ManagedCheckpoint,
            false => DbReaderMode::FollowLatest,
        };
        let mut builder = DbReader::builder(location.path.clone(), Arc::clone(&location.main))
            .with_options(options)
            .with_reader_mode(mode)
            .with_system_clock(Arc::new(clock))
            .with_db_cache(db::cache(), 0);
        if let Some(wal) = &location.wal {
            builder = builder.with_wal_object_store(Arc::clone(wal));
        }
        let inner = Arc::new(builder.build().await?);
        let reader = Self { inner, path: location.path.clone() };
        // One that skips the log may see nothing yet of a store that is in use.
        match format::is_in_use(&reader.moment(), &reader.path).await {
            Ok(in_use) if in_use || how.skip_log => Ok(reader),
            Ok(_) => {
                reader.close().await?;
                Err(absent())
            }
            Err(error) => {
                reader.close().await?;
                Err(error)
            }
        }
    }

    /// Stops keeping up; reads answer that it is closed.
    pub(crate) async fn close(&self) -> Result<()> {
        Ok(self.inner.close().await?)
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn activity(&self) -> StoreActivity {
        let status = self.inner.status();
        let tick = u64::try_from(status.current_manifest.last_l0_clock_tick()).ok();
        StoreActivity {
            last_flush_at_ms: tick.filter(|tick| *tick > 0),
            writer_epoch: status.current_manifest.writer_epoch(),
            durable_seq: status.durable_seq,
        }
    }

    /// What it has caught up with. Reads of several rows that must fit together go through [`steady`](Self::steady).
    pub(crate) fn moment(&self) -> Snapshot {
        Snapshot::of_reader(Arc::clone(&self.inner))
    }

    /// Reads rows of one moment: again, if the reader caught up with more meanwhile. The mark rides in every batch, so
    /// the sequence that wrote it names the moment.
    pub(crate) async fn steady<T, F>(&self, read: impl Fn(Snapshot) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        for _ in 0..TRIES {
            let at = self.moment();
            let before = at.seq(keys::MARK).await?;
            let answer = read(at.clone()).await;
            if at.seq(keys::MARK).await? == before {
                return answer;
            }
        }
        let reason = "the reader caught up with news faster than the rows could be read";
        Err(Error::Storage(slatedb::Error::unavailable(reason.to_owned())))
    }

    /// A queue's counters.
    pub(crate) async fn counters(&self, queue: &str) -> Result<Counters> {
        let key = keys::counters(queue);
        match self.moment().get(&key).await? {
            Some(value) => Counters::decode(value).map_err(|e| find::undecodable(&key, e)),
            None => Ok(Counters::default()),
        }
    }

    /// A job with its payload, claimed if it has a claim's row.
    pub(crate) async fn job(&self, id: &str) -> Result<Option<Job>> {
        self.steady(|at| async move {
            let Some(main) = at.get(&keys::index(id)).await? else { return Ok(None) };
            let Some(mut job) = find::record_at(&at, &main).await? else { return Ok(None) };
            let claims = match job.state {
                State::Pending => find::claims(&at).await?,
                _ => Vec::new(),
            };
            if let Some(claim) = claims.into_iter().find(|claim| claim.main == main) {
                job.state = State::Claimed(claim.hold);
            }
            Ok(Some(job))
        })
        .await
    }

    /// The claimed jobs of a queue, in no order. One that cannot be decoded is left out, with a warning.
    pub(crate) async fn claimed_in(&self, queue: &str) -> Result<Vec<Arc<Job>>> {
        self.steady(|at| async move {
            let mut jobs = Vec::new();
            for ClaimRow { hold, main } in in_queue(find::claims(&at).await?, queue) {
                let Some(value) = at.get(&main).await? else { continue };
                match record::decode_job(value) {
                    Ok(job) => jobs.push(Arc::new(Job { state: State::Claimed(hold), ..job })),
                    Err(e) => {
                        tracing::error!(error = %find::undecodable(&main, e), "a job is not listed");
                    }
                }
            }
            Ok(jobs)
        })
        .await
    }
}

/// The claims on jobs of a queue.
pub(crate) fn in_queue(claims: Vec<ClaimRow>, queue: &str) -> impl Iterator<Item = ClaimRow> {
    let prefix = keys::in_queue(keys::READY, queue);
    claims.into_iter().filter(move |claim| claim.main.starts_with(&prefix))
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Its poller would go on for ever. Without a runtime there is none.
        if let Ok(runtime) = Handle::try_current() {
            let inner = Arc::clone(&self.inner);
            runtime.spawn(async move {
                // A note that is left in the store lapses by itself.
                drop(inner.close().await);
            });
        }
    }
}
