//! Requests that another process leaves as plain objects: the values, their bytes and their names. How they are sent and
//! applied is the queue's.

mod entry;
pub(crate) mod names;
mod options;
mod outcome;
mod wire;

pub use entry::{
    CancelEntry, EnqueueEntry, EntryKind, EntryRead, InboxEntry, PendingEntry, SignalEntry,
};
pub use options::{
    DEFAULT_INBOX_INTERVAL, DEFAULT_INBOX_RECORD_RETENTION, DEFAULT_INBOX_TOUCH_POLL_INTERVAL,
    InboxOptions, default_inbox_path,
};
pub use outcome::{InboxOutcome, InboxRecord, Rejection};
pub(crate) use wire::OptionsWire;
