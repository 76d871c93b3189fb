//! What a submission leads to when a run of the same id may be active. Pure.

/// What is known of the active run of the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActiveRun<'a> {
    pub(crate) input_hash: &'a [u8; 32],
    /// Whether its current job is still stored. If not, someone removed it by hand and the run can never go on.
    pub(crate) job_exists: bool,
}

/// What a submission leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The run starts.
    Start,
    /// The active run is the same one.
    Duplicate,
    /// The active run is another one.
    Mismatch,
}

/// Decides on a submission.
pub(crate) fn admit(active: Option<ActiveRun<'_>>, input_hash: &[u8; 32]) -> Admission {
    match active {
        None => Admission::Start,
        // Answering "it runs already" would leave the caller waiting for a run that is stuck for ever.
        Some(run) if !run.job_exists => Admission::Start,
        Some(run) if run.input_hash == input_hash => Admission::Duplicate,
        Some(_) => Admission::Mismatch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_starts_a_run_unless_one_is_active() {
        let (mine, other) = ([1; 32], [2; 32]);
        let run = |input_hash, job_exists| Some(ActiveRun { input_hash, job_exists });
        for (active, want) in [
            (None, Admission::Start),
            (run(&mine, true), Admission::Duplicate),
            (run(&other, true), Admission::Mismatch),
            (run(&mine, false), Admission::Start),
            (run(&other, false), Admission::Start),
        ] {
            assert_eq!(admit(active, &mine), want, "{active:?}");
        }
    }
}
