//! How a store is opened for reading. Plain values with their units and defaults.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::object_store::ObjectStore;
use crate::store::reader::Following;

/// How a reader sees to it that what it reads stays there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReaderMode {
    /// It notes in the store what it reads, so that the owner's garbage collection leaves that alone. The note is a
    /// small write now and then, so it needs credentials that may write (else open fails); the owner is not disturbed.
    #[default]
    ManagedCheckpoint,
    /// It writes nothing: credentials that may read and list suffice. A read that began more than five minutes after
    /// the reader last caught up may find an object gone, and fails; after the next poll it succeeds.
    FollowLatest,
}

/// How a store is opened for reading.
#[derive(Clone)]
pub struct ReaderOptions {
    /// Default [`ReaderMode::ManagedCheckpoint`].
    pub mode: ReaderMode,
    /// How often it looks for news, and so how far it is behind at most. Default 10 s; not zero. Each look is a handful
    /// of reads, and two for each new object of the log.
    pub manifest_poll_interval: Duration,
    /// How long the note of [`ReaderMode::ManagedCheckpoint`] lasts when it is not renewed. Default 10 min; at least
    /// 1 s, and twice [`manifest_poll_interval`](Self::manifest_poll_interval).
    pub checkpoint_lifetime: Duration,
    /// Where the owner has its write-ahead log, if not in the same store.
    pub wal_object_store: Option<Arc<dyn ObjectStore>>,
    /// Where the owner has its payload objects, if not in the same store.
    pub payload_store: Option<Arc<dyn ObjectStore>>,
    /// Under which path the owner has its payload objects, if not the store's own with `-payloads` behind it.
    pub payload_path: Option<String>,
    /// Reads no log: cheaper, and behind by all that the owner has not written to a table yet, which is up to 1,000
    /// log objects or 16 MiB. Default false.
    pub skip_wal_replay: bool,
    /// Deadline of one request to the object store; past it the request is retried. Default 30 s.
    pub store_request_timeout: Duration,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            mode: ReaderMode::default(),
            manifest_poll_interval: Duration::from_secs(10),
            checkpoint_lifetime: Duration::from_secs(600),
            wal_object_store: None,
            payload_store: None,
            payload_path: None,
            skip_wal_replay: false,
            store_request_timeout: Duration::from_secs(30),
        }
    }
}

impl ReaderOptions {
    /// Sets [`mode`](Self::mode).
    #[must_use]
    pub fn mode(mut self, mode: ReaderMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets [`manifest_poll_interval`](Self::manifest_poll_interval).
    #[must_use]
    pub fn manifest_poll_interval(mut self, interval: Duration) -> Self {
        self.manifest_poll_interval = interval;
        self
    }

    /// Sets [`checkpoint_lifetime`](Self::checkpoint_lifetime).
    #[must_use]
    pub fn checkpoint_lifetime(mut self, lifetime: Duration) -> Self {
        self.checkpoint_lifetime = lifetime;
        self
    }

    /// Sets [`wal_object_store`](Self::wal_object_store).
    #[must_use]
    pub fn wal_object_store(mut self, store: impl Into<Option<Arc<dyn ObjectStore>>>) -> Self {
        self.wal_object_store = store.into();
        self
    }

    /// Sets [`payload_store`](Self::payload_store).
    #[must_use]
    pub fn payload_store(mut self, store: impl Into<Option<Arc<dyn ObjectStore>>>) -> Self {
        self.payload_store = store.into();
        self
    }

    /// Sets [`payload_path`](Self::payload_path).
    #[must_use]
    pub fn payload_path(mut self, path: impl Into<Option<String>>) -> Self {
        self.payload_path = path.into();
        self
    }

    /// Sets [`skip_wal_replay`](Self::skip_wal_replay).
    #[must_use]
    pub fn skip_wal_replay(mut self, skip: bool) -> Self {
        self.skip_wal_replay = skip;
        self
    }

    /// Sets [`store_request_timeout`](Self::store_request_timeout).
    #[must_use]
    pub fn store_request_timeout(mut self, limit: Duration) -> Self {
        self.store_request_timeout = limit;
        self
    }

    /// Checks them.
    pub(super) fn following(&self) -> Result<Following> {
        let refuse = |option, reason| Err(Error::InvalidOption { option, reason });
        let poll = self.manifest_poll_interval;
        if poll.is_zero() {
            return refuse("manifest_poll_interval", "must not be zero");
        }
        let guarded = self.mode == ReaderMode::ManagedCheckpoint;
        let least = poll.saturating_mul(2).max(Duration::from_secs(1));
        if guarded && self.checkpoint_lifetime < least {
            return refuse(
                "checkpoint_lifetime",
                "must be at least 1 s and twice the manifest_poll_interval",
            );
        }
        Ok(Following {
            guarded,
            poll,
            checkpoint_lifetime: self.checkpoint_lifetime,
            skip_log: self.skip_wal_replay,
        })
    }
}
