//! What a cancel from outside leads to, by where the run's current job stands. Pure.

use taquba::JobStatus;

/// What a cancel leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelRuling {
    /// The job waits: it goes, and the run ends.
    RemoveAndEnd,
    /// A worker runs the job: it is asked to stop, and the run ends when it settles.
    Ask,
    /// There is no job that could ever settle, because someone removed it by hand: the run ends.
    End,
    /// The queue gave the job up: the run is to end as failed.
    GivenUp,
}

/// Decides on a cancel of an active run.
pub(crate) fn cancel(job: Option<JobStatus>) -> CancelRuling {
    match job {
        Some(JobStatus::Pending | JobStatus::Scheduled) => CancelRuling::RemoveAndEnd,
        Some(JobStatus::Claimed) => CancelRuling::Ask,
        Some(JobStatus::Dead) => CancelRuling::GivenUp,
        Some(JobStatus::Done) | None => CancelRuling::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancel_is_ruled_by_where_the_job_stands() {
        for (job, want) in [
            (Some(JobStatus::Pending), CancelRuling::RemoveAndEnd),
            (Some(JobStatus::Scheduled), CancelRuling::RemoveAndEnd),
            (Some(JobStatus::Claimed), CancelRuling::Ask),
            (Some(JobStatus::Dead), CancelRuling::GivenUp),
            (Some(JobStatus::Done), CancelRuling::End),
            (None, CancelRuling::End),
        ] {
            assert_eq!(cancel(job), want, "{job:?}");
        }
    }
}
