//! How a job lives: pure functions from a job, a command and the time to the job that follows, or a refusal. Knows no
//! store, no clock, no randomness and no async; whoever calls it commits what it says.
//!
//! ```text
//!               ┌────────── retry, release, expiry ─────────┐
//!               ▼                                           │
//!  enqueue ─► Pending ───────────── claim ───────────► Claimed ── ack ──► (gone) or Done
//!     │         ▲  └── cancel ─► (gone)                     │
//!     ▼         │                                           ├── nack ──► Scheduled (backoff)
//!  Scheduled ───┴─ due, woken, signalled                    └── out of attempts, dead letter ──► Dead
//!     └── cancel ─► (gone)                                                  requeue ─► Pending ◄──┘
//! ```

pub(crate) mod admit;
pub(crate) mod history;
pub(crate) mod job;
pub(crate) mod settle;
#[cfg(test)]
mod table;
pub(crate) mod term;
pub(crate) mod wait;

use std::sync::Arc;

use bytes::Bytes;

use job::Job;

/// The time and the opening that a transition happens in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    /// Wall time, in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
    /// The number of this opening of the store.
    pub(crate) epoch: u64,
}

/// One job's transition. Keys, index rows, counters and waiters all follow from the two sides.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    /// The job before; `None` when it is new.
    pub(crate) before: Option<Arc<Job>>,
    /// The job after; `None` when it is gone.
    pub(crate) after: Option<Arc<Job>>,
    /// How the job's life ended, for those who wait for it.
    pub(crate) ending: Option<Ending>,
    /// What the job's history gains, as the last of the entries that `after` counts.
    pub(crate) entry: Option<history::Entry>,
    /// What a completed job came to, also when its record is not kept.
    pub(crate) result: Option<Bytes>,
}

/// How a job's life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A worker acknowledged it.
    Completed,
    /// It is dead.
    DeadLettered,
    /// It was cancelled while it waited.
    Cancelled,
}

impl Move {
    /// A job that did not exist before.
    pub(crate) fn born(job: Job) -> Self {
        Self { before: None, after: Some(Arc::new(job)), ending: None, entry: None, result: None }
    }

    /// A job that goes on living.
    pub(crate) fn on(before: &Arc<Job>, after: Job) -> Self {
        let after = Some(Arc::new(after));
        Self { before: Some(Arc::clone(before)), after, ending: None, entry: None, result: None }
    }

    /// A job whose life ends, kept (`after`) or not.
    pub(crate) fn end(before: &Arc<Job>, after: Option<Job>, ending: Ending) -> Self {
        let (before, after) = (Some(Arc::clone(before)), after.map(Arc::new));
        Self { before, after, ending: Some(ending), entry: None, result: None }
    }

    /// A kept job is no more, long after its life ended.
    pub(crate) fn forgotten(before: &Arc<Job>) -> Self {
        let before = Some(Arc::clone(before));
        Self { before, after: None, ending: None, entry: None, result: None }
    }

    /// The move with an entry in the history of the job that it leaves.
    pub(crate) fn recorded(mut self, entry: history::Entry) -> Self {
        if let Some(after) = &mut self.after {
            let job = Arc::make_mut(after);
            job.history = job.history.saturating_add(1);
            self.entry = Some(entry);
        }
        self
    }

    /// The job's latest side.
    pub(crate) fn job(&self) -> Option<&Arc<Job>> {
        self.after.as_ref().or(self.before.as_ref())
    }
}
