//! Where a view reads: from the owner's memory and store, or from a reader's store. They differ in how claims are known.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::engine::Shared;
use crate::engine::request::Request;
use crate::error::Result;
use crate::lifecycle::history::Entry;
use crate::lifecycle::job::Job;
use crate::name::QueueName;
use crate::store::objects::Objects;
use crate::store::reader::{self, Reader};
use crate::store::record::Counters;
use crate::store::scan::Scan;
use crate::store::snapshot::Snapshot;
use crate::store::{find, history, keys};

/// See the module.
#[derive(Clone)]
pub(super) enum Source {
    /// The process that owns the store: its table of leases knows every claim, stored or not.
    Live(Arc<Shared>),
    /// Any process: the rows of claims know those that are stored.
    Reader(Arc<Reader>, Objects),
}

impl Source {
    /// What is there now. Rows of a reader that must fit together are not read one by one from it.
    pub(super) fn moment(&self) -> Result<Snapshot> {
        match self {
            Self::Live(shared) => {
                shared.check_open()?;
                shared.store.snapshot()
            }
            Self::Reader(reader, _) => Ok(reader.moment()),
        }
    }

    /// Where payload objects are.
    pub(super) fn objects(&self) -> &Objects {
        match self {
            Self::Live(shared) => &shared.offload.objects,
            Self::Reader(_, objects) => objects,
        }
    }

    /// One row.
    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self {
            Self::Live(shared) => {
                shared.check_open()?;
                shared.store.get(key).await
            }
            Self::Reader(reader, _) => reader.moment().get(key).await,
        }
    }

    /// How many jobs of a queue are in each state, and whether it is paused.
    pub(super) async fn counters(&self, queue: QueueName) -> Result<(Counters, bool)> {
        match self {
            Self::Live(shared) => {
                let (reply, answer) = oneshot::channel();
                shared.post(Request::Stats(queue, reply))?;
                shared.answer(answer).await
            }
            Self::Reader(reader, _) => {
                let paused = reader.moment().get(&keys::paused(&queue)).await?.is_some();
                Ok((reader.counters(&queue).await?, paused))
            }
        }
    }

    /// A job, with its payload.
    pub(super) async fn job(&self, id: &str) -> Result<Option<Arc<Job>>> {
        match self {
            // The claims are asked first: a job that is not claimed by then is at most a moment later than it shows.
            Self::Live(shared) => match shared.leases.claimed(id) {
                Some(job) => Ok(Some(job)),
                None => Ok(find::job(&self.moment()?, id).await?.map(Arc::new)),
            },
            Self::Reader(reader, _) => Ok(reader.job(id).await?.map(Arc::new)),
        }
    }

    /// How a job's attempts ended, oldest first.
    pub(super) async fn history(&self, id: &str) -> Result<Vec<Entry>> {
        match self {
            Self::Live(_) => history::of_id(&self.moment()?, id).await,
            Self::Reader(reader, _) => {
                reader.steady(|at| async move { history::of_id(&at, id).await }).await
            }
        }
    }

    /// The claimed jobs of a queue, in no order.
    pub(super) async fn claimed_in(&self, queue: &str) -> Result<Vec<Arc<Job>>> {
        match self {
            Self::Live(shared) => {
                shared.check_open()?;
                Ok(shared.leases.claimed_in(queue))
            }
            Self::Reader(reader, _) => reader.claimed_in(queue).await,
        }
    }

    /// A scan of a queue's jobs that are pending or claimed, and the keys of those in it that are claimed.
    pub(super) async fn not_claimed(
        &self,
        queue: &str,
        start: Bound<Vec<u8>>,
        end: Option<Vec<u8>>,
    ) -> Result<(HashSet<Bytes>, Scan)> {
        match self {
            // The claims are asked before the store: what is pending there and was not claimed by then counts as
            // pending.
            Self::Live(shared) => {
                let claimed = shared.leases.claimed_in(queue);
                let held = claimed.iter().map(|job| keys::main(job)).collect();
                Ok((held, self.moment()?.scan(start, end).await?))
            }
            Self::Reader(reader, _) => {
                let both = reader.steady(|at| {
                    let (start, end) = (start.clone(), end.clone());
                    async move {
                        let claims = reader::in_queue(find::claims(&at).await?, queue);
                        let held = claims.map(|claim| claim.main).collect();
                        Ok((held, at.scan(start, end).await?))
                    }
                });
                both.await
            }
        }
    }
}
