//! The public queue: each call checks its input, sends a command to the engine, and shapes the answer.

mod bulk;
mod claim;
mod decide;
mod enqueue;
mod expire;
mod inbox;
mod kv;
mod kv_range;
mod lease;
mod operate;
mod settle;
mod source;
mod view;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::config::OpenOptions;
use crate::engine::request::Request;
use crate::engine::{self, Shared};
use crate::error::{CloseReason, Error, Result};
use crate::object_store::ObjectStore;
use crate::state::ids;

pub use claim::{Claim, ClaimOutcome};
pub use inbox::InboxSender;
pub use kv_range::{KvPage, KvRange};
pub use lease::LeaseHandle;
pub use view::QueueView;

use inbox::{Inbox, Plan};

/// Longest time that [`Queue::close`] takes (10 s); past it the store is left as a crash would leave it, which is safe.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// A durable queue store, open for work.
///
/// There is one owner per path: a second open takes over, and from then on every call of the first answers
/// [`Error::Closed`] with [`CloseReason::Fenced`]. Share it by `Arc`.
///
/// Dropping it without [`close`](Self::close) is like a crash, and as safe: what was confirmed is in the store.
///
/// ```
/// # tokio_test(async {
/// use std::sync::Arc;
/// use taquba::{Queue, object_store::memory::InMemory};
///
/// let queue = Queue::open(Arc::new(InMemory::new()), "jobs").await?;
/// let id = queue.enqueue("mail", b"hello".to_vec()).await?;
/// let claim = queue.claim_next("mail").await?.expect("a job is waiting");
/// assert_eq!(claim.id, id);
/// queue.ack(&claim).await?;
/// # Ok(()) });
/// # fn tokio_test<F: Future<Output = Result<(), taquba::Error>>>(f: F) {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(f).unwrap();
/// # }
/// ```
pub struct Queue {
    shared: Arc<Shared>,
    view: QueueView,
    inbox: Option<Inbox>,
}

impl Queue {
    /// Opens the store at `path` with default options, creating it when there is none.
    ///
    /// Durable on return: the takeover, and the return of everything that the last owner held to its queues.
    ///
    /// # Errors
    /// [`Error::StoreUnreachable`] when the object store refuses for want of permission, or answers no request for
    /// [`OpenOptions::call_timeout`]; [`Error::Format`] when the path holds something else, a newer format, or damaged
    /// data; [`Error::InvalidPath`]; [`Error::Storage`] when the object store fails otherwise.
    ///
    /// # Panics
    /// Outside a Tokio runtime, and on one without timers: build it with `enable_time` or `enable_all`.
    ///
    /// # Cancel safety
    /// Dropped, it may have taken the store over already, as a process that dies then would have.
    pub async fn open(object_store: Arc<dyn ObjectStore>, path: &str) -> Result<Self> {
        Self::open_with_options(object_store, path, OpenOptions::default()).await
    }

    /// Opens the store at `path`; with [`Takeover::WhenSilent`](crate::Takeover::WhenSilent) it returns when it is this
    /// process's turn. With an [`inbox`](crate::OpenOptions::inbox), what waits there is applied before it returns, unless
    /// the inbox cannot be reached.
    ///
    /// # Errors
    /// As [`open`](Self::open); also [`Error::InvalidQueueName`], [`Error::InvalidQueueOption`] and
    /// [`Error::InvalidOption`] for what is wrong in `options`, [`Error::InboxPathWithinQueue`],
    /// [`Error::StoreNotInitialized`] when it may not create a store and there is none, and
    /// [`Error::Closed`] with [`CloseReason::Fenced`] when another process took the store over while this one was
    /// opening it at once.
    ///
    /// # Cancel safety
    /// Dropped while it waits for its turn, it has written nothing. Dropped later, it may have taken the store over.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub async fn open_with_options(
        object_store: Arc<dyn ObjectStore>,
        path: &str,
        options: OpenOptions,
    ) -> Result<Self> {
        let plan = Plan::of(path, &object_store, &options)?;
        // Boxed: its future is large, and callers should not have to carry it.
        let shared = Box::pin(engine::open(object_store, path, options)).await?;
        let view = QueueView::live(Arc::clone(&shared));
        // From here on a drop of the handle stops the engine.
        let mut queue = Self { shared, view, inbox: None };
        if let Some(plan) = plan {
            queue.inbox = Some(plan.start(&queue.shared).await?);
        }
        Ok(queue)
    }

    /// Closes the store: takes in nothing more, makes everything accepted durable, answers every waiting call, and
    /// notes in the store that it was closed cleanly. Takes at most 10 s. Closing again, or from two tasks at once, is
    /// fine: each call answers how the one close ended.
    ///
    /// # Errors
    /// [`Error::Closed`] when the store was lost before; [`Error::NotConfirmed`] past the limit. Either way the store
    /// is safe to open again.
    ///
    /// # Cancel safety
    /// Dropped once it was polled, the close goes on.
    pub async fn close(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let closing = async {
            // Sent past the check for open: whoever comes second waits for the same end. If the loop takes it no more,
            // or drops it, another close is being answered, or the store was lost.
            drop(self.shared.mailbox.send(Request::Close(reply)));
            match answer.await {
                Ok(done) => done,
                Err(_) => self.shared.closed_cleanly().await,
            }
        };
        let done = self.shared.confirmed_within(CLOSE_MAX, closing).await;
        if matches!(done, Err(Error::NotConfirmed { .. })) {
            // Whoever still waits hears that it is over. If the loop is gone, they have.
            drop(self.shared.mailbox.send(Request::Abandon));
        }
        done
    }

    /// Returns when this handle serves no more, with the reason: also when the runtime that it was opened on is shut
    /// down. For health checks.
    pub fn closed(&self) -> impl Future<Output = CloseReason> + Send + 'static {
        let mut closed = self.shared.closed.subscribe();
        async move {
            match closed.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone().unwrap_or(CloseReason::Closed),
                Err(_) => CloseReason::Closed,
            }
        }
    }

    /// Returns the live view: stats, listings, records, KV reads. It sees every change whose call has returned.
    #[must_use]
    pub fn view(&self) -> &QueueView {
        &self.view
    }

    /// Returns the clock that the queue takes its timestamps from.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    /// Returns a new job id, higher than every id given out before, across restarts: a ULID of the queue's time.
    #[must_use]
    pub fn next_job_id(&self) -> String {
        ids::text(self.shared.ids.next(self.shared.clock.now_ms()))
    }

    /// Returns the lease that `claim_next` and the worker loops give on a queue.
    #[must_use]
    pub fn queue_lease_duration(&self, queue: &str) -> Duration {
        self.shared.configs.of(queue).lease_duration
    }

    /// Returns how long a queue keeps completed jobs; `None` when it does not.
    #[must_use]
    pub fn queue_keep_done_jobs(&self, queue: &str) -> Option<Duration> {
        self.shared.configs.of(queue).keep_done_jobs
    }

    /// Returns how long a queue keeps dead jobs; `None` when for ever.
    #[must_use]
    pub fn queue_dead_retention(&self, queue: &str) -> Option<Duration> {
        self.shared.configs.of(queue).dead_retention
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // After a close the loop is gone and nothing listens.
        drop(self.shared.mailbox.send(Request::Abandon));
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("path", &self.shared.store.location.path)
            .finish_non_exhaustive()
    }
}
