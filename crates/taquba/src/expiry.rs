//! An index of a caller's own rows by time, with what a pass over it decides of each. Values; the pass itself is the
//! queue's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::effects::SettlementEffects;

/// Rows of the caller under one prefix, each with a time in its key, so that those whose time is over are found without
/// a look at the others. Entries are written with
/// [`SettlementEffects::expiry_entry`] and passed over with [`ExpiryIndex::pass`].
///
/// Clones share what this process knows of the earliest entry: a pass before that is due reads nothing. An entry that is
/// written in another way than through `expiry_entry` is found only once something lowers that, such as a new index.
#[derive(Debug, Clone)]
pub struct ExpiryIndex {
    prefix: Arc<[u8]>,
    /// No entry has an earlier time.
    bound_ms: Arc<AtomicU64>,
}

/// What becomes of an entry whose time is over.
#[derive(Debug, Clone)]
pub enum Expired {
    /// It goes, with these effects in the same commit.
    Delete(SettlementEffects),
    /// It goes, with these effects, if a row has the expected value (`None`: is absent); else it stays.
    DeleteIf {
        /// The row's key.
        key: Vec<u8>,
        /// Its value.
        expected: Option<Vec<u8>>,
        /// What commits with it.
        effects: SettlementEffects,
    },
    /// It stays, and the next pass finds it again.
    Keep,
}

impl ExpiryIndex {
    /// Makes an index of the rows under `prefix`.
    pub fn new(prefix: impl AsRef<[u8]>) -> Self {
        Self { prefix: prefix.as_ref().into(), bound_ms: Arc::default() }
    }

    /// Returns the key of an entry: the prefix, the time in milliseconds since the Unix epoch as 8 bytes, most
    /// significant first, and the suffix.
    #[must_use]
    pub fn entry_key(&self, at_ms: u64, suffix: &[u8]) -> Vec<u8> {
        [&self.prefix[..], &at_ms.to_be_bytes(), suffix].concat()
    }

    /// Returns the time and the suffix in an entry's key; `None` for a key that is none.
    #[must_use]
    pub fn parse<'a>(&self, key: &'a [u8]) -> Option<(u64, &'a [u8])> {
        let (time, suffix) = key.strip_prefix(&self.prefix[..])?.split_first_chunk()?;
        Some((u64::from_be_bytes(*time), suffix))
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The earliest time that an entry may have.
    pub(crate) fn bound_ms(&self) -> u64 {
        self.bound_ms.load(Ordering::SeqCst)
    }

    /// Entries of this time may be there.
    pub(crate) fn lower(&self, at_ms: u64) {
        self.bound_ms.fetch_min(at_ms, Ordering::SeqCst);
    }

    /// A pass begins: from here on the bound says what comes in beside it.
    pub(crate) fn take_bound(&self) -> u64 {
        self.bound_ms.swap(u64::MAX, Ordering::SeqCst)
    }
}
