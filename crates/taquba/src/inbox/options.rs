//! How an owner looks after its inbox. Plain values with their units and defaults.

use std::sync::Arc;
use std::time::Duration;

use crate::object_store::ObjectStore;

/// How often the inbox is listed whether or not it was touched (60 s).
pub const DEFAULT_INBOX_INTERVAL: Duration = Duration::from_secs(60);
/// How often the inbox is asked whether it was touched (2 s).
pub const DEFAULT_INBOX_TOUCH_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long it is remembered what became of an entry (7 days).
pub const DEFAULT_INBOX_RECORD_RETENTION: Duration = Duration::from_secs(7 * 24 * 3_600);

/// How an owner looks after its inbox ([`OpenOptions::inbox`](crate::OpenOptions::inbox)): a folder of objects in which
/// other processes, with nothing but rights to that folder, leave requests ([`InboxSender`](crate::InboxSender)).
///
/// While nothing comes it costs one HEAD each [`touch_poll_interval`](Self::touch_poll_interval) and one LIST each
/// [`interval`](Self::interval): at the defaults 43,200 HEADs and 1,440 LISTs a day. What comes costs a GET per entry, and
/// per 1,000 entries a LIST, a deletion (one per entry where the store deletes singly) and a share of the PUTs that commit
/// their effects.
#[derive(Debug, Clone)]
pub struct InboxOptions {
    /// How often it is listed whether or not it was touched: how late an entry is at most whose sender died before it
    /// could touch the inbox. Default 60 s; not zero.
    pub interval: Duration,
    /// How often it is asked whether a sender touched it, and so how late an entry most often is. `None` never asks.
    /// Default 2 s; not zero.
    pub touch_poll_interval: Option<Duration>,
    /// Where it is; `None` (default): in the store's own object store.
    pub object_store: Option<Arc<dyn ObjectStore>>,
    /// Under which path; `None` (default): [`default_inbox_path`] of the store's. It may neither lie within the store's
    /// path nor contain it, and belongs to one store.
    pub path: Option<String>,
    /// The queues that take entries. Those for others are rejected.
    pub queues: Vec<String>,
    /// How long it is remembered what became of an entry: within it, the same entry happens once, however often it comes.
    /// Default 7 days; not zero.
    pub record_retention: Duration,
}

impl InboxOptions {
    /// Takes entries for these queues, all else as by default.
    pub fn new(queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            interval: DEFAULT_INBOX_INTERVAL,
            touch_poll_interval: Some(DEFAULT_INBOX_TOUCH_POLL_INTERVAL),
            object_store: None,
            path: None,
            queues: queues.into_iter().map(Into::into).collect(),
            record_retention: DEFAULT_INBOX_RECORD_RETENTION,
        }
    }

    /// Sets [`interval`](Self::interval).
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets [`touch_poll_interval`](Self::touch_poll_interval).
    #[must_use]
    pub fn touch_poll_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.touch_poll_interval = interval.into();
        self
    }

    /// Sets [`object_store`](Self::object_store).
    #[must_use]
    pub fn object_store(mut self, store: impl Into<Option<Arc<dyn ObjectStore>>>) -> Self {
        self.object_store = store.into();
        self
    }

    /// Sets [`path`](Self::path).
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Sets [`queues`](Self::queues).
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Sets [`record_retention`](Self::record_retention).
    #[must_use]
    pub fn record_retention(mut self, retention: Duration) -> Self {
        self.record_retention = retention;
        self
    }
}

/// Returns where the inbox of the store at `path` is, unless [`InboxOptions::path`] says otherwise: the path with `-inbox`
/// after it.
#[must_use]
pub fn default_inbox_path(path: &str) -> String {
    format!("{}-inbox", path.trim_end_matches('/'))
}
