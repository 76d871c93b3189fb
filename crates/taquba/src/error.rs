//! What can go wrong, said so that the caller knows what to do next. Owns no recovery.

use thiserror::Error as ThisError;

use crate::object_store;

/// Result of a queue call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a queue handle stopped serving.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum CloseReason {
    /// [`Queue::close`](crate::Queue::close) was called, or the handle was dropped.
    #[error("close was called, or the handle was dropped")]
    Closed,
    /// Another process opened the same path and owns it now. Nothing that this handle had not confirmed counts.
    #[error("another process has opened this store and owns it now")]
    Fenced,
    /// The store failed in a way that cannot be waited out; the text says how. Reopen it.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// Any failure of a queue call.
///
/// [`is_permanent`](Self::is_permanent) tells whether the same call can succeed later.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The store engine answered an error; retry, it may pass.
    #[error("storage: {0}")]
    Storage(#[source] slatedb::Error),
    /// The queue handle serves no more calls; open the store again (unless it was fenced on purpose).
    #[error("queue is closed: {0}")]
    Closed(CloseReason),
    /// The store did not confirm in time ([`OpenOptions::call_timeout`](crate::OpenOptions::call_timeout)). The
    /// change may or may not have happened; it happens whole or not at all.
    #[error(
        "not confirmed within {waited_ms} ms: the change may or may not have happened; read before retrying"
    )]
    NotConfirmed {
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// An object of the payload store could not be read or written.
    #[error("payload store: {0}")]
    PayloadStore(#[from] object_store::Error),
    /// An object of the inbox could not be read, listed or written; retry, it may pass.
    #[error("inbox store: {0}")]
    InboxStore(#[source] object_store::Error),
    /// The inbox would lie within the store, or the store within the inbox; give it a path of its own.
    #[error("inbox path {path:?} overlaps the queue path {queue_path:?}")]
    InboxPathWithinQueue {
        /// The inbox's path.
        path: String,
        /// The store's path.
        queue_path: String,
    },
    /// A stored record cannot be decoded; the text names the record.
    #[error("cannot decode a stored record: {0}")]
    Deserialization(String),
    /// There is no job of this id in the state that the call needs.
    #[error("no job {0:?}")]
    JobNotFound(String),
    /// The job is in a state that this call does not apply to.
    #[error("job {id:?} is {state}; only a dead job can be brought back")]
    InvalidState {
        /// The job.
        id: String,
        /// Its state, in lower case.
        state: &'static str,
    },
    /// The claim has ended: its lease expired, it was settled before, or the store has a new owner.
    #[error("the claim on this job has ended; another attempt may own it")]
    ClaimLost,
    /// Cancellation of the job was requested, so its lease is not extended.
    #[error("cancellation of this job was requested")]
    CancelRequested,
    /// A KV value is over its cap.
    #[error("KV value of {size} bytes is over the cap of {max}; keep it in an object of its own")]
    KvValueTooLarge {
        /// Its size in bytes.
        size: usize,
        /// The cap in bytes.
        max: usize,
    },
    /// One effects set both writes and deletes a key.
    #[error("one settlement both writes and deletes KV key {:?}", String::from_utf8_lossy(key))]
    ConflictingKvEffect {
        /// The key.
        key: Vec<u8>,
    },
    /// Something given is over its cap; nothing was changed.
    #[error("{what}: {size} is over the cap of {max}; split it, or keep the bulk in the bucket")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The cap.
        max: usize,
    },
    /// A caller-supplied id, of a job or of an inbox entry, is not of the legal form.
    #[error("id {id:?} {reason}")]
    InvalidId {
        /// The id.
        id: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A live or kept job already has this caller-supplied id.
    #[error("a job with id {id:?} exists already")]
    DuplicateJobId {
        /// The id.
        id: String,
    },
    /// A queue name is not of the legal form.
    #[error("queue name {queue:?} {reason}")]
    InvalidQueueName {
        /// The name.
        queue: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another job already waits for this signal key.
    #[error("a job already waits for signal key {key:?}")]
    SignalKeyTaken {
        /// The signal key.
        key: String,
    },
    /// A signal key was given to a job that does not wait (no `run_at` in the future as its timeout).
    #[error("signal key {key:?} needs a run_at in the future as its timeout")]
    SignalKeyWithoutTimeout {
        /// The signal key.
        key: String,
    },
    /// The job's payload is missing from the store.
    #[error("the payload of job {id:?} is missing from the store")]
    PayloadMissing {
        /// The job.
        id: String,
    },
    /// There is no queue store at this path, and the caller asked not to create one.
    #[error("there is no queue store at {path:?}")]
    StoreNotInitialized {
        /// The path.
        path: String,
    },
    /// The store's format stamp is not one that this version can read, or is missing where rows exist.
    #[error("store at {path:?} cannot be opened: {reason}")]
    Format {
        /// The path.
        path: String,
        /// What was found, and what to do.
        reason: String,
    },
    /// A decision enqueues with a key that it did not read first.
    #[error("the decision uses {what} {key:?} without having read it; name it in Reads")]
    NotRead {
        /// What kind of key.
        what: &'static str,
        /// The key.
        key: String,
    },
    /// A decision on a claim did not say how the claim ends, so nothing was changed.
    #[error("the decision does not say how the claimed job ends: call ack, nack or dead_letter")]
    Undecided,
    /// A store URL cannot be opened as it is.
    #[error("store URL {url:?}: {reason}")]
    InvalidUrl {
        /// The URL.
        url: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// An option, of `open` or of a job, is out of range.
    #[error("option {option}: {reason}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl From<slatedb::Error> for Error {
    fn from(error: slatedb::Error) -> Self {
        use slatedb::{CloseReason as Why, ErrorKind};
        match error.kind() {
            ErrorKind::Closed(Why::Fenced) => Self::Closed(CloseReason::Fenced),
            ErrorKind::Closed(Why::Clean) => Self::Closed(CloseReason::Closed),
            ErrorKind::Closed(_) => Self::Closed(CloseReason::Failed(error.to_string())),
            _ => Self::Storage(error),
        }
    }
}

impl Error {
    /// Tells whether the same call is bound to fail again, whatever the store does.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(
            self,
            Self::Storage(_)
                | Self::Closed(_)
                | Self::NotConfirmed { .. }
                | Self::PayloadStore(_)
                | Self::InboxStore(_)
                | Self::StoreNotInitialized { .. }
        )
    }

    /// The reason why the handle stopped, if that is what this error says.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        match self {
            Self::Closed(reason) => Some(reason),
            _ => None,
        }
    }
}
