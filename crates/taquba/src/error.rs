//! What can go wrong, said so that the caller knows what to do next. Owns no recovery.

mod text;

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
        "not confirmed within {waited_ms} ms: the change may or may not have happened; read before retrying{}",
        text::because(cause.as_deref())
    )]
    NotConfirmed {
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
        /// The last error of the object store while it waited; `None` when the store said nothing.
        cause: Option<String>,
    },
    /// The store could not be opened: it refused for want of permission, or no request to it succeeded for as long as
    /// [`OpenOptions::call_timeout`](crate::OpenOptions::call_timeout). See to its address, its credentials and its
    /// permissions, and open again.
    #[error(
        "cannot reach the store at {path:?}: gave up after {waited_ms} ms; {}",
        text::last_error(last_error)
    )]
    StoreUnreachable {
        /// The path inside the object store.
        path: String,
        /// How long `open` waited, in milliseconds.
        waited_ms: u64,
        /// The store's last error, with the operation and the object; empty when it never answered at all.
        last_error: String,
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
    #[error("no job {:?}", text::clip(.0, text::NAME))]
    JobNotFound(String),
    /// The job is in a state that this call does not apply to.
    #[error("job {:?} is {state}; only a dead job can be brought back", text::clip(id, text::NAME))]
    InvalidState {
        /// The job.
        id: String,
        /// Its state, in lower case.
        state: &'static str,
    },
    /// The claim has ended: it was settled before (perhaps by the same worker), its lease ran out, or it was given back.
    /// This call changed nothing.
    #[error(
        "this claim has ended, so nothing was changed: it was settled before, its lease ran out, or it was given back"
    )]
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
    #[error("one settlement both writes and deletes KV key {:?}", text::clip(&String::from_utf8_lossy(key), text::NAME))]
    ConflictingKvEffect {
        /// The key.
        key: Vec<u8>,
    },
    /// Something given is over its cap; nothing was changed.
    #[error("{what}: {size} is over the cap of {max}; {}", text::advice(what))]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The cap.
        max: usize,
    },
    /// One header of a job is over its cap; nothing was changed.
    #[error(
        "header {:?}: name and value of {size} bytes are over the cap of {max}; keep the bulk in the payload",
        text::clip(header, text::HEADER)
    )]
    HeaderTooLarge {
        /// The header's name.
        header: String,
        /// The size of name and value together, in bytes.
        size: usize,
        /// The cap in bytes.
        max: usize,
    },
    /// A caller-supplied id, of a job or of an inbox entry, is not of the legal form.
    #[error("id {:?} {reason}", text::clip(id, text::NAME))]
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
    #[error("queue name {:?} {reason}", text::clip(queue, text::NAME))]
    InvalidQueueName {
        /// The name.
        queue: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another job already waits for this signal key.
    #[error("a job already waits for signal key {:?}", text::clip(key, text::NAME))]
    SignalKeyTaken {
        /// The signal key.
        key: String,
    },
    /// A signal key was given to a job that does not wait (no `run_at` in the future as its timeout).
    #[error(
        "signal key {:?} needs a run_at in the future as its timeout",
        text::clip(key, text::NAME)
    )]
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
    /// The store's format stamp is not one that this version can read, or is missing where rows exist; or what it holds
    /// is damaged.
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
    /// An option of a queue's configuration is out of range.
    #[error("option {option} of queue {:?}: {reason}", text::clip(queue, text::NAME))]
    InvalidQueueOption {
        /// The queue.
        queue: String,
        /// The option.
        option: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A store's path is not one that every object store keeps as it is.
    #[error(
        "store path {:?}: each part between its slashes may hold A-Z a-z 0-9, spaces and ! $ & ' ( ) + , - . : ; = @ _, \
         and must not be empty, \".\" or \"..\"",
        text::clip(path, text::PATH)
    )]
    InvalidPath {
        /// The path.
        path: String,
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
    /// Tells whether the same call on the same handle is bound to fail again, whatever the store does. So it is when the
    /// handle is [closed](Self::Closed): open the store again, unless it was fenced on purpose.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Storage(error) => !matches!(
                error.kind(),
                slatedb::ErrorKind::Unavailable | slatedb::ErrorKind::Transaction
            ),
            Self::NotConfirmed { .. }
            | Self::StoreUnreachable { .. }
            | Self::PayloadStore(_)
            | Self::InboxStore(_)
            | Self::StoreNotInitialized { .. } => false,
            _ => true,
        }
    }

    /// The same, told by `open` of a store at `path`: what is about its data names the place.
    pub(crate) fn at_open(self, path: &str) -> Self {
        match self {
            Self::Deserialization(what) => {
                Self::Deserialization(format!("{what}, of the store at {path:?}"))
            }
            Self::Storage(error) if Self::is_damage(error.kind()) => {
                let reason = format!("what it holds is damaged: {}", text::chain(&error));
                Self::Format { path: path.to_owned(), reason }
            }
            other => other,
        }
    }

    fn is_damage(kind: slatedb::ErrorKind) -> bool {
        matches!(kind, slatedb::ErrorKind::Data | slatedb::ErrorKind::Internal)
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
