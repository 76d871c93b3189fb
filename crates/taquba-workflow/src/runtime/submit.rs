//! Submitting a run: one command that finds out whether the run is active and starts it if not. No steps run here.

use std::collections::HashMap;

use taquba::{Changes, EnqueueRequest, Facts, Reads, SettlementEffects};

use super::effects::{check, check_effects, check_headers};
use super::{Shared, WorkflowRuntime};
use crate::error::{Error, Result};
use crate::lifecycle::limits::{MAX_HEADERS_SIZE, MAX_STEP_PAYLOAD};
use crate::lifecycle::run::{RunOptions, RunSpec, SubmitOutcome};
use crate::lifecycle::submit::{ActiveRun, Admission, admit};
use crate::run_id::RunId;
use crate::store::changes::JobShape;
use crate::store::digest::sha256;
use crate::store::keys::RunKeys;
use crate::store::record::RunRow;

/// A submission, encoded and ready to commit.
struct Submission {
    keys: RunKeys,
    row: RunRow,
    encoded_row: Vec<u8>,
    request: EnqueueRequest,
    effects: SettlementEffects,
}

impl Submission {
    fn new(shared: &Shared, run_id: &RunId, spec: RunSpec) -> Result<Self> {
        let RunOptions { headers, priority, max_attempts_per_step, run_at } = spec.options;
        let shape = JobShape {
            queue: &shared.name,
            run_id,
            headers: &headers,
            priority,
            max_attempts: max_attempts_per_step,
        };
        let row = RunRow {
            input_hash: sha256(&[&spec.input]),
            submitted_at_ms: shared.clock.now_ms(),
            step_number: 0,
            job_id: shared.queue.next_job_id(),
        };
        let mut request = shape.step(0, spec.input);
        request.options.run_at = run_at;
        Ok(Self {
            keys: shared.keys(run_id),
            encoded_row: row.encode()?,
            row,
            request,
            effects: spec.effects,
        })
    }

    fn reads(&self) -> Reads {
        Reads {
            kv: vec![self.keys.outcome.clone()],
            jobs_in_kv: vec![(self.keys.row.clone(), RunRow::job_id_in)],
            ..Reads::default()
        }
    }

    /// Decides and fills in the changes. Returns the job of the run's current step, and whether this started the run.
    fn settle(self, facts: &Facts, changes: &mut Changes, run_id: RunId) -> Result<SubmitOutcome> {
        let active = facts.kv(&self.keys.row).map(|bytes| RunRow::decode(bytes)).transpose()?;
        let known = active.as_ref().map(|row| ActiveRun {
            input_hash: &row.input_hash,
            job_exists: facts.job(&row.job_id).is_some(),
        });
        match (admit(known, &self.row.input_hash), active) {
            (Admission::Duplicate, Some(active)) => {
                Ok(SubmitOutcome { run_id, newly_submitted: false, job_id: active.job_id })
            }
            (Admission::Mismatch, _) => Err(Error::InputMismatch(run_id)),
            (Admission::Start | Admission::Duplicate, _) => {
                if facts.kv(&self.keys.outcome).is_some() {
                    changes.kv_delete(self.keys.outcome);
                }
                changes.extend(self.effects);
                changes.kv_put(self.keys.row, self.encoded_row);
                changes.enqueue_issued(self.row.job_id.clone(), self.request);
                Ok(SubmitOutcome { run_id, newly_submitted: true, job_id: self.row.job_id })
            }
        }
    }
}

impl<R, H> WorkflowRuntime<R, H> {
    /// Starts a run, or finds it active with the same input. The run, its first step and the submission's effects are
    /// durable on return, and so is whatever an answer of "active already" rests on.
    ///
    /// An ended run frees its id: submitting it again runs it again, with its old memos, and its last outcome is
    /// forgotten.
    ///
    /// # Errors
    /// [`Error::InputMismatch`] when the id is active with another input; [`Error::ReservedHeaderInSubmit`],
    /// [`Error::ReservedKvKey`] and [`Error::ReservedQueue`] for what only the runtime may use; [`Error::Queue`] with
    /// `TooLarge` for an input past 1 MiB or headers past 60 KiB, `HeaderTooLarge` for one past 8 KiB. On every error but
    /// an unconfirmed one ([`taquba::Error::NotConfirmed`]), nothing has changed.
    ///
    /// # Cancel safety
    /// Dropped before it returns, the run may or may not have started. Submit it again under the same id to find out.
    pub async fn submit(&self, spec: RunSpec) -> Result<SubmitOutcome> {
        let shared = &self.inner.shared;
        check_spec(&spec, &shared.name)?;
        let run_id = match &spec.run_id {
            Some(run_id) => run_id.clone(),
            None => RunId::new(shared.queue.next_job_id())?,
        };
        let submission = Submission::new(shared, &run_id, spec)?;
        let reads = submission.reads();
        shared
            .queue
            .decide(reads, move |facts, changes| submission.settle(facts, changes, run_id))
            .await?
    }
}

fn check_spec(spec: &RunSpec, queue: &str) -> Result<()> {
    check("run input", spec.input.len(), MAX_STEP_PAYLOAD)?;
    check_headers(spec.options.headers.keys())?;
    check("run headers", size_of_headers(&spec.options.headers), MAX_HEADERS_SIZE)?;
    check_effects(&spec.effects, queue)
}

fn size_of_headers(headers: &HashMap<String, String>) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len()).sum()
}
