//! A durable task queue whose only infrastructure is an object-store bucket.
//!
//! Open a [`Queue`] on any object store and a path. Jobs are enqueued ([`Queue::enqueue`]), claimed under a lease
//! ([`Queue::claim_next`]) and settled ([`Queue::ack`], [`Queue::nack`]); a [`Worker`] and [`run_worker_concurrent`] do
//! the last two in a loop. Effects ([`SettlementEffects`]) commit with a settlement; [`Queue::decide`] reads and writes
//! in one commit. What has survived when a call returns is said on each call.
//!
//! One process owns a path at a time: who opens it last ([`CloseReason::Fenced`]), or whose turn it is
//! ([`Takeover::WhenSilent`]). Others read beside it ([`QueueReader`]).
#![doc(test(attr(deny(deprecated))))]

mod clock;
mod config;
mod decide;
mod effects;
mod engine;
mod env;
mod error;
mod expiry;
mod filter;
mod inbox;
mod lifecycle;
mod limits;
mod liveness;
mod name;
mod queue;
mod reader;
mod record;
mod retry;
mod state;
mod store;
mod telemetry;
mod url;
pub mod worker;

pub use slatedb::object_store;

pub use clock::{Clock, MockClock, SystemClock};
#[doc(hidden)]
pub use config::Knobs;
pub use config::{
    DEFAULT_PAYLOAD_OFFLOAD_THRESHOLD, EnqueueOptions, IntoOptionString, OpenOptions, QueueConfig,
    Takeover,
};
pub use decide::{Changes, DecideFn, Facts, IdInValue, Reads, SignalFacts};
pub use effects::{EnqueueRequest, SettlementEffects};
pub use error::{CloseReason, Error, Result};
pub use expiry::{Expired, ExpiryIndex};
pub use filter::{BulkAction, BulkReport, JobFilter};
pub use inbox::{
    CancelEntry, DEFAULT_INBOX_INTERVAL, DEFAULT_INBOX_RECORD_RETENTION,
    DEFAULT_INBOX_TOUCH_POLL_INTERVAL, EnqueueEntry, EntryKind, EntryRead, InboxEntry,
    InboxOptions, InboxOutcome, InboxRecord, PendingEntry, Rejection, SignalEntry,
    default_inbox_path,
};
pub use limits::{
    INBOX_UNREADABLE_AFTER, MAX_INBOX_ENTRY_SIZE, MAX_INBOX_ID_LEN, MAX_KV_VALUE_SIZE,
    MAX_QUEUE_NAME_LEN, PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_NORMAL,
};
pub use liveness::{StoreActivity, WriterHeartbeat};
pub use name::QueueName;
pub use queue::{Claim, ClaimOutcome, InboxSender, KvPage, KvRange, LeaseHandle, Queue, QueueView};
pub use reader::{QueueReader, ReaderMode, ReaderOptions};
pub use record::{
    AttemptOutcome, CancelOutcome, EnqueueResult, JobAttempt, JobPage, JobProgress, JobRecord,
    JobStatus, NackOutcome, OrphanSweep, QuarantinePage, Quarantined, QueueStats, SignalDelivery,
    WaitOutcome, WakeOutcome,
};
pub use retry::RetryPolicy;
pub use url::open_url;
pub use worker::{
    ClaimHandler, FailWith, PermanentFailure, Settlement, Worker, WorkerError, WorkerHandle,
    WorkerOptions, run_claim_handler, run_claim_handler_with, run_worker, run_worker_concurrent,
};

/// Sleeping, for the crates of this workspace: all time enters through one place.
#[doc(hidden)]
pub mod time {
    /// Sleeps for `duration`.
    pub async fn sleep(duration: std::time::Duration) {
        crate::env::sleep(duration).await;
    }
}
