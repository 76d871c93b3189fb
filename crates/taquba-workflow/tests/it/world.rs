//! What the tests stand on: a bucket and a clock that outlive processes, a runner and a hook made of closures, and
//! waiting for something to be so.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taquba::object_store::{ObjectStore, memory::InMemory};
use taquba::{Clock, JobRecord, JobStatus, MockClock, OpenOptions, Queue, QueueConfig};
use taquba_workflow::{
    RunId, RunOutcome, RunSpec, RunState, Step, StepError, StepOutcome, StepRunner,
    TerminalEffects, TerminalHook, WorkflowRuntime, WorkflowRuntimeBuilder,
};

pub(crate) const STEPS: &str = "workflow-steps";
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) type Answer = Result<StepOutcome, StepError>;
type Fut<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A bucket and a clock.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) bucket: Arc<dyn ObjectStore>,
    pub(crate) clock: MockClock,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { bucket: Arc::new(InMemory::new()), clock: MockClock::new(1_000_000) }
    }

    /// Opens the queue as a new process would. Failed attempts come back at once.
    pub(crate) async fn open(&self) -> Arc<Queue> {
        self.try_open().await.unwrap()
    }

    /// As [`open`](Self::open), where the bucket may fail.
    pub(crate) async fn try_open(&self) -> taquba::Result<Arc<Queue>> {
        let at_once = QueueConfig::default().retry_backoff_base(Duration::ZERO);
        self.open_with(at_once).await
    }

    pub(crate) async fn open_with(&self, config: QueueConfig) -> taquba::Result<Arc<Queue>> {
        let options = OpenOptions {
            default_queue_config: config,
            ..OpenOptions::default()
                .clock(Arc::new(self.clock.clone()) as Arc<dyn Clock>)
                .fence_check_interval(Duration::from_millis(200))
                .deferred_flush_max(Duration::from_millis(1))
        };
        let opened = Queue::open_with_options(self.bucket.clone(), "q", options).await;
        opened.map(Arc::new)
    }

    pub(crate) fn builder<H>(
        &self,
        queue: &Arc<Queue>,
        script: Script,
        hook: H,
    ) -> WorkflowRuntimeBuilder<Script, H> {
        WorkflowRuntime::builder(Arc::clone(queue), self.bucket.clone(), script, hook)
    }

    pub(crate) fn runtime<H>(
        &self,
        queue: &Arc<Queue>,
        script: Script,
        hook: H,
    ) -> WorkflowRuntime<Script, H> {
        self.builder(queue, script, hook).build()
    }
}

/// A runner made of a closure.
#[derive(Clone)]
pub(crate) struct Script(Arc<dyn Fn(Step) -> Fut<Answer> + Send + Sync>);

impl Script {
    pub(crate) fn new<F, T>(f: F) -> Self
    where
        F: Fn(Step) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        Self(Arc::new(move |step| Box::pin(f(step))))
    }

    /// A runner that needs no waiting.
    pub(crate) fn pure(f: impl Fn(&Step) -> Answer + Send + Sync + 'static) -> Self {
        let f = Arc::new(f);
        Self::new(move |step| {
            let f = Arc::clone(&f);
            async move { f(&step) }
        })
    }

    /// A runner that is never to be called.
    pub(crate) fn unused() -> Self {
        Self::pure(|step| panic!("step {} of {} was run", step.step_number, step.run_id))
    }
}

impl StepRunner for Script {
    async fn run_step(&self, step: &Step) -> Answer {
        (self.0)(step.clone()).await
    }
}

/// A list that grows and can be waited for.
#[derive(Debug)]
pub(crate) struct Log<T>(Arc<(Mutex<Vec<T>>, tokio::sync::Notify)>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Mutex::new(Vec::new()), tokio::sync::Notify::new())))
    }

    pub(crate) fn push(&self, item: T) {
        self.0.0.lock().unwrap().push(item);
        self.0.1.notify_waiters();
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.0.lock().unwrap().clone()
    }

    /// Waits until the list has at least `count` items, and returns them.
    pub(crate) async fn reach(&self, count: usize) -> Vec<T> {
        loop {
            let grown = self.0.1.notified();
            let items = self.all();
            if items.len() >= count {
                return items;
            }
            within(grown).await;
        }
    }
}

type HookAnswer = dyn Fn(usize, &TerminalEffects) -> Result<(), StepError> + Send + Sync;

/// A hook that writes down what it is told, and answers as it is bid.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) outcomes: Log<RunOutcome>,
    answer: Arc<HookAnswer>,
}

impl Told {
    pub(crate) fn new() -> Self {
        Self::answering(|_, _| Ok(()))
    }

    /// The closure gets the number of the call, from 0.
    pub(crate) fn answering(
        f: impl Fn(usize, &TerminalEffects) -> Result<(), StepError> + Send + Sync + 'static,
    ) -> Self {
        Self { outcomes: Log::new(), answer: Arc::new(f) }
    }
}

