//! What a worker loop runs on each claim, and how the claim is to end.

use std::future::Future;
use std::sync::Arc;

use super::{FailWith, PermanentFailure, Worker, WorkerError};
use crate::decide::{DecideFn, Reads};
use crate::effects::SettlementEffects;
use crate::queue::{Claim, LeaseHandle};

/// How a handled claim ends.
pub enum Settlement {
    /// The job is done.
    Ack(SettlementEffects),
    /// The attempt failed; effects apply only if that dead-letters the job.
    Nack {
        /// Why.
        error: String,
        /// See above.
        effects: SettlementEffects,
    },
    /// The job is given up.
    DeadLetter {
        /// Why.
        reason: String,
        /// What commits with it.
        effects: SettlementEffects,
    },
    /// A pure function decides at the commit, on facts that nothing can change in between; it must say how the claim
    /// ends. See [`Queue::settle_decided`](crate::Queue::settle_decided).
    Decide {
        /// What it needs to know.
        reads: Reads,
        /// The function.
        decide: DecideFn,
    },
}

impl std::fmt::Debug for Settlement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ack(_) => "Ack",
            Self::Nack { .. } => "Nack",
            Self::DeadLetter { .. } => "DeadLetter",
            Self::Decide { .. } => "Decide",
        })
    }
}

/// Handles claims and says how each ends: the general form under [`Worker`].
pub trait ClaimHandler: Send + Sync + 'static {
    /// Handles one claim.
    fn handle(&self, claim: &Claim, lease: &LeaseHandle)
    -> impl Future<Output = Settlement> + Send;

    /// Says how a claim ends whose handler panicked. Default: the attempt failed, with the panic's message.
    fn panicked(&self, claim: &Claim, message: &str) -> Settlement {
        let _ = claim;
        panic_is_failure(message)
    }
}

pub(crate) fn panic_is_failure(message: &str) -> Settlement {
    Settlement::Nack {
        error: format!("handler panicked: {message}"),
        effects: SettlementEffects::default(),
    }
}

/// What the loops need of a handler; the two adapters below give it to any [`Worker`].
pub(super) trait Handler: Send + Sync {
    fn handle(&self, claim: &Claim, lease: &LeaseHandle)
    -> impl Future<Output = Settlement> + Send;
    fn panicked(&self, claim: &Claim, message: &str) -> Settlement;
}

impl<H: ClaimHandler> Handler for H {
    fn handle(
        &self,
        claim: &Claim,
        lease: &LeaseHandle,
    ) -> impl Future<Output = Settlement> + Send {
        ClaimHandler::handle(self, claim, lease)
    }

    fn panicked(&self, claim: &Claim, message: &str) -> Settlement {
        ClaimHandler::panicked(self, claim, message)
    }
}

/// A worker by reference.
pub(super) struct Plain<'a, W>(pub(super) &'a W);

impl<W: Worker> Handler for Plain<'_, W> {
    async fn handle(&self, claim: &Claim, lease: &LeaseHandle) -> Settlement {
        settlement(self.0.process_with_effects(claim.job(), lease).await)
    }

    fn panicked(&self, _claim: &Claim, message: &str) -> Settlement {
        panic_is_failure(message)
    }
}

/// A shared worker.
pub(super) struct Shared<W>(pub(super) Arc<W>);

impl<W: Worker + 'static> ClaimHandler for Shared<W> {
    async fn handle(&self, claim: &Claim, lease: &LeaseHandle) -> Settlement {
        settlement(self.0.process_with_effects(claim.job(), lease).await)
    }
}

/// What a worker's result means. Effects come off first, so that what they wrap still counts as permanent.
fn settlement(result: Result<SettlementEffects, WorkerError>) -> Settlement {
    let error = match result {
        Ok(effects) => return Settlement::Ack(effects),
        Err(error) => error,
    };
    let (error, effects) = match error.downcast::<FailWith>() {
        Ok(fail) => (fail.error, fail.effects),
        Err(error) => (error, SettlementEffects::default()),
    };
    if error.is::<PermanentFailure>() {
        Settlement::DeadLetter { reason: error.to_string(), effects }
    } else {
        Settlement::Nack { error: error.to_string(), effects }
    }
}
