//! The runtime at work: the queue's worker loop over steps and notifications, with reconciliation beside it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use taquba::worker::{ClaimHandler, Settlement, run_claim_handler};
use taquba::{Claim, LeaseHandle, SettlementEffects, WorkerHandle};

use super::runner::{StepRunner, TerminalHook};
use super::step::dead_letter;
use super::{Inner, WorkflowRuntime};
use crate::error::Result;
use crate::lifecycle::address::Role;

/// The handle of a spawned runtime: shut it down, or wait for its end.
pub type RunnerHandle = WorkerHandle<Result<()>>;

/// What the worker loop calls for each job of the queue.
struct Handler<R, H> {
    inner: Arc<Inner<R, H>>,
}

impl<R, H> ClaimHandler for Handler<R, H>
where
    R: StepRunner + 'static,
    H: TerminalHook + 'static,
{
    async fn handle(&self, claim: &Claim, lease: &LeaseHandle) -> Settlement {
        match Role::of(&claim.headers) {
            Ok(Role::Step(address)) => self.inner.step(claim, lease, address).await,
            Ok(Role::Notification) => self.inner.notify(claim).await,
            Err(error) => dead_letter(error.to_string()),
        }
    }

    fn panicked(&self, claim: &Claim, message: &str) -> Settlement {
        match Role::of(&claim.headers) {
            Ok(Role::Step(address)) => self.inner.panicked_step(claim, address, message),
            Ok(Role::Notification) => Settlement::Nack {
                error: format!("terminal hook panicked: {message}"),
                effects: SettlementEffects::default(),
            },
            Err(error) => dead_letter(error.to_string()),
        }
    }
}

impl<R, H> WorkflowRuntime<R, H>
where
    R: StepRunner + 'static,
    H: TerminalHook + 'static,
{
    /// Runs steps and notifications until `shutdown` completes, then lets those that run finish and returns. Past the
    /// queue's drain limit (30 s) their tokens fire, and what still runs is given back without an attempt. What waits
    /// is left for the next process.
    ///
    /// # Errors
    /// [`Error::Queue`](crate::Error::Queue) when the store closes or another process takes it over; the tokens of
    /// running steps have fired then.
    ///
    /// # Cancel safety
    /// Dropped, running steps are abandoned as in a crash: each runs again, which costs it an attempt.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let shared = &self.inner.shared;
        let deaths = shared.queue.engine_deaths(&shared.name);
        let handler = Arc::new(Handler { inner: Arc::clone(&self.inner) });
        let work = run_claim_handler(
            &shared.queue,
            &shared.name,
            handler,
            shared.max_concurrent_steps,
            shared.poll_interval,
            shutdown,
        );
        match select(pin!(work), pin!(self.inner.reconcile(deaths))).await {
            Either::Left((ended, _)) => Ok(ended?),
            Either::Right((never, _)) => match never {},
        }
    }

    /// Runs as [`run`](Self::run) does, in a task of its own. Dropping the handle does not stop it.
    pub fn spawn(&self, shutdown: impl Future<Output = ()> + Send + 'static) -> RunnerHandle {
        let runtime = self.clone();
        WorkerHandle::spawn(shutdown, move |stop| async move {
            runtime.run(stop.cancelled_owned()).await
        })
    }
}