impl TerminalHook for Told {
    async fn on_termination(
        &self,
        outcome: &RunOutcome,
        effects: &TerminalEffects,
    ) -> Result<(), StepError> {
        let call = self.outcomes.all().len();
        self.outcomes.push(outcome.clone());
        (self.answer)(call, effects)
    }
}

/// A place where steps wait until a test lets them go on.
#[derive(Clone)]
pub(crate) struct Gate(Arc<tokio::sync::Semaphore>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(tokio::sync::Semaphore::new(0)))
    }

    pub(crate) fn let_one_pass(&self) {
        self.0.add_permits(1);
    }

    pub(crate) async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}

pub(crate) fn run_id(id: &str) -> RunId {
    RunId::new(id).unwrap()
}

pub(crate) fn spec(id: &str, input: &str) -> RunSpec {
    RunSpec { run_id: Some(run_id(id)), input: input.into(), ..Default::default() }
}

pub(crate) fn next(payload: &str) -> Answer {
    Ok(StepOutcome::continue_now(payload.into()))
}

pub(crate) fn succeed(result: &[u8]) -> Answer {
    Ok(StepOutcome::Succeed { result: result.to_vec() })
}

/// The outcome of a step that waits `MINUTE` for a signal.
pub(crate) fn wait_for(key: &str) -> Answer {
    Ok(StepOutcome::continue_on_signal(b"after the wait".to_vec(), key, MINUTE))
}

/// Bounds a wait that should be short. A test that needs longer is stuck.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    #[expect(
        clippy::disallowed_methods,
        reason = "a stuck test must end; nothing is asserted on time"
    )]
    let bounded = tokio::time::timeout(Duration::from_secs(20), future);
    bounded.await.expect("stuck for 20 s")
}

/// Waits until `check` gives something, looking every few milliseconds.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(check: impl Fn() -> F) -> T {
    within(async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "between two looks, where nothing notifies"
            )]
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

/// The jobs of the steps' queue in a state.
pub(crate) async fn jobs(queue: &Queue, status: JobStatus) -> Vec<JobRecord> {
    queue.view().list_jobs(STEPS, status, None, 100).await.unwrap().jobs
}

/// Waits until a run's current job waits for a time or a signal, and returns the job.
pub(crate) async fn scheduled(queue: &Queue, run: &str) -> JobRecord {
    eventually(|| async {
        let jobs = jobs(queue, JobStatus::Scheduled).await;
        jobs.into_iter().find(|job| job.headers.get("workflow.run_id").is_some_and(|id| id == run))
    })
    .await
}

/// Waits until a run is in a state.
pub(crate) async fn state<R, H>(
    runtime: &WorkflowRuntime<R, H>,
    run: &str,
    is: impl Fn(&RunState) -> bool,
) {
    eventually(|| async {
        let status = runtime.status(&run_id(run)).await.unwrap();
        status.filter(|status| is(&status.state))
    })
    .await;
}

/// Waits until the steps' queue holds no job that still has to do something.
pub(crate) async fn quiet(queue: &Queue) {
    eventually(|| async {
        let stats = queue.view().stats(STEPS).await.unwrap();
        (stats.pending == 0 && stats.claimed == 0 && stats.scheduled == 0).then_some(())
    })
    .await;
}

/// Makes all that has happened durable, claims included: they are held back for a moment, and a process that dies right
/// after one has not used up the attempt.
pub(crate) async fn make_durable(queue: &Queue) {
    #[expect(
        clippy::disallowed_methods,
        reason = "longer than claims are held back here; what follows stores what is overdue"
    )]
    tokio::time::sleep(Duration::from_millis(5)).await;
    queue.kv_put(b"mark", b"").await.unwrap();
}

/// A process with a runtime of its own, that can be killed at any moment.
pub(crate) struct Process {
    tokio: Option<tokio::runtime::Runtime>,
}

impl Process {
    /// Starts a process that opens the bucket and runs steps.
    pub(crate) async fn start<H: TerminalHook + Clone + 'static>(
        world: &World,
        script: Script,
        hook: H,
    ) -> (Self, Arc<Queue>, WorkflowRuntime<Script, H>) {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let at = world.clone();
        let opened = tokio.spawn(async move {
            let queue = at.open().await;
            let runtime = at.runtime(&queue, script, hook);
            drop(runtime.spawn(std::future::pending()));
            (queue, runtime)
        });
        let (queue, runtime) = within(opened).await.unwrap();
        (Self { tokio: Some(tokio) }, queue, runtime)
    }

    /// Stops everything at once and waits until nothing of it moves any more. Nothing is closed, nothing is flushed:
    /// what a test has only seen in the process's memory may be lost, see [`make_durable`].
    pub(crate) async fn kill(mut self) {
        let Some(tokio) = self.tokio.take() else {
            return;
        };
        let stop = move || tokio.shutdown_timeout(Duration::from_secs(10));
        tokio::task::spawn_blocking(stop).await.unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
    }
}
