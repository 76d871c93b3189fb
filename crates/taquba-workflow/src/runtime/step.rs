//! One attempt at a step, from claim to settlement: is it the run's current step, run it, turn its answer into the one
//! command that settles it.

use taquba::worker::Settlement;
use taquba::{Claim, LeaseHandle, SettlementEffects};

use super::Inner;
use super::delivery::{Delivery, KvReadHandle, Step};
use super::effects::EffectsHandle;
use super::end::StepSite;
use super::runner::{StepRunner, TerminalHook};
use crate::error::{Error, Result};
use crate::lifecycle::address::StepAddress;
use crate::lifecycle::outcome::{StepError, StepOutcome, Trigger};
use crate::lifecycle::settle::{AfterFailure, Ending, Plan, after_failure, plan, under_cancel};
use crate::store::changes::{EndCommit, NextCommit, Planned, StepCommit};
use crate::store::record::RunRow;

impl<R: StepRunner, H: TerminalHook> Inner<R, H> {
    /// Runs a claimed step and returns its settlement.
    pub(crate) async fn step(
        &self,
        claim: &Claim,
        lease: &LeaseHandle,
        address: StepAddress,
    ) -> Settlement {
        // The row is this attempt's licence to run. While the job is claimed, nothing but its own settlement can make
        // the row name another, so one read before the step is as good as one in its settlement.
        let row = match self.shared.row(&address.run_id).await {
            Ok(Some(row)) if row.job_id == claim.id => row,
            Ok(_) => {
                let run_id = &address.run_id;
                return dead_letter(format!("run {run_id} has ended or moved on without this job"));
            }
            Err(error) if error.is_of_the_run() => return dead_letter(error.to_string()),
            Err(error) => return nack(&error),
        };
        let site = StepSite::of(claim, address);
        if claim.cancel_requested {
            // Asked for in an earlier attempt, or between the claim and now: there is nothing left to do.
            let effects = SettlementEffects::default();
            return self.settle(&site, &row, Plan::End(Ending::cancelled()), effects).await;
        }
        let (answer, effects) = self.attempt(claim, lease, &site).await;
        self.settle(&site, &row, plan(answer, site.facts()), effects).await
    }

    /// Returns the settlement of a step that panicked.
    pub(crate) fn panicked_step(
        &self,
        claim: &Claim,
        address: StepAddress,
        message: &str,
    ) -> Settlement {
        let error = StepError::transient(format!("step panicked: {message}"));
        self.settle_failure(&StepSite::of(claim, address), error)
    }

    async fn attempt(
        &self,
        claim: &Claim,
        lease: &LeaseHandle,
        site: &StepSite,
    ) -> (Result<StepOutcome, StepError>, SettlementEffects) {
        let effects = EffectsHandle::detached();
        let step = Step {
            delivery: Delivery {
                run_id: site.run_id.clone(),
                headers: site.headers.clone(),
                job_id: claim.id.clone(),
                attempts: claim.attempts,
                max_attempts: claim.max_attempts,
                cancel_token: claim.cancel_token().child_token(),
                lease: lease.clone(),
                memo: self.shared.memos.new_memo(&site.run_id, site.step_number),
                run_memo: self.shared.memos.new_run_memo(&site.run_id),
                effects: effects.clone(),
                kv: KvReadHandle::new(self.shared.queue.view().clone()),
            },
            step_number: site.step_number,
            payload: claim.payload.clone(),
            signal: claim.wake_payload.clone(),
        };
        let open = effects.open_until_sealed();
        let answer = self.runner.run_step(&step).await;
        (answer, open.seal())
    }

    async fn settle(
        &self,
        site: &StepSite,
        row: &RunRow,
        plan: Plan,
        effects: SettlementEffects,
    ) -> Settlement {
        match self.prepare(site, row, plan, effects).await {
            Ok(commit) => commit_settlement(commit),
            // The result's object was not written, so the attempt failed after all.
            Err(error) => self.settle_failure(site, error.into()),
        }
    }

    /// Encodes what the plan leads to, and what takes its place if the commit finds another situation.
    async fn prepare(
        &self,
        site: &StepSite,
        row: &RunRow,
        plan: Plan,
        effects: SettlementEffects,
    ) -> Result<StepCommit> {
        let if_cancelled = self.end_if_cancelled(site, &plan)?;
        let if_key_taken = match &plan {
            Plan::Continue { when: Trigger::OnSignal { correlation_key, .. }, .. } => {
                Some(self.plain_end(site, &Ending::key_taken(correlation_key))?)
            }
            _ => None,
        };
        let planned = match plan {
            Plan::Retry { error } => Planned::Retry { error },
            Plan::Continue { payload, step_number, when } => {
                let row = row.at(step_number, self.shared.queue.next_job_id());
                let shape = site.shape(&self.shared.name);
                Planned::Next(NextCommit::new(&shape, &row, payload, when)?)
            }
            Plan::End(ending) => Planned::End(self.full_end(site, ending).await?),
        };
        let queue = self.shared.name.clone();
        Ok(StepCommit { queue, planned, if_cancelled, if_key_taken, effects })
    }

    fn settle_failure(&self, site: &StepSite, error: StepError) -> Settlement {
        let kept = error.message.clone();
        match self.prepare_failure(site, error) {
            Ok(commit) => commit_settlement(commit),
            Err(encoding) => dead_letter(format!("{kept}; and its settlement failed: {encoding}")),
        }
    }

    fn prepare_failure(&self, site: &StepSite, error: StepError) -> Result<StepCommit> {
        let planned = match after_failure(error, site.facts()) {
            AfterFailure::Retry { error } => Planned::Retry { error },
            AfterFailure::End(ending) => Planned::End(self.plain_end(site, &ending)?),
        };
        Ok(StepCommit {
            queue: self.shared.name.clone(),
            planned,
            if_cancelled: Some(self.plain_end(site, &Ending::cancelled())?),
            if_key_taken: None,
            effects: SettlementEffects::default(),
        })
    }

    fn end_if_cancelled(&self, site: &StepSite, plan: &Plan) -> Result<Option<EndCommit>> {
        under_cancel(plan).map(|ending| self.plain_end(site, &ending)).transpose()
    }
}

fn commit_settlement(commit: StepCommit) -> Settlement {
    let reads = commit.reads();
    Settlement::Decide {
        reads,
        decide: Box::new(move |facts, changes| commit.settle(facts, changes)),
    }
}

/// The settlement of a job that no other attempt would get further with.
pub(crate) fn dead_letter(reason: String) -> Settlement {
    Settlement::DeadLetter { reason, effects: SettlementEffects::default() }
}

/// The settlement of a job that another attempt may get further with.
pub(crate) fn nack(error: &Error) -> Settlement {
    Settlement::Nack { error: error.to_string(), effects: SettlementEffects::default() }
}
