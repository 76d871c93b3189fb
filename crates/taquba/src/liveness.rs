//! Signs of life of a store's owner, as others see them. Values only.

use std::time::Duration;

/// One beat of a store's owner ([`OpenOptions::liveness_heartbeat`](crate::OpenOptions::liveness_heartbeat)).
///
/// Who watches compares two beats on a clock of its own: an owner whose counter has not changed for several intervals
/// is dead or cut off from the bucket. `at_ms` is the owner's clock, which may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriterHeartbeat {
    /// Counts the beats of this store, across all its owners.
    pub counter: u64,
    /// The owner's wall clock at the beat, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// How often this owner beats; zero for one that does not, after owners that did.
    pub interval: Duration,
    /// The number of the takeover that made it the owner; the same as [`StoreActivity::writer_epoch`].
    pub writer_epoch: u64,
    /// The owner closed the store cleanly; nobody owns it.
    pub closed: bool,
}

/// What a reader last saw happen to its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreActivity {
    /// When the newest row that is in a table, not only in the log, was written: the owner's store clock, in
    /// milliseconds since the Unix epoch. `None` before the first table.
    pub last_flush_at_ms: Option<u64>,
    /// The number of the last takeover that the reader knows of; it may learn of one only with the next table.
    pub writer_epoch: u64,
    /// Every commit up to this sequence is visible to the reader.
    pub durable_seq: u64,
}
