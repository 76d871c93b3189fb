//! How a runtime is set up: its settings, their defaults, and the one place that makes one. No behaviour.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::ObjectStore;
use taquba::{Clock, Queue};

use super::view::WorkflowView;
use super::{Inner, Shared, WorkflowRuntime};
use crate::store::memo::MemoStore;

/// The queue of runtimes and views that name none.
pub(crate) const DEFAULT_QUEUE: &str = "workflow-steps";
const DEFAULT_CONCURRENCY: usize = 16;
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Sets up a [`WorkflowRuntime`]; made by [`WorkflowRuntime::builder`].
#[must_use]
pub struct WorkflowRuntimeBuilder<R, H> {
    queue: Arc<Queue>,
    store: Arc<dyn ObjectStore>,
    runner: R,
    hook: H,
    queue_name: String,
    memo_prefix: Option<String>,
    max_concurrent_steps: usize,
    poll_interval: Duration,
    clock: Option<Arc<dyn Clock>>,
}

impl<R, H> fmt::Debug for WorkflowRuntimeBuilder<R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowRuntimeBuilder")
            .field("queue_name", &self.queue_name)
            .field("memo_prefix", &self.memo_prefix)
            .field("max_concurrent_steps", &self.max_concurrent_steps)
            .field("poll_interval", &self.poll_interval)
            .finish_non_exhaustive()
    }
}

impl<R, H> WorkflowRuntimeBuilder<R, H> {
    pub(crate) fn new(queue: Arc<Queue>, store: Arc<dyn ObjectStore>, runner: R, hook: H) -> Self {
        Self {
            queue,
            store,
            runner,
            hook,
            queue_name: DEFAULT_QUEUE.to_owned(),
            memo_prefix: None,
            max_concurrent_steps: DEFAULT_CONCURRENCY,
            poll_interval: DEFAULT_POLL_INTERVAL,
            clock: None,
        }
    }

    /// Sets the queue that steps and notifications are jobs of; nothing else may enqueue to it. Default
    /// `workflow-steps`. Its [`QueueConfig`](taquba::QueueConfig) gives attempts, backoff and retention.
    pub fn queue_name(mut self, name: impl Into<String>) -> Self {
        self.queue_name = name.into();
        self
    }

    /// Sets the path in the object store under which memos and large results go. Default `{queue name}-memo`, so that
    /// runtimes of different queues share nothing.
    pub fn memo_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.memo_prefix = Some(prefix.into());
        self
    }

    /// Sets how many steps run at the same time. Default 16.
    ///
    /// # Panics
    /// When 0.
    pub fn max_concurrent_steps(mut self, steps: usize) -> Self {
        assert!(steps > 0, "max_concurrent_steps must be at least 1");
        self.max_concurrent_steps = steps;
        self
    }

    /// Sets how long the runtime waits before it tries again what the store refused, outside of steps. Default 250 ms.
    /// Nothing is polled for: steps, timers, signals and cancels come by notification.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Sets the source of the times in records. Default: the queue's clock, which also judges every delay and
    /// timeout, whatever is set here.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Makes the runtime. It does nothing until something is called on it.
    #[must_use]
    pub fn build(self) -> WorkflowRuntime<R, H> {
        let memos = match self.memo_prefix {
            Some(prefix) => MemoStore::new(self.store, prefix),
            None => MemoStore::for_queue(self.store, &self.queue_name),
        };
        let view = WorkflowView::new(self.queue.view().clone(), memos.clone())
            .queue_name(self.queue_name.clone());
        let shared = Shared {
            clock: self.clock.unwrap_or_else(|| self.queue.clock()),
            queue: self.queue,
            name: self.queue_name,
            memos,
            view,
            max_concurrent_steps: self.max_concurrent_steps,
            poll_interval: self.poll_interval,
        };
        WorkflowRuntime { inner: Arc::new(Inner { shared, runner: self.runner, hook: self.hook }) }
    }
}
