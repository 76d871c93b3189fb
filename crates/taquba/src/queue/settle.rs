//! Ending claims. Every call here is durable when it returns, together with its effects; a claim settles once.

use std::time::Duration;

use super::{Claim, Queue};
use crate::decide::Verdict;
use crate::effects::SettlementEffects;
use crate::engine::Lane;
use crate::engine::prepare::size_of;
use crate::engine::request::{Op, Prepared};
use crate::env;
use crate::error::{Error, Result};
use crate::record::{EnqueueResult, NackOutcome};
use crate::telemetry::{self, Timed};

/// Pause before a settlement's uploads are tried again; doubles up to the longest.
const UPLOAD_PAUSE: Duration = Duration::from_millis(250);
const UPLOAD_PAUSE_MAX: Duration = Duration::from_secs(10);

impl Queue {
    /// Completes a claimed job. Durable on return.
    ///
    /// # Errors
    /// [`Error::ClaimLost`](crate::Error::ClaimLost) when the claim has ended, and nothing is changed;
    /// [`Error::NotConfirmed`](crate::Error::NotConfirmed); [`Error::Closed`](crate::Error::Closed).
    ///
    /// # Cancel safety
    /// Dropped after it was accepted, the settlement happens all the same.
    pub async fn ack(&self, claim: &Claim) -> Result<()> {
        self.ack_with(claim, SettlementEffects::default()).await.map(drop)
    }

    /// Completes a claimed job and applies effects in the same commit; one result per enqueue. Durable on return.
    ///
    /// # Errors
    /// As [`ack`](Self::ack); also what is wrong with the effects, and then the claim goes on.
    pub async fn ack_with(
        &self,
        claim: &Claim,
        effects: SettlementEffects,
    ) -> Result<Vec<EnqueueResult>> {
        self.settle_now(claim, Verdict::Ack, effects).await.map(results)
    }

    /// Fails the attempt: the job is tried again after the queue's backoff, or dead-lettered when out of attempts.
    /// `error` is kept up to 8 KiB. Durable on return.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn nack(&self, claim: &Claim, error: &str) -> Result<()> {
        self.nack_with(claim, error, SettlementEffects::default()).await.map(drop)
    }

    /// As [`nack`](Self::nack); the effects apply only if the job is dead-lettered. Durable on return.
    ///
    /// # Errors
    /// As [`ack_with`](Self::ack_with).
    pub async fn nack_with(
        &self,
        claim: &Claim,
        error: &str,
        effects: SettlementEffects,
    ) -> Result<NackOutcome> {
        self.settle_now(claim, Verdict::Nack(error.to_owned()), effects).await
    }

    /// Dead-letters a claimed job at once, whatever attempts are left. Durable on return.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn dead_letter(&self, claim: &Claim, reason: &str) -> Result<()> {
        self.dead_letter_with(claim, reason, SettlementEffects::default()).await.map(drop)
    }

    /// As [`dead_letter`](Self::dead_letter), with effects in the same commit. Durable on return.
    ///
    /// # Errors
    /// As [`ack_with`](Self::ack_with).
    pub async fn dead_letter_with(
        &self,
        claim: &Claim,
        reason: &str,
        effects: SettlementEffects,
    ) -> Result<Vec<EnqueueResult>> {
        self.settle_now(claim, Verdict::DeadLetter(reason.to_owned()), effects).await.map(results)
    }

    async fn settle_now(
        &self,
        claim: &Claim,
        verdict: Verdict,
        effects: SettlementEffects,
    ) -> Result<NackOutcome> {
        let timed = timed(claim, &verdict);
        let mut effects = self.shared.configs.effects(effects)?;
        self.shared.upload(&mut effects).await?;
        let (bytes, claim) = (size_of(&effects), claim.number());
        let op = |reply| Op::Settle { claim, verdict, effects, reply };
        let settled = self.shared.call(Lane::Settle, bytes, op).await?;
        timed.into_iter().for_each(Timed::end);
        Ok(settled)
    }

    /// As the calls above, but waits an outage of the store out instead of answering that it is not confirmed.
    pub(crate) async fn settle_patiently(
        &self,
        claim: &Claim,
        verdict: Verdict,
        effects: SettlementEffects,
    ) -> Result<NackOutcome> {
        let timed = timed(claim, &verdict);
        let mut effects = self.shared.configs.effects(effects)?;
        self.upload_patiently(claim, &mut effects).await?;
        let (bytes, claim) = (size_of(&effects), claim.number());
        let op = |reply| Op::Settle { claim, verdict, effects, reply };
        let settled = self.shared.call_patiently(bytes, op).await?;
        timed.into_iter().for_each(Timed::end);
        Ok(settled)
    }

    /// Uploads what a settlement brings, waiting an outage of the payload store out as long as the lease lasts.
    async fn upload_patiently(&self, claim: &Claim, effects: &mut Prepared) -> Result<()> {
        let mut pause = UPLOAD_PAUSE;
        loop {
            match self.shared.upload(effects).await {
                Err(error @ Error::PayloadStore(_)) => {
                    if !self.shared.leases.lives(claim.number()) {
                        return Err(Error::ClaimLost);
                    }
                    tracing::warn!(job = %claim.id, %error, "a settlement waits for the payload store");
                }
                done => return done,
            }
            env::sleep(pause).await;
            pause = (pause * 2).min(UPLOAD_PAUSE_MAX);
        }
    }

    /// Gives a claim back: as if the job had not been claimed. No attempt is charged.
    pub(crate) fn give_back(&self, claim: &Claim) -> Result<()> {
        self.shared.post(crate::engine::request::Request::Release(vec![claim.number()]))
    }
}

/// Acknowledgements are timed, other settlements are not.
fn timed(claim: &Claim, verdict: &Verdict) -> Option<Timed> {
    let is_ack = matches!(verdict, Verdict::Ack);
    is_ack.then(|| Timed::start(telemetry::ACK_SECONDS, &claim.queue))
}

fn results(outcome: NackOutcome) -> Vec<EnqueueResult> {
    match outcome {
        NackOutcome::Retried => Vec::new(),
        NackOutcome::DeadLettered(results) => results,
    }
}
