//! A run's end on its way to the commit: the hook is asked, the result put where it belongs, the record encoded. It
//! decides nothing and commits nothing.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use taquba::JobRecord;

use super::Inner;
use super::runner::TerminalHook;
use crate::error::Result;
use crate::lifecycle::address::{StepAddress, caller_headers};
use crate::lifecycle::run::RunOutcome;
use crate::lifecycle::settle::{Ending, StepFacts};
use crate::run_id::RunId;
use crate::store::changes::{EndCommit, JobShape};
use crate::store::record::{RunSite, StoredResult, TerminalRecord};
use crate::store::results;

/// The step that a run is at, with what its jobs have in common.
#[derive(Debug, Clone)]
pub(crate) struct StepSite {
    pub(crate) run_id: RunId,
    pub(crate) step_number: u32,
    pub(crate) job_id: String,
    pub(crate) headers: HashMap<String, String>,
    priority: Option<u32>,
    max_attempts: Option<u32>,
    is_last_attempt: bool,
}

impl StepSite {
    /// Reads it from a step's job.
    pub(crate) fn of(job: &JobRecord, address: StepAddress) -> Self {
        Self {
            run_id: address.run_id,
            step_number: address.step_number,
            job_id: job.id.clone(),
            headers: caller_headers(&job.headers),
            priority: Some(job.priority),
            max_attempts: Some(job.max_attempts),
            is_last_attempt: job.is_last_attempt(),
        }
    }

    /// A run whose job is gone, and with it all that only the job knew.
    pub(crate) fn without_job(address: StepAddress) -> Self {
        Self {
            run_id: address.run_id,
            step_number: address.step_number,
            job_id: String::new(),
            headers: HashMap::new(),
            priority: None,
            max_attempts: None,
            is_last_attempt: true,
        }
    }

    pub(crate) fn facts(&self) -> StepFacts {
        StepFacts { step_number: self.step_number, is_last_attempt: self.is_last_attempt }
    }

    pub(crate) fn shape<'a>(&'a self, queue: &'a str) -> JobShape<'a> {
        JobShape {
            queue,
            run_id: &self.run_id,
            headers: &self.headers,
            priority: self.priority,
            max_attempts: self.max_attempts,
        }
    }

    /// Encodes an end at this step.
    pub(crate) fn end(
        &self,
        queue: &str,
        ending: &Ending,
        result: Option<StoredResult>,
        now_ms: u64,
        notify: bool,
    ) -> Result<EndCommit> {
        let site =
            RunSite { run_id: &self.run_id, step_number: self.step_number, headers: &self.headers };
        let record = TerminalRecord::new(&site, ending, result, now_ms);
        EndCommit::new(&self.shape(queue), &record, ending.by, notify)
    }

    fn outcome(&self, ending: &Ending, result: Option<Vec<u8>>) -> RunOutcome {
        RunOutcome {
            run_id: self.run_id.clone(),
            status: ending.status,
            result,
            error: ending.error.clone(),
            headers: self.headers.clone(),
            final_step: self.step_number,
        }
    }
}

impl<R, H: TerminalHook> Inner<R, H> {
    /// Prepares an end that carries no result.
    pub(crate) fn plain_end(&self, site: &StepSite, ending: &Ending) -> Result<EndCommit> {
        let notify = self.wants_to_know(site, ending);
        site.end(&self.shared.name, ending, None, self.shared.clock.now_ms(), notify)
    }

    /// Prepares an end with its result. A result that becomes an object is durable on return.
    pub(crate) async fn full_end(&self, site: &StepSite, mut ending: Ending) -> Result<EndCommit> {
        let result = ending.result.take();
        let mut outcome = site.outcome(&ending, result);
        let notify = self.observes(&outcome);
        let stored = match outcome.result.take() {
            Some(bytes) => {
                Some(results::store(&self.shared.memos, &site.run_id, &site.job_id, bytes).await?)
            }
            None => None,
        };
        site.end(&self.shared.name, &ending, stored, self.shared.clock.now_ms(), notify)
    }

    /// Asks the hook whether it wants to know of an end without result.
    pub(crate) fn wants_to_know(&self, site: &StepSite, ending: &Ending) -> bool {
        self.observes(&site.outcome(ending, None))
    }

    /// Asks the hook. It is the user's code, so it is asked outside of every commit; a hook that panics here is told
    /// of the end, where its panic is dealt with.
    pub(crate) fn observes(&self, outcome: &RunOutcome) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.hook.observes(outcome))).unwrap_or_else(|_| {
            tracing::warn!(run_id = %outcome.run_id, "terminal hook panicked in `observes`");
            true
        })
    }
}
