//! Worker loops: they claim, run handlers, keep leases, settle, and drain. Callers of the public queue, nothing more.

mod attempt;
mod handle;
mod handler;
mod pool;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::effects::SettlementEffects;
use crate::error::Result;
use crate::queue::{LeaseHandle, Queue};
use crate::record::JobRecord;

pub use handle::WorkerHandle;
pub use handler::{ClaimHandler, Settlement};
pub use pool::{WorkerOptions, run_claim_handler, run_claim_handler_with};

/// Any error of a handler. [`PermanentFailure`] and [`FailWith`] inside it are understood.
pub type WorkerError = Box<dyn std::error::Error + Send + Sync>;

/// An error that no further attempt can mend: the job is dead-lettered at once.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct PermanentFailure {
    /// Why.
    pub reason: String,
}

impl PermanentFailure {
    /// Creates one.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// An error together with effects that apply if it dead-letters the job.
#[derive(Debug)]
pub struct FailWith {
    /// The error.
    pub error: WorkerError,
    /// The effects.
    pub effects: SettlementEffects,
}

impl FailWith {
    /// Creates one.
    #[must_use]
    pub fn new(error: impl Into<WorkerError>, effects: SettlementEffects) -> Self {
        Self { error: error.into(), effects }
    }
}

impl std::fmt::Display for FailWith {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for FailWith {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error.as_ref())
    }
}

/// Handles the jobs of a queue. Implement exactly one of the two methods; each defaults to the other.
///
/// A job is delivered at least once: a crash between the handler's side effects and the settlement runs it again.
pub trait Worker: Send + Sync {
    /// Handles one job. `Ok` completes it; an error retries it with backoff, or dead-letters it when it is out of
    /// attempts or the error is a [`PermanentFailure`]. A panic is a failed attempt with the panic's message.
    fn process(
        &self,
        job: &JobRecord,
        lease: &LeaseHandle,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send {
        async { self.process_with_effects(job, lease).await.map(drop) }
    }

    /// As [`process`](Self::process), with effects that commit together with the completion.
    fn process_with_effects(
        &self,
        job: &JobRecord,
        lease: &LeaseHandle,
    ) -> impl Future<Output = Result<SettlementEffects, WorkerError>> + Send {
        async { self.process(job, lease).await.map(|()| SettlementEffects::default()) }
    }
}

/// Works on a queue, one job at a time, until `shutdown` completes. Jobs are awaited, not polled for: `_poll` is taken
/// for compatibility and has no effect.
///
/// The lease is kept while the handler's future lives, for an hour at most. At shutdown the running job has 30 s to
/// finish; then its token fires and it is given back, without an attempt.
///
/// # Errors
/// [`Error::Closed`](crate::Error::Closed) when the store is closed or lost.
pub async fn run_worker<W: Worker, F: Future<Output = ()>>(
    queue: &Queue,
    name: &str,
    worker: &W,
    _poll: Duration,
    shutdown: F,
) -> Result<()> {
    pool::run_sequential(queue, name, &handler::Plain(worker), shutdown).await
}

/// Works on a queue, up to `concurrency` jobs at a time, until `shutdown` completes; as [`run_worker`]. `poll` is taken
/// for compatibility and has no effect.
///
/// # Errors
/// As [`run_worker`].
///
/// # Panics
/// If `concurrency` is zero.
pub async fn run_worker_concurrent<W: Worker + 'static, F: Future<Output = ()>>(
    queue: &Arc<Queue>,
    name: &str,
    worker: Arc<W>,
    concurrency: usize,
    poll: Duration,
    shutdown: F,
) -> Result<()> {
    let handler = Arc::new(handler::Shared(worker));
    run_claim_handler(queue, name, handler, concurrency, poll, shutdown).await
}
