//! Reading and writing in one commit, by a pure function of the caller.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Claim, Queue};
use crate::decide::{Changes, Facts, Reads};
use crate::engine::Lane;
use crate::engine::request::{Decision, Op, Reply};
use crate::error::Result;
use crate::state::leases::ClaimNo;

type Outcome<T> = std::result::Result<T, Box<dyn Any + Send>>;

impl Queue {
    /// Reads what `reads` names, calls `f` once with what was found, and commits the changes that `f` made: nothing
    /// else changes any of it in between, so there is nothing to retry. Durable on return, also when `f` changed
    /// nothing.
    ///
    /// `f` runs inside the engine's loop: it should compute in microseconds and must not block. If it panics, nothing
    /// is changed and the panic goes on in the caller.
    ///
    /// # Errors
    /// What is wrong with the changes, and then none of them is applied;
    /// [`Error::NotConfirmed`](crate::Error::NotConfirmed); [`Error::Closed`](crate::Error::Closed).
    pub async fn decide<T, F>(&self, reads: Reads, f: F) -> Result<T>
    where
        F: FnOnce(&Facts, &mut Changes) -> T + Send + 'static,
        T: Send + 'static,
    {
        let op = |reply| decide_op(None, reads, f, reply);
        unwind(self.shared.call(Lane::Intake, 0, op).await?)
    }

    /// As [`decide`](Self::decide), where `f` also says how `claim` ends: exactly one of
    /// [`Changes::ack`], [`Changes::nack`] and [`Changes::dead_letter`]. [`Facts::cancel_requested`] is exact.
    ///
    /// # Errors
    /// As [`decide`](Self::decide); also [`Error::ClaimLost`](crate::Error::ClaimLost) and
    /// [`Error::Undecided`](crate::Error::Undecided).
    pub async fn settle_decided<T, F>(&self, claim: &Claim, reads: Reads, f: F) -> Result<T>
    where
        F: FnOnce(&Facts, &mut Changes) -> T + Send + 'static,
        T: Send + 'static,
    {
        let op = |reply| decide_op(Some(claim.number()), reads, f, reply);
        unwind(self.shared.call(Lane::Settle, 0, op).await?)
    }

    /// As [`settle_decided`](Self::settle_decided), but waits an outage of the store out.
    pub(crate) async fn settle_decided_patiently(
        &self,
        claim: &Claim,
        reads: Reads,
        f: impl FnOnce(&Facts, &mut Changes) + Send + 'static,
    ) -> Result<()> {
        let op = |reply| decide_op(Some(claim.number()), reads, f, reply);
        unwind(self.shared.call_patiently(0, op).await?)
    }
}

fn decide_op<T: Send + 'static>(
    claim: Option<ClaimNo>,
    reads: Reads,
    f: impl FnOnce(&Facts, &mut Changes) -> T + Send + 'static,
    reply: Reply<Outcome<T>>,
) -> Op {
    let slot = Arc::new(Mutex::new(None));
    let filled = Arc::clone(&slot);
    let run = Box::new(move |facts: &Facts, changes: &mut Changes| {
        let outcome = catch_unwind(AssertUnwindSafe(|| f(facts, &mut *changes)));
        if outcome.is_err() {
            *changes = Changes::default();
        }
        *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    });
    let answer = Box::new(move |refused| {
        let outcome = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let value = match (refused, outcome) {
            // A panic on a claim shows as undecided; the panic is the better news.
            (_, Some(Err(panic))) => Ok(Err(panic)),
            (Some(error), _) => Err(error),
            (None, Some(outcome)) => Ok(outcome),
            (None, None) => return,
        };
        // A caller that went away does not need its answer.
        drop(reply.send(value));
    });
    Op::Decide { claim, reads, decide: Decision { run, answer } }
}

fn unwind<T>(outcome: Outcome<T>) -> Result<T> {
    match outcome {
        Ok(value) => Ok(value),
        Err(panic) => resume_unwind(panic),
    }
}
