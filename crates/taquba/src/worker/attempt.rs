//! One claim from its handler to its settlement.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;

use super::handler::{Handler, Settlement, panic_is_failure};
use crate::decide::Verdict;
use crate::effects::SettlementEffects;
use crate::error::{Error, Result};
use crate::queue::{Claim, Queue};

/// Runs the handler and settles what it says. An error means that the loop cannot go on.
pub(super) async fn run<H: Handler>(
    queue: &Queue,
    handler: &H,
    claim: &Claim,
    max_run: Duration,
) -> Result<()> {
    let settlement = handle(queue, handler, claim, max_run).await;
    settle(queue, claim, settlement).await
}

/// Runs the handler. Its claim is kept exactly as long as its future lives.
pub(super) async fn handle<H: Handler>(
    queue: &Queue,
    handler: &H,
    claim: &Claim,
    max_run: Duration,
) -> Settlement {
    let lease = queue.lease_handle(claim);
    let _keep = queue.keep(claim.number(), max_run, queue.queue_lease_duration(&claim.queue));
    let handled = AssertUnwindSafe(handler.handle(claim, &lease)).catch_unwind().await;
    handled.unwrap_or_else(|panic| {
        let message = panic_message(panic.as_ref());
        tracing::error!(job = %claim.id, queue = %claim.queue, message, "handler panicked");
        let verdict = || handler.panicked(claim, message);
        // A handler that panics about its panic is only a failed attempt.
        std::panic::catch_unwind(AssertUnwindSafe(verdict))
            .unwrap_or_else(|_| panic_is_failure(message))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

/// Settles a claim as its handler said.
pub(super) async fn settle(queue: &Queue, claim: &Claim, settlement: Settlement) -> Result<()> {
    let settled = match settlement {
        Settlement::Ack(effects) => {
            queue.settle_patiently(claim, Verdict::Ack, effects).await.map(drop)
        }
        Settlement::Nack { error, effects } => {
            queue.settle_patiently(claim, Verdict::Nack(error), effects).await.map(drop)
        }
        Settlement::DeadLetter { reason, effects } => {
            queue.settle_patiently(claim, Verdict::DeadLetter(reason), effects).await.map(drop)
        }
        Settlement::Decide { reads, decide } => {
            queue.settle_decided_patiently(claim, reads, decide).await
        }
    };
    match settled {
        Ok(()) => Ok(()),
        Err(error @ Error::Closed(_)) => Err(error),
        Err(Error::ClaimLost) => {
            tracing::warn!(job = %claim.id, queue = %claim.queue,
                "the claim ended before its handler did; another attempt owns the job");
            Ok(())
        }
        Err(refused) => fail(queue, claim, &refused).await,
    }
}

/// What the handler wants to commit is refused (an oversize value, a duplicate id): its attempt failed, for that
/// reason. Leaving the claim to its lease would hide it.
async fn fail(queue: &Queue, claim: &Claim, refused: &Error) -> Result<()> {
    tracing::error!(job = %claim.id, queue = %claim.queue, error = %refused, "settlement refused");
    let error = Verdict::Refused(format!("settlement refused: {refused}"));
    match queue.settle_patiently(claim, error, SettlementEffects::default()).await {
        Err(error @ Error::Closed(_)) => Err(error),
        Err(error) => {
            tracing::warn!(job = %claim.id, %error, "the failed attempt could not be recorded");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}
