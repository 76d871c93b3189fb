//! What a caller can set: per queue, per open, per job. Plain values with their units and defaults; no behaviour.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock::{Clock, SystemClock};
use crate::limits::PRIORITY_NORMAL;
use crate::object_store::ObjectStore;
use crate::retry::RetryPolicy;

/// Payloads strictly larger than this go to an object of their own (256 KiB).
pub const DEFAULT_PAYLOAD_OFFLOAD_THRESHOLD: usize = 262_144;

/// Writes by-value setters of the same name as their fields.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident: $ty:ty),+ $(,)?) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $field(mut self, value: impl Into<$ty>) -> Self {
                self.$field = value.into();
                self
            }
        )+
    };
}

/// How one queue treats its jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// Claims allowed before a failing job is dead-lettered. Default 3. Attempts count claims, so a crash costs one.
    pub max_attempts: u32,
    /// Lease of `claim_next` and of the worker loops. Default 30 s.
    pub lease_duration: Duration,
    /// Priority of jobs that name none. Default [`PRIORITY_NORMAL`]; lower is claimed earlier.
    pub default_priority: u32,
    /// Delay before the second attempt; doubles with each further one. Default 1 s; zero retries at once.
    pub retry_backoff_base: Duration,
    /// Longest delay before a retry. Default 300 s. Below the base, it is every delay.
    pub retry_backoff_max: Duration,
    /// How long failed jobs wait; `None` (default): doubling from [`retry_backoff_base`](Self::retry_backoff_base) up to
    /// [`retry_backoff_max`](Self::retry_backoff_max).
    pub retry: Option<RetryPolicy>,
    /// Longest run time of one attempt in the worker loops; then its token fires and the attempt fails. `None`
    /// (default): the loop's own limit, an hour unless it says otherwise.
    pub max_run: Option<Duration>,
    /// How long the record of a completed job is kept; `None` (default) deletes it with the ack, and leaves records that
    /// an earlier configuration kept where they are.
    pub keep_done_jobs: Option<Duration>,
    /// How long dead jobs are kept; `None` keeps them for ever. Default 7 days.
    pub dead_retention: Option<Duration>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            lease_duration: Duration::from_secs(30),
            default_priority: PRIORITY_NORMAL,
            retry_backoff_base: Duration::from_secs(1),
            retry_backoff_max: Duration::from_secs(300),
            retry: None,
            max_run: None,
            keep_done_jobs: None,
            dead_retention: Some(Duration::from_secs(7 * 24 * 3_600)),
        }
    }
}

impl QueueConfig {
    setters! {
        /// Sets [`max_attempts`](Self::max_attempts).
        max_attempts: u32,
        /// Sets [`lease_duration`](Self::lease_duration).
        lease_duration: Duration,
        /// Sets [`default_priority`](Self::default_priority).
        default_priority: u32,
        /// Sets [`retry_backoff_base`](Self::retry_backoff_base).
        retry_backoff_base: Duration,
        /// Sets [`retry_backoff_max`](Self::retry_backoff_max).
        retry_backoff_max: Duration,
        /// Sets [`retry`](Self::retry).
        retry: Option<RetryPolicy>,
        /// Sets [`max_run`](Self::max_run).
        max_run: Option<Duration>,
        /// Sets [`keep_done_jobs`](Self::keep_done_jobs).
        keep_done_jobs: Option<Duration>,
        /// Sets [`dead_retention`](Self::dead_retention).
        dead_retention: Option<Duration>,
    }
}

/// How a store is opened.
pub struct OpenOptions {
    /// Safety net under the exact lease timers: how often expired leases are looked for anyway. Default 5 s.
    pub reaper_interval: Duration,
    /// Safety net under the exact timers of scheduled jobs. Default 1 s.
    pub scheduler_interval: Duration,
    /// Configuration of queues that have none of their own.
    pub default_queue_config: QueueConfig,
    /// Configuration by queue name.
    pub queue_configs: HashMap<String, QueueConfig>,
    /// Source of every timestamp. Default [`SystemClock`].
    pub clock: Arc<dyn Clock>,
    /// Least time between two flushes; `None` (default) flushes on demand.
    pub flush_interval: Option<Duration>,
    /// Longest time that a change nobody waits for (a claim, a release) stays unflushed. Default 250 ms.
    pub deferred_flush_max: Duration,
    /// How long a durable call waits before it answers [`Error::NotConfirmed`](crate::Error::NotConfirmed), and how long
    /// an open waits for a store that answers nothing ([`Error::StoreUnreachable`](crate::Error::StoreUnreachable)).
    /// Default 60 s; more than zero. Worker loops wait on.
    pub call_timeout: Duration,
    /// How often an idle handle checks that it still owns the store. Default 30 s.
    pub fence_check_interval: Duration,
    /// Deadline of one request to the object store; past it the request is retried. Default 30 s, at least 100 ms. A
    /// conditional PUT on a store without object attributes, as a local folder is, has none.
    pub store_request_timeout: Duration,
    /// Write-ahead log on another (lower-latency) store; every open must use the same pair. Default: the same store.
    pub wal_object_store: Option<Arc<dyn ObjectStore>>,
    /// See [`Knobs`].
    #[doc(hidden)]
    pub knobs: Knobs,
}

