//! What callers see of a job, and the answers of queue calls. Shapes only; nothing here is stored as it is.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::name::QueueName;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JobStatus {
    /// Ready to be claimed.
    Pending,
    /// Waits for its time, or for a signal.
    Scheduled,
    /// Held by a worker under a lease.
    Claimed,
    /// Completed, its record kept for the queue's retention.
    Done,
    /// Out of attempts or refused; kept for the queue's retention.
    Dead,
}

/// One job as seen at one moment. All times are milliseconds since the Unix epoch by the queue's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Its id, unique in the store.
    pub id: String,
    /// Its queue.
    pub queue: QueueName,
    /// What the caller enqueued. Empty in the stored form of a payload that has an object of its own.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
    /// The object that holds the payload, as a path below `OpenOptions::payload_path`; `None` when it is in the store
    /// itself.
    pub payload_ref: Option<String>,
    /// What the caller attached.
    pub headers: HashMap<String, String>,
    /// Where it stands.
    pub status: JobStatus,
    /// Claims so far, the current one included.
    pub attempts: u32,
    /// Claims allowed.
    pub max_attempts: u32,
    /// When it was enqueued.
    pub enqueued_at: u64,
    /// When the current claim began; only while claimed.
    pub claimed_at: Option<u64>,
    /// When it becomes ready; only while scheduled.
    pub run_at: Option<u64>,
    /// Lower is claimed earlier.
    pub priority: u32,
    /// Why the latest failed attempt failed.
    pub last_error: Option<String>,
    /// The dedup key it still holds; released at its first claim.
    pub dedup_key: Option<String>,
    /// When it completed; only when done.
    pub completed_at: Option<u64>,
    /// When it was dead-lettered; only when dead.
    pub failed_at: Option<u64>,
    /// How far the running attempt says it is ([`LeaseHandle::report_progress`](crate::LeaseHandle::report_progress));
    /// only while claimed.
    pub progress: Option<JobProgress>,
    /// Whether cancellation was requested while it was claimed.
    pub cancel_requested: bool,
    /// When a wake or a signal ended its wait.
    pub woken_at: Option<u64>,
    /// What that wake or signal carried.
    pub wake_payload: Option<Vec<u8>>,
    /// Longest run time of one attempt, when the job has one of its own.
    pub max_run: Option<std::time::Duration>,
    /// No attempt starts at this time or later.
    pub expire_at: Option<u64>,
    /// What the worker left with its acknowledgement
    /// ([`SettlementEffects::result`](crate::SettlementEffects::result)); only when done.
    pub result: Option<Vec<u8>>,
}

impl JobRecord {
    /// Tells whether a failure of this attempt dead-letters the job.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.attempts >= self.max_attempts
    }
}

/// How far an attempt says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProgress {
    /// 0..=100.
    pub percent: u8,
    /// In the handler's words, up to 1 KiB.
    pub note: String,
    /// When it said so.
    pub at: u64,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// It was acknowledged; the record of the job is kept.
    Completed,
    /// It failed and the job was to be tried again.
    Retried,
    /// The job was dead-lettered with it.
    DeadLettered,
    /// Its lease ran out and the job was to be tried again.
    LeaseExpired,
    /// Its process ended and the job was to be tried again.
    Interrupted,
    /// No attempt: the dead job was brought back with all its attempts.
    Requeued,
}

/// One entry of a job's history. All times are milliseconds since the Unix epoch by the queue's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAttempt {
    /// Which attempt, from 1; of a return from the dead, how many attempts there had been.
    pub attempt: u32,
    /// When its claim began; `None` for a return from the dead.
    pub claimed_at: Option<u64>,
    /// When it ended.
    pub recorded_at: u64,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// What an enqueue led to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EnqueueResult {
    /// A new job of this id.
    New(String),
    /// The dedup key is held by this job; nothing was enqueued.
    AlreadyEnqueued(String),
}

