//! The shell: runs steps, and brings what `lifecycle` decides and `store` encodes to the queue, one command each. No
//! retry loops, no locks around a decision, no timers of its own.

pub(crate) mod builder;
pub(crate) mod cancel;
pub(crate) mod delivery;
pub(crate) mod effects;
pub(crate) mod end;
pub(crate) mod notify;
pub(crate) mod reconcile;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod signal;
pub(crate) mod step;
pub(crate) mod submit;
pub(crate) mod view;
pub(crate) mod wait;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use taquba::{Clock, Queue};

use crate::error::Result;
use crate::lifecycle::run::{RunOutcome, RunStatus};
use crate::run_id::RunId;
use crate::store::keys::RunKeys;
use crate::store::memo::MemoStore;
use crate::store::record::RunRow;
use builder::WorkflowRuntimeBuilder;
use view::WorkflowView;

/// Runs durable workflows on one queue: submits runs, runs their steps, tells of their ends.
///
/// A runtime is cheap to clone; clones share everything. Several runtimes, of one process, may serve one queue. Run
/// ids and signal keys belong to the queue: runtimes of other queues of the store never see them.
///
/// ```
/// # use std::sync::Arc;
/// # use taquba::{Queue, object_store::{ObjectStore, memory::InMemory}};
/// use taquba_workflow::{
///     NoopTerminalHook, RunSpec, Step, StepError, StepOutcome, StepRunner, WorkflowRuntime,
/// };
///
/// struct Shout;
///
/// impl StepRunner for Shout {
///     async fn run_step(&self, step: &Step) -> Result<StepOutcome, StepError> {
///         Ok(match step.step_number {
///             0 => StepOutcome::continue_now(step.payload.to_ascii_uppercase()),
///             _ => StepOutcome::Succeed { result: step.payload.clone() },
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
/// let queue = Arc::new(Queue::open(store.clone(), "demo").await?);
/// let runtime = WorkflowRuntime::builder(queue, store, Shout, NoopTerminalHook).build();
/// let worker = runtime.spawn(std::future::pending());
///
/// let run = runtime.submit(RunSpec { input: b"hello".to_vec(), ..Default::default() }).await?;
/// let end = runtime.wait(&run.run_id).await?;
/// assert_eq!(end.outcome.and_then(|outcome| outcome.result).as_deref(), Some(&b"HELLO"[..]));
/// worker.shutdown().await?;
/// # Ok(())
/// # }
/// ```
pub struct WorkflowRuntime<R, H> {
    inner: Arc<Inner<R, H>>,
}

impl<R, H> Clone for WorkflowRuntime<R, H> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R, H> fmt::Debug for WorkflowRuntime<R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowRuntime")
            .field("queue", &self.inner.shared.name)
            .finish_non_exhaustive()
    }
}

/// A runtime's parts: what is shared with reads, and what the user wrote.
pub(crate) struct Inner<R, H> {
    pub(crate) shared: Shared,
    pub(crate) runner: R,
    pub(crate) hook: H,
}

/// What a runtime works with, whatever it runs.
pub(crate) struct Shared {
    pub(crate) queue: Arc<Queue>,
    /// The queue's name.
    pub(crate) name: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memos: MemoStore,
    pub(crate) view: WorkflowView,
    pub(crate) max_concurrent_steps: usize,
    pub(crate) poll_interval: Duration,
}

impl Shared {
    pub(crate) fn keys(&self, run_id: &RunId) -> RunKeys {
        RunKeys::new(&self.name, run_id)
    }

    /// The row of an active run.
    pub(crate) async fn row(&self, run_id: &RunId) -> Result<Option<RunRow>> {
        self.view.row(run_id).await
    }
}

impl<R, H> WorkflowRuntime<R, H> {
    /// Begins a runtime on a queue, with the object store that memos and large results go to, and what the user wrote:
    /// the runner of steps and the hook at a run's end.
    pub fn builder(
        queue: Arc<Queue>,
        store: Arc<dyn taquba::object_store::ObjectStore>,
        runner: R,
        hook: H,
    ) -> WorkflowRuntimeBuilder<R, H> {
        WorkflowRuntimeBuilder::new(queue, store, runner, hook)
    }

    /// Returns the read side, which needs neither runner nor hook.
    #[must_use]
    pub fn view(&self) -> &WorkflowView {
        &self.inner.shared.view
    }

    /// Returns where a run stands; `None` if the queue knows no run of this id. A read, as
    /// [`WorkflowView::status`].
    ///
    /// # Errors
    /// As [`WorkflowView::status`].
    pub async fn status(&self, run_id: &RunId) -> Result<Option<RunStatus>> {
        self.view().status(run_id).await
    }

    /// Returns how a run ended and what it produced. A read, as [`WorkflowView::outcome`].
    ///
    /// # Errors
    /// As [`WorkflowView::outcome`].
    pub async fn outcome(&self, run_id: &RunId) -> Result<Option<RunOutcome>> {
        self.view().outcome(run_id).await
    }
}
