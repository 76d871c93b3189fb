//! Waiting for a run's end, from job to job. No polling: it sleeps on the completion of the run's current job.

use std::time::Duration;

use taquba::{Facts, JobRecord, JobStatus, Reads};

use super::WorkflowRuntime;
use super::runner::{StepRunner, TerminalHook};
use crate::error::{Error, Result};
use crate::lifecycle::run::RunEnd;
use crate::run_id::RunId;
use crate::store::keys::RunKeys;
use crate::store::record::{RunRow, TerminalRecord};

/// Where a run stands, read in one piece and durable.
enum Standing {
    Unknown,
    Active(Box<JobRecord>),
    /// Its current job cannot settle any more, and is not dead either: someone removed or settled it by hand.
    Stranded,
    Ended(TerminalRecord),
}

impl Standing {
    fn of(facts: &Facts, keys: &RunKeys) -> Result<Self> {
        if let Some(bytes) = facts.kv(&keys.row) {
            let row = RunRow::decode(bytes)?;
            return Ok(match facts.job(&row.job_id) {
                Some(job) if job.status != JobStatus::Done => Self::Active(Box::new(job.clone())),
                _ => Self::Stranded,
            });
        }
        Ok(match facts.kv(&keys.outcome) {
            Some(bytes) => Self::Ended(TerminalRecord::decode(bytes)?),
            None => Self::Unknown,
        })
    }
}

impl<R: StepRunner, H: TerminalHook> WorkflowRuntime<R, H> {
    /// Waits until a run has ended and returns how. What it returns is durable. A run that is submitted again
    /// meanwhile is waited for again.
    ///
    /// The run's steps may be run by this runtime or by another one of this process.
    ///
    /// # Errors
    /// [`Error::RunNotFound`] when the queue knows no run of this id; [`Error::InconsistentRunState`] when the run's
    /// step job was removed by hand; [`Error::Queue`] when the store closes or is taken over.
    ///
    /// # Cancel safety
    /// It can be dropped at any time.
    pub async fn wait(&self, run_id: &RunId) -> Result<RunEnd> {
        let shared = &self.inner.shared;
        loop {
            match self.standing(run_id).await? {
                Standing::Ended(record) => return shared.view.end(record).await,
                Standing::Unknown => return Err(Error::RunNotFound(run_id.clone())),
                Standing::Stranded => return Err(Error::InconsistentRunState(run_id.clone())),
                // Given up by the queue: nobody has to be waited for.
                Standing::Active(job) if job.status == JobStatus::Dead => {
                    self.inner.bury(&job).await?;
                }
                Standing::Active(job) => {
                    shared.queue.wait_for_completion(&job.id).await?;
                }
            }
        }
    }

    /// Waits as [`wait`](Self::wait) does, for at most `limit`; `None` when the limit passed first.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Cancel safety
    /// It can be dropped at any time.
    pub async fn wait_timeout(&self, run_id: &RunId, limit: Duration) -> Result<Option<RunEnd>> {
        tokio::select! {
            biased;
            end = self.wait(run_id) => end.map(Some),
            () = taquba::time::sleep(limit) => Ok(None),
        }
    }

    async fn standing(&self, run_id: &RunId) -> Result<Standing> {
        let keys = self.inner.shared.keys(run_id);
        let reads = Reads {
            kv: vec![keys.outcome.clone()],
            jobs_in_kv: vec![(keys.row.clone(), RunRow::job_id_in)],
            ..Reads::default()
        };
        let queue = &self.inner.shared.queue;
        queue.decide(reads, move |facts, _| Standing::of(facts, &keys)).await?
    }
}
