//! Times that run out: of jobs kept after their end, of waiting ones that expire, of what is remembered of inbox entries.

use super::job::{Job, State};

/// What those are whose time runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Completed, since then.
    Done,
    /// Dead, since then.
    Dead,
    /// Waiting, until then.
    Expiring,
    /// No job but an inbox entry, applied or rejected since then.
    Entry,
}

/// From when a job's time runs, and as what.
pub(crate) fn runs(job: &Job) -> Option<(Kind, u64)> {
    match job.state {
        State::Done { completed_at } => Some((Kind::Done, completed_at)),
        State::Dead { failed_at } => Some((Kind::Dead, failed_at)),
        _ => job.expires_at().map(|at| (Kind::Expiring, at)),
    }
}
