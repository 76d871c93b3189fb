//! Reads of runs: where one stands, how one ended. Never writes, so it works over any view of the queue.

use std::sync::Arc;

use taquba::{JobRecord, JobStatus, QueueView};

use super::builder::DEFAULT_QUEUE;
use crate::error::{Error, Result};
use crate::lifecycle::run::{RunEnd, RunOutcome, RunState, RunStatus};
use crate::run_id::RunId;
use crate::store::keys::RunKeys;
use crate::store::memo::MemoStore;
use crate::store::record::{RunRow, TerminalRecord};
use crate::store::results::{self, LoadedResult};

/// How often a status is read anew because the run moved on between two reads.
const MAX_READS: usize = 16;

/// Reads the runs of one queue. Clones share everything.
#[derive(Clone)]
pub struct WorkflowView {
    view: QueueView,
    memos: MemoStore,
    queue: Arc<str>,
}

impl std::fmt::Debug for WorkflowView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkflowView").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl WorkflowView {
    /// Takes a view of the queue's store, and the memo store that the runtime uses. Reads the runs of queue
    /// `workflow-steps`, unless [`queue_name`](Self::queue_name) names another.
    #[must_use]
    pub fn new(view: QueueView, memos: MemoStore) -> Self {
        Self { view, memos, queue: DEFAULT_QUEUE.into() }
    }

    /// Sets the runtime's queue.
    #[must_use]
    pub fn queue_name(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into().into();
        self
    }

    /// Returns where a run stands; `None` if the queue knows no run of this id.
    ///
    /// It shows what has committed, which may be a moment before it is durable.
    ///
    /// # Errors
    /// [`Error::InconsistentRunState`] when the run's step job was removed by hand; [`Error::Queue`];
    /// [`Error::Deserialization`] for a damaged record.
    pub async fn status(&self, run_id: &RunId) -> Result<Option<RunStatus>> {
        let status = |state, current_step| {
            Ok(Some(RunStatus { run_id: run_id.clone(), state, current_step }))
        };
        // Row and job are two reads, and the run may move on between them. What was missing once and is named again
        // is missing for good: a row is replaced in the commit that ends its job.
        let mut missing: Option<String> = None;
        let mut step = 0;
        for _ in 0..MAX_READS {
            let Some(row) = self.row(run_id).await? else {
                match self.terminal(run_id).await? {
                    Some(end) => {
                        return status(RunState::Terminated(end.termination()), end.final_step);
                    }
                    // Between the two reads it may have been submitted again.
                    None if self.row(run_id).await?.is_none() => return Ok(None),
                    None => continue,
                }
            };
            if let Some(job) = self.view.get_job(&row.job_id).await? {
                return status(state_of(&job), row.step_number);
            }
            if missing.as_ref() == Some(&row.job_id) {
                return Err(Error::InconsistentRunState(run_id.clone()));
            }
            step = row.step_number;
            missing = Some(row.job_id);
        }
        status(RunState::Running, step)
    }

    /// Returns how a run ended and what it produced; `None` while it is active, when the queue knows no run of this
    /// id, and when its result was an object that has since been removed.
    ///
    /// It shows what has committed, which may be a moment before it is durable.
    ///
    /// # Errors
    /// [`Error::Queue`]; [`Error::Store`] when a result's object could not be read; [`Error::Deserialization`].
    pub async fn outcome(&self, run_id: &RunId) -> Result<Option<RunOutcome>> {
        match self.terminal(run_id).await? {
            Some(record) => Ok(self.end(record).await?.outcome),
            None => Ok(None),
        }
    }

    /// The row of an active run.
    pub(crate) async fn row(&self, run_id: &RunId) -> Result<Option<RunRow>> {
        let bytes = self.view.kv_get(&RunKeys::new(&self.queue, run_id).row).await?;
        bytes.map(|bytes| RunRow::decode(&bytes)).transpose()
    }

    /// The current job of an active run.
    pub(crate) async fn current_job(&self, run_id: &RunId) -> Result<Option<JobRecord>> {
        match self.row(run_id).await? {
            Some(row) => Ok(self.view.get_job(&row.job_id).await?),
            None => Ok(None),
        }
    }

    /// The record of a run's end, with what the run produced.
    pub(crate) async fn end(&self, mut record: TerminalRecord) -> Result<RunEnd> {
        let termination = record.termination();
        let stored = record.result.take();
        let outcome = match results::load(&self.memos, &record.run_id, stored).await? {
            LoadedResult::Bytes(result) => Some(record.into_outcome(result)),
            LoadedResult::Lost => None,
        };
        Ok(RunEnd { termination, outcome })
    }

    async fn terminal(&self, run_id: &RunId) -> Result<Option<TerminalRecord>> {
        let bytes = self.view.kv_get(&RunKeys::new(&self.queue, run_id).outcome).await?;
        bytes.map(|bytes| TerminalRecord::decode(&bytes)).transpose()
    }
}

fn state_of(job: &JobRecord) -> RunState {
    if job.cancel_requested {
        return RunState::Cancelling;
    }
    match job.status {
        JobStatus::Claimed => RunState::Running,
        _ => RunState::Pending,
    }
}