impl EnqueueResult {
    /// Returns the id of the job that now stands for the request.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::New(id) | Self::AlreadyEnqueued(id) => id,
        }
    }

    /// Returns that id, owned.
    #[must_use]
    pub fn into_id(self) -> String {
        match self {
            Self::New(id) | Self::AlreadyEnqueued(id) => id,
        }
    }
}

/// What a cancel led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CancelOutcome {
    /// The job was waiting and is gone.
    Removed,
    /// The job is claimed: the request is stored and its handler's token fires.
    Requested,
    /// No job of this id is waiting or claimed.
    NotFound,
}

/// What a negative acknowledgement led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NackOutcome {
    /// The job will be tried again; effects were dropped.
    Retried,
    /// The job was out of attempts; effects were applied, one result per enqueue.
    DeadLettered(Vec<EnqueueResult>),
}

/// What waking a scheduled job led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WakeOutcome {
    /// It is ready now.
    Woken,
    /// It exists but is not scheduled.
    NotScheduled,
    /// No job of this id.
    NotFound,
}

/// What a signal by key led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalDelivery {
    /// A waiting job took it and is ready.
    Delivered,
    /// Nobody waits for the key; the next job that does takes it at once.
    Buffered,
}

/// How a job that was waited for ended.
#[derive(Debug, Clone)]
pub enum WaitOutcome {
    /// It completed.
    Done(Box<JobRecord>),
    /// It was dead-lettered.
    Dead(Box<JobRecord>),
    /// It was cancelled before a worker took it.
    Cancelled,
    /// No job of this id was stored.
    NotFound,
}

/// How many jobs of a queue are in each state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueStats {
    /// The queue.
    pub queue: String,
    /// Ready.
    pub pending: i64,
    /// Held by workers.
    pub claimed: i64,
    /// Completed ever, kept or not; never decreases.
    pub done: i64,
    /// Dead-lettered and kept.
    pub dead: i64,
    /// Waiting for a time or a signal.
    pub scheduled: i64,
    /// Whether no job is handed out ([`Queue::pause`](crate::Queue::pause)).
    #[serde(default)]
    pub paused: bool,
}

/// What a sweep of orphaned payload objects found; see [`Queue::sweep_orphans_now`](crate::Queue::sweep_orphans_now).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OrphanSweep {
    /// Objects that a job's record names.
    pub named: usize,
    /// Objects that are left alone because a call of this process, or a later owner, may still make a record name
    /// them.
    pub open: usize,
    /// Objects that nothing named and nothing ever could, deleted.
    pub deleted: usize,
    /// Such objects whose deletion failed; the next sweep tries again.
    pub failed: usize,
    /// Objects in the store's payload folder that no version of this library names so; left alone.
    pub foreign: usize,
}

/// A row of a job that could not be decoded, put aside so that it harms nobody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Where it stood: what [`Queue::requeue_quarantined`](crate::Queue::requeue_quarantined) and
    /// [`Queue::discard_quarantined`](crate::Queue::discard_quarantined) take.
    pub key: Vec<u8>,
    /// Its bytes.
    pub value: Vec<u8>,
    /// Why it could not be decoded.
    pub reason: String,
    /// When it was put aside, in milliseconds since the Unix epoch by the queue's clock.
    pub at: u64,
    /// The job's id, if its first bytes say so.
    pub id: Option<String>,
    /// The job's queue, if its key or its first bytes say so.
    pub queue: Option<String>,
}

/// One page of what was put aside.
#[derive(Debug, Clone, Default)]
pub struct QuarantinePage {
    /// The rows, by key.
    pub rows: Vec<Quarantined>,
    /// Where the next page starts; `None` at the end.
    pub next_cursor: Option<Vec<u8>>,
}

/// One page of a listing.
#[derive(Debug, Clone, Default)]
pub struct JobPage {
    /// The jobs, in the listing's order.
    pub jobs: Vec<JobRecord>,
    /// Where the next page starts; `None` at the end.
    pub next_cursor: Option<Vec<u8>>,
}
