//! What is remembered of a job's attempts: one entry per attempt that ended and mattered, and one per return from the
//! dead. How entries are stored is `store`'s affair.

use std::sync::Arc;

use super::Stamp;
use super::job::Job;
use crate::record::AttemptOutcome;

/// Entries that are kept of one job (100): past it, each new one displaces the oldest.
pub(crate) const KEPT: u32 = 100;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Which attempt, from 1; of a return from the dead, how many there had been.
    pub(crate) attempt: u32,
    pub(crate) claimed_at: Option<u64>,
    pub(crate) recorded_at: u64,
    pub(crate) outcome: AttemptOutcome,
    pub(crate) error: Option<Arc<str>>,
}

impl Entry {
    /// The entry of an attempt of `job` that ends now.
    pub(crate) fn of(
        job: &Job,
        outcome: AttemptOutcome,
        error: Option<&Arc<str>>,
        stamp: Stamp,
    ) -> Self {
        Self {
            attempt: job.attempts_shown(),
            claimed_at: job.hold().map(|hold| hold.claimed_at),
            recorded_at: stamp.now_ms,
            outcome,
            error: error.cloned(),
        }
    }
}
