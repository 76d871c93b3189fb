//! What became of an entry. Values; their bytes are the store's.

use thiserror::Error as ThisError;

use crate::record::{CancelOutcome, EnqueueResult, SignalDelivery};

/// What became of an entry, as the store remembers it for
/// [`InboxOptions::record_retention`](crate::InboxOptions::record_retention).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRecord {
    /// When it was applied or rejected, in milliseconds since the Unix epoch by the owner's clock.
    pub applied_at_ms: u64,
    /// What came of it.
    pub outcome: InboxOutcome,
}

/// What came of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InboxOutcome {
    /// An enqueue.
    Enqueue(EnqueueResult),
    /// A cancel.
    Cancel(CancelOutcome),
    /// A signal.
    Signal(SignalDelivery),
    /// Nothing: why not.
    Rejected(Rejection),
}

/// Why an entry was not applied. It changed nothing, and its object is gone.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Rejection {
    /// It lies in a folder that is none of the known kinds.
    #[error("its kind is not known; the sender may be of a later version")]
    UnknownKind,
    /// Its name has no ULID that says where in line it stands.
    #[error("its name does not begin with a ULID and a dot")]
    Unordered,
    /// Its bytes are not those of an entry of its kind.
    #[error("it cannot be decoded: {detail}")]
    Malformed {
        /// What is wrong with them.
        detail: String,
    },
    /// It is larger than [`MAX_INBOX_ENTRY_SIZE`](crate::MAX_INBOX_ENTRY_SIZE).
    #[error("its {size} bytes are over the cap of 16 MiB")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
    },
    /// It was listed, and could not be read for [`INBOX_UNREADABLE_AFTER`](crate::INBOX_UNREADABLE_AFTER).
    #[error("it could not be read: {detail}")]
    Unreadable {
        /// The last error.
        detail: String,
    },
    /// Its queue is not among [`InboxOptions::queues`](crate::InboxOptions::queues).
    #[error("its queue takes nothing from the inbox")]
    QueueNotAccepted,
    /// The job that it would cancel is in another queue than the entry's own.
    #[error("the job is in queue {job_queue:?}")]
    OtherQueue {
        /// The job's queue.
        job_queue: String,
    },
    /// Its id, or the id that it wants for its job, is not of the legal form.
    #[error("an id {reason}")]
    InvalidId {
        /// What is wrong with it.
        reason: String,
    },
    /// A stored job has the id that it wants for its job.
    #[error("a job with the wanted id exists already")]
    DuplicateJobId,
    /// Its job would wait for a signal without a `run_at` in the future as its timeout.
    #[error("a signal key needs a run_at in the future as its timeout")]
    SignalKeyWithoutTimeout,
    /// Another job waits for the signal key of its job.
    #[error("a job already waits for the signal key")]
    SignalKeyTaken,
    /// The queue refused it, in the words that a caller of the queue would get.
    #[error("{message}")]
    Failed {
        /// The error's text.
        message: String,
    },
}
