//! Who may still settle which claim, and until when: one small table that the engine and the lease handles share. Held
//! only for a few lines at a time, never over an await. Time is monotonic milliseconds; nothing here is stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::lifecycle::job::{Job, JobId, Progress, State};

/// A claim's number; unique in this process.
pub(crate) type ClaimNo = u64;

/// One live claim.
#[derive(Debug)]
struct Lease {
    /// The claimed job, for those who read it.
    job: Arc<Job>,
    expires_mono_ms: u64,
    /// A worker loop keeps it until then, while its handler's future lives.
    kept_until_mono_ms: u64,
    /// When the engine looks at it next; who makes it end earlier tells the engine.
    looked_at_mono_ms: u64,
    cancel_requested: bool,
    /// The job's progress is newer than the engine's.
    reported: bool,
    token: CancellationToken,
}

impl Lease {
    /// While a worker loop keeps it, only the longest run time ends it, however the handler extends it: one that does no
    /// work any more, and says it does, must end too.
    fn ends(&self) -> u64 {
        if self.kept_until_mono_ms > 0 { self.kept_until_mono_ms } else { self.expires_mono_ms }
    }

    fn progress(&self) -> Option<Arc<Progress>> {
        self.job.hold()?.progress.clone()
    }

    fn set_progress(&mut self, progress: Arc<Progress>) {
        if let State::Claimed(hold) = &mut Arc::make_mut(&mut self.job).state {
            hold.progress = Some(progress);
        }
    }

    fn ends_unseen(&self) -> bool {
        self.ends() < self.looked_at_mono_ms
    }
}

#[derive(Debug, Default)]
struct Table {
    leases: HashMap<ClaimNo, Lease>,
    by_id: HashMap<JobId, ClaimNo>,
    /// No claim lives any more, and none can be added.
    closed: bool,
}

impl Table {
    fn remove(&mut self, claim: ClaimNo) {
        if let Some(lease) = self.leases.remove(&claim)
            && self.by_id.get(lease.job.id()) == Some(&claim)
        {
            self.by_id.remove(lease.job.id());
        }
    }
}

/// Why a lease is not extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Lost,
    CancelRequested,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    table: Mutex<Table>,
}

impl Leases {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a claim's lease. Its token fires at once when the store is lost already.
    pub(crate) fn add(
        &self,
        claim: ClaimNo,
        job: &Arc<Job>,
        expires_mono_ms: u64,
        token: CancellationToken,
    ) {
        let cancel_requested = job.wants_cancel();
        let mut table = self.table();
        if table.closed || cancel_requested {
            token.cancel();
        }
        if !table.closed {
            let lease = Lease {
                job: Arc::clone(job),
                expires_mono_ms,
                kept_until_mono_ms: 0,
                looked_at_mono_ms: expires_mono_ms,
                cancel_requested,
                reported: false,
                token,
            };
            table.by_id.insert(job.id().clone(), claim);
            table.leases.insert(claim, lease);
        }
    }

    /// Ends a claim: whoever still holds it has lost it.
    pub(crate) fn end(&self, claim: ClaimNo) {
        self.table().remove(claim);
    }

    /// Sets the time at which a claim's lease ends; whether that is before the engine looks at it.
    pub(crate) fn renew(&self, claim: ClaimNo, until_mono_ms: u64) -> Result<bool, Ended> {
        self.change(claim, |lease| {
            lease.expires_mono_ms = until_mono_ms;
            lease.ends_unseen()
        })
    }

    /// Moves the end of a claim's lease to `until_mono_ms` if it is earlier.
    pub(crate) fn ensure(&self, claim: ClaimNo, until_mono_ms: u64) -> Result<(), Ended> {
        self.change(claim, |lease| lease.expires_mono_ms = lease.expires_mono_ms.max(until_mono_ms))
    }

    fn change<T>(&self, claim: ClaimNo, change: impl FnOnce(&mut Lease) -> T) -> Result<T, Ended> {
        let mut table = self.table();
        let lease = table.leases.get_mut(&claim).ok_or(Ended::Lost)?;
        if lease.cancel_requested {
            return Err(Ended::CancelRequested);
        }
        Ok(change(lease))
    }

