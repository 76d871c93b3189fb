//! Which jobs are held right now, under which claim and slot. The engine's own table: the truth about claims.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::leases::ClaimNo;
use crate::lifecycle::job::Job;

#[derive(Debug)]
struct Held {
    job: Arc<Job>,
    check_mono_ms: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: HashMap<ClaimNo, Held>,
    /// When to look at which claim's lease; a renewed one is put back.
    checks: BTreeSet<(u64, ClaimNo)>,
    by_order: HashMap<u64, ClaimNo>,
    free_slots: BinaryHeap<Reverse<u32>>,
    next_slot: u32,
}

/// Numbers are drawn from one source in the process: a claim of an earlier opening, or of another store, must never
/// be taken for one of this.
static LAST_CLAIM: AtomicU64 = AtomicU64::new(0);

impl Claims {
    /// The lowest slot that no claim uses. It is taken once a job is added under it.
    pub(crate) fn take_slot(&mut self) -> u32 {
        if let Some(Reverse(slot)) = self.free_slots.pop() {
            return slot;
        }
        self.next_slot += 1;
        self.next_slot - 1
    }

    /// Takes a claimed job in. Its lease is to be looked at once [`check_at`](Self::check_at) says when.
    pub(crate) fn add(&mut self, job: &Arc<Job>) -> ClaimNo {
        let claim = LAST_CLAIM.fetch_add(1, Ordering::Relaxed) + 1;
        let held = Held { job: Arc::clone(job), check_mono_ms: u64::MAX };
        self.held.insert(claim, held);
        self.by_order.insert(job.body.order, claim);
        claim
    }

    /// The job under a claim.
    pub(crate) fn get(&self, claim: ClaimNo) -> Option<&Arc<Job>> {
        self.held.get(&claim).map(|held| &held.job)
    }

    /// The claim on a job, by its order number.
    pub(crate) fn of_order(&self, order: u64) -> Option<(ClaimNo, &Arc<Job>)> {
        let claim = *self.by_order.get(&order)?;
        Some((claim, self.get(claim)?))
    }

    /// The job goes on under the same claim, changed.
    pub(crate) fn replace(&mut self, claim: ClaimNo, job: &Arc<Job>) {
        if let Some(held) = self.held.get_mut(&claim) {
            held.job = Arc::clone(job);
        }
    }

    /// Sets when to look at a claim's lease.
    pub(crate) fn check_at(&mut self, claim: ClaimNo, mono_ms: u64) {
        if let Some(held) = self.held.get_mut(&claim) {
            self.checks.remove(&(held.check_mono_ms, claim));
            held.check_mono_ms = mono_ms;
            self.checks.insert((mono_ms, claim));
        }
    }

    /// The lease to look at next, and when.
    pub(crate) fn next_check(&self) -> Option<(u64, ClaimNo)> {
        self.checks.first().copied()
    }

    /// The claim has ended; its slot is free.
    pub(crate) fn remove(&mut self, claim: ClaimNo) {
        if let Some(held) = self.held.remove(&claim) {
            self.by_order.remove(&held.job.body.order);
            self.checks.remove(&(held.check_mono_ms, claim));
            if let Some(slot) = held.job.hold().and_then(|hold| hold.slot) {
                self.free_slots.push(Reverse(slot));
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}