/// What only tests turn, so that a handful of jobs meets what else takes a million.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Knobs {
    /// Bytes of ready jobs that each priority of a queue keeps in memory.
    pub band_bytes: Option<usize>,
    /// Bytes of scheduled jobs that are kept in memory.
    pub timer_bytes: Option<usize>,
    /// Jobs that one refill reads.
    pub page_jobs: Option<usize>,
    /// Bytes of a memtable that goes to the object store.
    pub memtable_bytes: Option<usize>,
    /// Steps back that a refill makes between its scan and the delivery of its page.
    pub refill_yields: usize,
    /// How far the host's clock, as the store engine sees it, lags the real one.
    pub host_behind: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            reaper_interval: Duration::from_secs(5),
            scheduler_interval: Duration::from_secs(1),
            default_queue_config: QueueConfig::default(),
            queue_configs: HashMap::new(),
            clock: Arc::new(SystemClock),
            flush_interval: None,
            deferred_flush_max: Duration::from_millis(250),
            call_timeout: Duration::from_secs(60),
            fence_check_interval: Duration::from_secs(30),
            store_request_timeout: Duration::from_secs(30),
            wal_object_store: None,
            knobs: Knobs::default(),
        }
    }
}

impl OpenOptions {
    setters! {
        /// Sets [`reaper_interval`](Self::reaper_interval).
        reaper_interval: Duration,
        /// Sets [`scheduler_interval`](Self::scheduler_interval).
        scheduler_interval: Duration,
        /// Sets [`default_queue_config`](Self::default_queue_config).
        default_queue_config: QueueConfig,
        /// Sets [`queue_configs`](Self::queue_configs).
        queue_configs: HashMap<String, QueueConfig>,
        /// Sets [`clock`](Self::clock).
        clock: Arc<dyn Clock>,
        /// Sets [`flush_interval`](Self::flush_interval).
        flush_interval: Option<Duration>,
        /// Sets [`deferred_flush_max`](Self::deferred_flush_max).
        deferred_flush_max: Duration,
        /// Sets [`call_timeout`](Self::call_timeout).
        call_timeout: Duration,
        /// Sets [`fence_check_interval`](Self::fence_check_interval).
        fence_check_interval: Duration,
        /// Sets [`store_request_timeout`](Self::store_request_timeout).
        store_request_timeout: Duration,
        /// Sets [`wal_object_store`](Self::wal_object_store).
        wal_object_store: Option<Arc<dyn ObjectStore>>,
    }

    /// Sets the configuration of one queue.
    #[must_use]
    pub fn queue_config(mut self, queue: impl Into<String>, config: QueueConfig) -> Self {
        self.queue_configs.insert(queue.into(), config);
        self
    }
}

/// How one job is enqueued. Unset fields fall back to the queue's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnqueueOptions {
    /// Claims allowed before dead-lettering; at least 1.
    pub max_attempts: Option<u32>,
    /// Lower is claimed earlier.
    pub priority: Option<u32>,
    /// Not claimable before this time. A time that is past (or before the epoch) means at once.
    pub run_at: Option<SystemTime>,
    /// While a job of this queue with the same key is pending or scheduled, enqueuing answers that job's id instead. The
    /// first claim releases the key. At most 1 KiB.
    pub dedup_key: Option<String>,
    /// Free text pairs that ride with the job. At most 8 KiB each, 64 KiB in all.
    pub headers: HashMap<String, String>,
    /// The job's id, instead of a generated one: 1..=128 bytes of `[A-Za-z0-9_-]`, unique among stored jobs.
    pub id_override: Option<String>,
    /// The job waits for a signal of this key until `run_at`, its timeout. A signal already buffered for the key is
    /// consumed at once. At most 256 bytes, scoped to the queue; one waiting job per key.
    pub signal_key: Option<String>,
    /// How long it waits after a failed attempt, instead of what its queue says.
    pub retry: Option<RetryPolicy>,
    /// Longest run time of one attempt in the worker loops, instead of what its queue says.
    pub max_run: Option<Duration>,
    /// No attempt starts at this time or later: still waiting then, the job is dead-lettered with the error `expired`. An
    /// attempt that runs goes on, and may complete it.
    pub expire_at: Option<SystemTime>,
}

impl EnqueueOptions {
    setters! {
        /// Sets [`max_attempts`](Self::max_attempts).
        max_attempts: Option<u32>,
        /// Sets [`priority`](Self::priority).
        priority: Option<u32>,
        /// Sets [`run_at`](Self::run_at).
        run_at: Option<SystemTime>,
        /// Sets [`retry`](Self::retry).
        retry: Option<RetryPolicy>,
        /// Sets [`max_run`](Self::max_run).
        max_run: Option<Duration>,
        /// Sets [`expire_at`](Self::expire_at).
        expire_at: Option<SystemTime>,
        /// Sets [`headers`](Self::headers), replacing earlier ones.
        headers: HashMap<String, String>,
    }

    /// Sets [`dedup_key`](Self::dedup_key).
    #[must_use]
    pub fn dedup_key(mut self, key: impl IntoOptionString) -> Self {
        self.dedup_key = key.into_option_string();
        self
    }

    /// Sets [`id_override`](Self::id_override).
    #[must_use]
    pub fn id_override(mut self, id: impl IntoOptionString) -> Self {
        self.id_override = id.into_option_string();
        self
    }

    /// Sets [`signal_key`](Self::signal_key).
    #[must_use]
    pub fn signal_key(mut self, key: impl IntoOptionString) -> Self {
        self.signal_key = key.into_option_string();
        self
    }

    /// Adds one header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }
}

/// What a text option can be set from: a string, a `&str`, or either in an `Option`.
pub trait IntoOptionString {
    /// Converts.
    fn into_option_string(self) -> Option<String>;
}

impl IntoOptionString for String {
    fn into_option_string(self) -> Option<String> {
        Some(self)
    }
}

impl IntoOptionString for &str {
    fn into_option_string(self) -> Option<String> {
        Some(self.to_owned())
    }
}

impl IntoOptionString for Option<String> {
    fn into_option_string(self) -> Option<String> {
        self
    }
}