    /// Keeps a claim until a time, whatever its lease: its handler's future lives. Whether it ends before the engine
    /// looks at it.
    pub(crate) fn keep(&self, claim: ClaimNo, until_mono_ms: u64) -> bool {
        self.table().leases.get_mut(&claim).is_some_and(|lease| {
            // Zero stands for a claim that is not kept.
            lease.kept_until_mono_ms = until_mono_ms.max(1);
            lease.ends_unseen()
        })
    }

    /// The handler's future is gone; the lease lasts until `until_mono_ms` at least, for the settlement. Whether it
    /// ends before the engine looks at it.
    pub(crate) fn let_go(&self, claim: ClaimNo, until_mono_ms: u64) -> bool {
        self.table().leases.get_mut(&claim).is_some_and(|lease| {
            lease.kept_until_mono_ms = 0;
            lease.expires_mono_ms = lease.expires_mono_ms.max(until_mono_ms);
            lease.ends_unseen()
        })
    }

    /// When a live claim's lease ends; the engine looks at it then.
    pub(crate) fn look_at(&self, claim: ClaimNo) -> Option<u64> {
        self.table().leases.get_mut(&claim).map(|lease| {
            lease.looked_at_mono_ms = lease.ends();
            lease.looked_at_mono_ms
        })
    }

    /// Whether a claim has not ended.
    pub(crate) fn lives(&self, claim: ClaimNo) -> bool {
        self.table().leases.contains_key(&claim)
    }

    /// When the lease of a job's live claim ends.
    pub(crate) fn expiry_of(&self, id: &str) -> Option<u64> {
        let table = self.table();
        let claim = table.by_id.get(id)?;
        table.leases.get(claim).map(Lease::ends)
    }

    /// The claimed job goes on under the same claim, changed.
    pub(crate) fn replace(&self, claim: ClaimNo, job: &Arc<Job>) {
        if let Some(lease) = self.table().leases.get_mut(&claim) {
            let newer = lease.progress().filter(|_| lease.reported);
            lease.job = Arc::clone(job);
            if let Some(progress) = newer {
                lease.set_progress(progress);
            }
        }
    }

    /// Notes how far an attempt is; whether the engine does not know yet that there is news.
    pub(crate) fn report(&self, claim: ClaimNo, progress: Arc<Progress>) -> Result<bool, Ended> {
        let mut table = self.table();
        let lease = table.leases.get_mut(&claim).ok_or(Ended::Lost)?;
        lease.set_progress(progress);
        Ok(!std::mem::replace(&mut lease.reported, true))
    }

    /// How far an attempt is, if that is news; from here on it is none.
    pub(crate) fn take_reported(&self, claim: ClaimNo) -> Option<Arc<Progress>> {
        let mut table = self.table();
        let lease = table.leases.get_mut(&claim)?;
        if std::mem::replace(&mut lease.reported, false) { lease.progress() } else { None }
    }

    /// A job as it is claimed now.
    pub(crate) fn claimed(&self, id: &str) -> Option<Arc<Job>> {
        let table = self.table();
        let claim = table.by_id.get(id)?;
        table.leases.get(claim).map(|lease| Arc::clone(&lease.job))
    }

    /// All claimed jobs of a queue, in no order.
    pub(crate) fn claimed_in(&self, queue: &str) -> Vec<Arc<Job>> {
        let table = self.table();
        let jobs = table.leases.values().map(|lease| &lease.job);
        jobs.filter(|job| **job.queue() == *queue).map(Arc::clone).collect()
    }

    /// Ends a claim if its lease ran out by `now`, and fires its token; true when it did. Judged and ended under one lock: from then on
    /// renewals answer that it is lost, so an expiry that is about to commit cannot be overtaken by a renewal.
    pub(crate) fn expire(&self, claim: ClaimNo, now_mono_ms: u64) -> bool {
        let mut table = self.table();
        let Some(lease) = table.leases.get(&claim).filter(|lease| lease.ends() <= now_mono_ms)
        else {
            return false;
        };
        lease.token.cancel();
        table.remove(claim);
        true
    }

    /// Stores that cancellation was asked for; its token fires.
    pub(crate) fn request_cancel(&self, claim: ClaimNo) {
        if let Some(lease) = self.table().leases.get_mut(&claim) {
            lease.cancel_requested = true;
            lease.token.cancel();
        }
    }

    /// The store is lost: every claim is, and every token fires.
    pub(crate) fn close(&self) {
        let mut table = self.table();
        table.closed = true;
        for (_, lease) in table.leases.drain() {
            lease.token.cancel();
        }
        table.by_id.clear();
    }
}
