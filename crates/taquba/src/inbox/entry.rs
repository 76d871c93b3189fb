//! What a sender asks for, and what it finds of its own in the inbox. Values; their bytes are `wire`'s.

use serde::{Deserialize, Serialize};

use super::outcome::Rejection;
use crate::config::EnqueueOptions;
use crate::object_store::path::Path;

/// One request, for the queue that it is sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InboxEntry {
    /// Enqueue a job.
    Enqueue(EnqueueEntry),
    /// Cancel a job.
    Cancel(CancelEntry),
    /// Signal a key.
    Signal(SignalEntry),
}

/// Enqueues a job, as [`Queue::enqueue_with`](crate::Queue::enqueue_with).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnqueueEntry {
    /// The job's payload.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
    /// How it is enqueued.
    #[serde(default)]
    pub options: EnqueueOptions,
}

impl EnqueueEntry {
    /// A job with the queue's defaults.
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self { payload: payload.into(), options: EnqueueOptions::default() }
    }

    /// Sets [`options`](Self::options).
    #[must_use]
    pub fn options(mut self, options: EnqueueOptions) -> Self {
        self.options = options;
        self
    }
}

/// Cancels a job of the entry's queue, as [`Queue::cancel`](crate::Queue::cancel).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelEntry {
    /// The job.
    pub job_id: String,
}

impl CancelEntry {
    /// A cancel of this job.
    pub fn new(job_id: impl Into<String>) -> Self {
        Self { job_id: job_id.into() }
    }
}

/// Signals a key of the entry's queue, as [`Queue::send_signal`](crate::Queue::send_signal).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalEntry {
    /// The signal key.
    pub key: String,
    /// What the signal carries.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
}

impl SignalEntry {
    /// A signal of this key.
    pub fn new(key: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), payload: payload.into() }
    }
}

impl InboxEntry {
    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> EntryKind {
        match self {
            Self::Enqueue(_) => EntryKind::Enqueue,
            Self::Cancel(_) => EntryKind::Cancel,
            Self::Signal(_) => EntryKind::Signal,
        }
    }
}

impl From<EnqueueEntry> for InboxEntry {
    fn from(entry: EnqueueEntry) -> Self {
        Self::Enqueue(entry)
    }
}

impl From<CancelEntry> for InboxEntry {
    fn from(entry: CancelEntry) -> Self {
        Self::Cancel(entry)
    }
}

impl From<SignalEntry> for InboxEntry {
    fn from(entry: SignalEntry) -> Self {
        Self::Signal(entry)
    }
}

/// What kind of request an object is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// An [`EnqueueEntry`].
    Enqueue,
    /// A [`CancelEntry`].
    Cancel,
    /// A [`SignalEntry`].
    Signal,
    /// None that this version knows: the name of its folder.
    Unknown(String),
}

impl EntryKind {
    /// Returns the name of its folder.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Cancel => "cancel",
            Self::Signal => "signal",
            Self::Unknown(name) => name,
        }
    }

    pub(crate) fn of_folder(name: &str) -> Self {
        match name {
            "enqueue" => Self::Enqueue,
            "cancel" => Self::Cancel,
            "signal" => Self::Signal,
            other => Self::Unknown(other.to_owned()),
        }
    }
}

/// An entry that waits in the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEntry {
    pub(crate) at: Path,
    pub(crate) queue: String,
    pub(crate) kind: EntryKind,
    pub(crate) id: String,
    /// Its place in line; `None` when its name has none.
    pub(crate) order: Option<ulid::Ulid>,
    pub(crate) size: u64,
}

impl PendingEntry {
    /// Returns the queue that it is for.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> &EntryKind {
        &self.kind
    }

    /// Returns its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns when it was sent, in milliseconds since the Unix epoch by the sender's clock; 0 when its name does not say.
    #[must_use]
    pub fn sent_at_ms(&self) -> u64 {
        self.order.map_or(0, |order| order.timestamp_ms())
    }
}

/// What reading a waiting entry gave.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one is made at a time, and taken apart at once")]
#[non_exhaustive]
pub enum EntryRead {
    /// The entry.
    Entry(InboxEntry),
    /// It is gone: the owner took it.
    Missing,
    /// It is there, and the owner will reject it.
    Rejected(Rejection),
}
