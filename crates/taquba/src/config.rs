//! What a caller can set: per queue, per open, per job. Plain values with their units and defaults; no behaviour.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::clock::{Clock, SystemClock};
use crate::inbox::{InboxOptions, OptionsWire};
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
    /// Payloads strictly larger than this many bytes are kept in objects of their own, beside the store, and never
    /// enter its log; `None` keeps all payloads in the store. Default
    /// [`DEFAULT_PAYLOAD_OFFLOAD_THRESHOLD`]. May change between opens. What [`Queue::decide`](crate::Queue::decide)
    /// and [`Queue::settle_decided`](crate::Queue::settle_decided) enqueue stays in the store whatever its size, since
    /// it comes to be where nothing can be uploaded.
    pub payload_offload_threshold: Option<usize>,
    /// Where those objects are kept; `None` (default): in the same object store. Every open must name the same.
    pub payload_store: Option<Arc<dyn ObjectStore>>,
    /// Under which path they are kept; `None` (default): the queue's path with `-payloads` after it. It may neither lie
    /// within the queue's path nor contain it; several queues may share it. Every open must name the same.
    pub payload_path: Option<String>,
    /// How often payload objects are looked for that a crash left behind, besides once a minute after open: one LIST
    /// per 1,000 payload objects each time. `None` switches it off, that after open too. Default 24 h.
    pub orphan_sweep_interval: Option<Duration>,
    /// Write-ahead log on another (lower-latency) store; every open must use the same pair. Default: the same store.
    pub wal_object_store: Option<Arc<dyn ObjectStore>>,
    /// Whether a store is created when there is none. Default true; false answers
    /// [`Error::StoreNotInitialized`](crate::Error::StoreNotInitialized) on an empty path, and writes nothing there.
    pub create: bool,
    /// How often the owner beats, for those who watch it from outside
    /// ([`QueueView::writer_heartbeat`](crate::QueueView::writer_heartbeat)). The first beat is durable when open
    /// returns, the last one, which says that the store was closed, when `close` does. Default `None`: it does not
    /// beat, unless [`takeover`](Self::takeover) has it. A beat is one small PUT, unless other writes carry it: every
    /// 30 s that is 2,880 a day.
    pub liveness_heartbeat: Option<Duration>,
    /// What to do about an owner that may live. Default [`Takeover::Immediate`].
    pub takeover: Takeover,
    /// Whether this process compacts the store when it is due. Default true; switch it off only where another process
    /// does, such as SlateDB's own compactor: reads get slower and slower without, and past 128 tables of level 0 new
    /// work waits.
    pub in_process_compactor: bool,
    /// Whether this process deletes objects of the store that nothing names any more. Default true; without, and with
    /// nobody else to do it, the bucket only grows.
    pub in_process_garbage_collector: bool,
    /// How often the gauges of pending jobs, claimed jobs and the age of the oldest pending job are set, with the feature
    /// `metrics`; `None` (default): never. Makes no request.
    pub metrics_sample_interval: Option<Duration>,
    /// Where other processes leave requests as plain objects. Default `None`: nowhere.
    pub inbox: Option<InboxOptions>,
    /// See [`Knobs`].
    #[doc(hidden)]
    pub knobs: Knobs,
}

/// What an open does about an owner that may live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Takeover {
    /// Takes the store at once; the last owner, if it lives, is fenced.
    #[default]
    Immediate,
    /// Waits, and writes nothing, until the owner has closed the store or has given no sign of life for this long,
    /// by this process's monotonic clock; then takes the store as the one next owner. Of several that wait one gets
    /// it, and the others wait on. So a process that was fenced may open again, and never fences back.
    ///
    /// Any commit of the owner is a sign of life. An owner that opened so beats by itself, each third of this time
    /// ([`OpenOptions::liveness_heartbeat`], if set, is not made longer than that). An owner that does not beat is
    /// taken for dead when it has committed nothing for this long, so let all replicas open so, or set their
    /// heartbeat. One that beats more seldom than this time asks for is given twice its own interval. Time in which
    /// this process could not read the store, or was itself suspended, does not count.
    ///
    /// Waiting costs one HEAD each quarter of this time (each 15 s at most) while the owner is quiet, and four to
    /// eight reads at each look after it wrote. Choose it well above the longest pause that an owner may make: some
    /// seconds on a bucket.
    WhenSilent(Duration),
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
            payload_offload_threshold: Some(DEFAULT_PAYLOAD_OFFLOAD_THRESHOLD),
            payload_store: None,
            payload_path: None,
            orphan_sweep_interval: Some(Duration::from_secs(24 * 3_600)),
            wal_object_store: None,
            create: true,
            liveness_heartbeat: None,
            takeover: Takeover::Immediate,
            in_process_compactor: true,
            in_process_garbage_collector: true,
            metrics_sample_interval: None,
            inbox: None,
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
        /// Sets [`payload_offload_threshold`](Self::payload_offload_threshold).
        payload_offload_threshold: Option<usize>,
        /// Sets [`payload_store`](Self::payload_store).
        payload_store: Option<Arc<dyn ObjectStore>>,
        /// Sets [`orphan_sweep_interval`](Self::orphan_sweep_interval).
        orphan_sweep_interval: Option<Duration>,
        /// Sets [`in_process_compactor`](Self::in_process_compactor).
        in_process_compactor: bool,
        /// Sets [`in_process_garbage_collector`](Self::in_process_garbage_collector).
        in_process_garbage_collector: bool,
        /// Sets [`metrics_sample_interval`](Self::metrics_sample_interval).
        metrics_sample_interval: Option<Duration>,
        /// Sets [`wal_object_store`](Self::wal_object_store).
        wal_object_store: Option<Arc<dyn ObjectStore>>,
        /// Sets [`create`](Self::create).
        create: bool,
        /// Sets [`liveness_heartbeat`](Self::liveness_heartbeat).
        liveness_heartbeat: Option<Duration>,
        /// Sets [`takeover`](Self::takeover).
        takeover: Takeover,
        /// Sets [`inbox`](Self::inbox).
        inbox: Option<InboxOptions>,
    }

    /// Sets [`payload_path`](Self::payload_path).
    #[must_use]
    pub fn payload_path(mut self, path: impl IntoOptionString) -> Self {
        self.payload_path = path.into_option_string();
        self
    }

    /// Sets the configuration of one queue.
    #[must_use]
    pub fn queue_config(mut self, queue: impl Into<String>, config: QueueConfig) -> Self {
        self.queue_configs.insert(queue.into(), config);
        self
    }
}

/// How one job is enqueued. Unset fields fall back to the queue's configuration.
///
/// As JSON, MessagePack and the like (`serde`) it is a map of what is set, with times in milliseconds (since the Unix epoch).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "OptionsWire", from = "OptionsWire")]
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
