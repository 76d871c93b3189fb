//! Cancelling a run from outside: one command, whatever state the run is in.

use taquba::{Changes, Facts, JobRecord, Reads};

use super::WorkflowRuntime;
use super::end::StepSite;
use super::runner::{StepRunner, TerminalHook};
use crate::error::Result;
use crate::lifecycle::address::StepAddress;
use crate::lifecycle::cancel::{CancelRuling, cancel};
use crate::lifecycle::settle::Ending;
use crate::run_id::RunId;
use crate::store::record::RunRow;

/// A cancel, ready to commit.
struct Cancel {
    queue: String,
    run_id: RunId,
    row_key: Vec<u8>,
    now_ms: u64,
    /// The job that was current when the hook was asked, and whether the hook wants to know.
    asked: Option<(String, bool)>,
}

impl Cancel {
    /// Decides and fills in the changes; `None` when the run is not active.
    fn settle(self, facts: &Facts, changes: &mut Changes) -> Result<Option<CancelRuling>> {
        let Some(bytes) = facts.kv(&self.row_key) else {
            return Ok(None);
        };
        let row = RunRow::decode(bytes)?;
        let job = facts.job(&row.job_id);
        let ruling = cancel(job.map(|job| job.status));
        match ruling {
            CancelRuling::GivenUp => {}
            CancelRuling::Ask => changes.cancel(row.job_id),
            CancelRuling::End => self.end(&row, None, changes)?,
            CancelRuling::RemoveAndEnd => {
                self.end(&row, job, changes)?;
                changes.cancel(row.job_id);
            }
        }
        Ok(Some(ruling))
    }

    fn end(&self, row: &RunRow, job: Option<&JobRecord>, changes: &mut Changes) -> Result<()> {
        let address = StepAddress { run_id: self.run_id.clone(), step_number: row.step_number };
        let site = match job {
            Some(job) => StepSite::of(job, address),
            None => StepSite::without_job(address),
        };
        // Unless the hook was asked about this very step, it is told: it is asked again before it runs.
        let notify = match &self.asked {
            Some((job_id, notify)) if *job_id == row.job_id => *notify,
            _ => true,
        };
        site.end(&self.queue, &Ending::cancelled(), None, self.now_ms, notify)?.apply(changes);
        Ok(())
    }
}

impl<R: StepRunner, H: TerminalHook> WorkflowRuntime<R, H> {
    /// Cancels a run. True when it was active: if its step waits (for a worker, a time or a signal), the run has ended
    /// as cancelled; if a worker runs the step, the step's cancel token fires, and the run ends as cancelled when the
    /// step settles, whatever it returns (a step's own `Cancel` keeps its reason and effects). False when the run is
    /// not active, and when its step was given up by the queue, which ends the run as failed.
    ///
    /// Durable on return: a run that this answered true for never ends otherwise.
    ///
    /// # Errors
    /// [`Error::Queue`](crate::Error::Queue); [`Error::Deserialization`](crate::Error::Deserialization) for a damaged
    /// record.
    ///
    /// # Cancel safety
    /// Dropped before it returns, the run may or may not be cancelled. Calling it again is safe.
    pub async fn cancel(&self, run_id: &RunId) -> Result<bool> {
        let shared = &self.inner.shared;
        let row_key = shared.keys(run_id).row;
        let reads =
            Reads { jobs_in_kv: vec![(row_key.clone(), RunRow::job_id_in)], ..Reads::default() };
        let cancel = Cancel {
            queue: shared.name.clone(),
            run_id: run_id.clone(),
            row_key,
            now_ms: shared.clock.now_ms(),
            asked: self.ask_hook(run_id).await?,
        };
        let ruling = shared
            .queue
            .decide(reads, move |facts, changes| cancel.settle(facts, changes))
            .await??;
        if ruling == Some(CancelRuling::GivenUp)
            && let Some(job) = shared.view.current_job(run_id).await?
        {
            self.inner.bury(&job).await?;
        }
        Ok(matches!(
            ruling,
            Some(CancelRuling::RemoveAndEnd | CancelRuling::Ask | CancelRuling::End)
        ))
    }

    /// Asks the hook whether it wants to know of the run's cancellation, before the commit, where no user's code runs.
    async fn ask_hook(&self, run_id: &RunId) -> Result<Option<(String, bool)>> {
        let shared = &self.inner.shared;
        let Some(row) = shared.row(run_id).await? else {
            return Ok(None);
        };
        let address = StepAddress { run_id: run_id.clone(), step_number: row.step_number };
        let site = match shared.queue.view().get_job(&row.job_id).await? {
            Some(job) => StepSite::of(&job, address),
            None => StepSite::without_job(address),
        };
        let notify = self.inner.wants_to_know(&site, &Ending::cancelled());
        Ok(Some((row.job_id, notify)))
    }
}
