//! The few calls that every scenario makes, as one trait over the systems under test.
//! Owns no system: `ours.rs` and `peer.rs` are the adapters, `adapter.rs` is what they share.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::tally::Tally;

/// Any failure of a system or of the bench itself; it ends the run.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

/// The queue that every scenario uses.
pub(crate) const QUEUE: &str = "bench";

/// How long an idle worker loop waits before it looks again; both systems also wake on an insert.
pub(crate) const WORKER_POLL: Duration = Duration::from_millis(10);

/// The flush interval a system is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Whatever the system does when nothing is said.
    Default,
    /// The least time between two flushes, in milliseconds.
    Millis(u64),
}

/// Jobs of the queue by state, once a scenario is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// Jobs that still wait, run or lie dead: everything enqueued and not completed.
    pub(crate) unfinished: u64,
}

/// A task queue under test, open on a memory store of its own.
pub(crate) trait System: Sized + Send + Sync + 'static {
    /// Opens an empty queue.
    fn open(flush: Flush) -> impl Future<Output = Result<Self, Fault>> + Send;

    /// One durable enqueue.
    fn enqueue(&self, payload: Vec<u8>) -> impl Future<Output = Result<(), Fault>> + Send;

    /// One durable batch; returns how many jobs the system says it took.
    fn enqueue_batch(
        &self,
        payloads: Vec<Vec<u8>>,
    ) -> impl Future<Output = Result<usize, Fault>> + Send;

    /// Runs the system's own worker loop until `stop`, with handlers that only count.
    fn run_workers(
        &self,
        workers: usize,
        tally: Arc<Tally>,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// What is still in the queue.
    fn left(&self) -> impl Future<Output = Result<Left, Fault>> + Send;
}
