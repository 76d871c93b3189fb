//! Sending: the one part of the inbox that the other process runs. It has no store, only rights to a folder.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use ulid::Ulid;

use crate::env;
use crate::error::{Error, Result};
use crate::inbox::names::Folder;
use crate::inbox::{EntryRead, InboxEntry, PendingEntry, Rejection};
use crate::limits;
use crate::name::QueueName;
use crate::object_store::{self, ObjectStore, ObjectStoreExt, PutPayload};
use crate::state::ids::{self, Ids};
use crate::store::deadline::Deadline;

/// Deadline of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before the one more attempt to touch the inbox.
const TOUCH_AGAIN: Duration = Duration::from_secs(1);

/// Leaves requests for the owner of a store in its inbox ([`OpenOptions::inbox`](crate::OpenOptions::inbox)), from any
/// process that may write objects there. It needs the right to put objects under the inbox's path, and nothing else;
/// [`pending`](Self::pending) also that to list, [`read`](Self::read) that to get. Sending costs two PUTs.
///
/// What one sender sends to one queue is applied in the order in which the calls began. Between senders the order is that
/// of their clocks.
///
/// ```
/// # tokio_test(async {
/// use std::sync::Arc;
/// use taquba::{EnqueueEntry, InboxOptions, InboxSender, OpenOptions, Queue};
/// use taquba::{default_inbox_path, object_store::memory::InMemory};
///
/// let bucket = Arc::new(InMemory::new());
/// // In one process: the owner says which queues take requests.
/// let options = OpenOptions::default().inbox(InboxOptions::new(["mail"]));
/// let queue = Queue::open_with_options(bucket.clone(), "jobs", options).await?;
///
/// // In another one: the id makes it the same request however often it is sent.
/// let sender = InboxSender::new(bucket, &default_inbox_path("jobs"));
/// sender.send_with_id("mail", "order-7", EnqueueEntry::new("hello")).await?;
///
/// // The owner sees it within two seconds, or now:
/// queue.apply_inbox_now().await?;
/// assert!(queue.view().inbox_record("mail", "order-7").await?.is_some());
/// assert_eq!(queue.view().stats("mail").await?.pending, 1);
/// # queue.close().await
/// # });
/// # fn tokio_test<F: Future<Output = Result<(), taquba::Error>>>(f: F) {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(f).unwrap();
/// # }
/// ```
#[derive(Debug)]
pub struct InboxSender {
    store: Arc<dyn ObjectStore>,
    folder: Folder,
    ids: Ids,
}

impl InboxSender {
    /// A sender to the inbox at `path`: [`default_inbox_path`](crate::default_inbox_path) of the store's, unless its owner
    /// chose another. Makes no request.
    pub fn new(object_store: Arc<dyn ObjectStore>, path: &str) -> Self {
        Self {
            store: Arc::new(Deadline::aside(object_store, REQUEST_TIMEOUT, path)),
            folder: Folder::new(path),
            ids: Ids::after(0, env::id_entropy),
        }
    }

    /// Sends an entry to a queue and returns its id, by which the owner's
    /// [`inbox_record`](crate::QueueView::inbox_record) tells what became of it. On return the entry is in the inbox; the
    /// owner applies it, or rejects it, once. A call that failed may have sent it all the same: to be able to send again,
    /// give it an id of your own ([`send_with_id`](Self::send_with_id)).
    ///
    /// # Errors
    /// [`Error::InvalidQueueName`]; [`Error::TooLarge`] past 16 MiB; [`Error::InboxStore`] when the object could not be
    /// written. That the owner cannot be told of it at once is no error: it looks by itself
    /// ([`InboxOptions::interval`](crate::InboxOptions::interval)).
    ///
    /// # Cancel safety
    /// Dropped, the entry may or may not be sent.
    pub async fn send(&self, queue: &str, entry: impl Into<InboxEntry>) -> Result<String> {
        let order = self.order();
        let id = ids::text(order);
        self.put(queue, order, &id, &entry.into()).await?;
        Ok(id)
    }

    /// As [`send`](Self::send) under an id of the caller's: 1..=64 bytes of `[A-Za-z0-9_-]`, that the queue sees once.
    /// Sent again, by whomever and whatever it says then, it is the same entry, as long as the owner remembers it
    /// ([`InboxOptions::record_retention`](crate::InboxOptions::record_retention)).
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::InvalidId`].
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_with_id(
        &self,
        queue: &str,
        id: &str,
        entry: impl Into<InboxEntry>,
    ) -> Result<()> {
        limits::check_inbox_id(id)?;
        self.put(queue, self.order(), id, &entry.into()).await
    }

    fn order(&self) -> u128 {
        self.ids.next(env::wall_ms())
    }

    async fn put(&self, queue: &str, order: u128, id: &str, entry: &InboxEntry) -> Result<()> {
        QueueName::new(queue)?;
        let bytes = entry.encode().map_err(Error::Deserialization)?;
        limits::check("inbox entry bytes", bytes.len(), limits::MAX_INBOX_ENTRY_SIZE)?;
        let at = self.folder.entry(queue, &entry.kind(), Ulid::from(order), id);
        self.store.put(&at, bytes.into()).await.map_err(Error::InboxStore)?;
        // Now that the entry is there: who hears of the touch finds it.
        if self.touch(order).await.is_err() {
            env::sleep(TOUCH_AGAIN).await;
            if let Err(error) = self.touch(order).await {
                tracing::warn!(%error, "the inbox's owner was not told; it looks by itself");
            }
        }
        Ok(())
    }

    /// Makes the touch object another one than it was, by any measure.
    async fn touch(&self, order: u128) -> Result<(), object_store::Error> {
        let text = PutPayload::from(Bytes::from(ids::text(order)));
        self.store.put(&self.folder.touch(), text).await.map(drop)
    }

    /// Returns the entries of a queue that wait in the inbox, in the order in which they will be applied. One LIST per 1,000.
    ///
    /// # Errors
    /// [`Error::InvalidQueueName`]; [`Error::InboxStore`].
    pub async fn pending(&self, queue: &str) -> Result<Vec<PendingEntry>> {
        QueueName::new(queue)?;
        let listed = self.store.list(Some(&self.folder.queue(queue)));
        let entries = listed.try_filter_map(|meta| async move { Ok(self.folder.parse(&meta)) });
        let mut entries: Vec<_> = entries.try_collect().await.map_err(Error::InboxStore)?;
        entries.sort_by(|a, b| (a.order, a.id(), &a.at).cmp(&(b.order, b.id(), &b.at)));
        Ok(entries)
    }

    /// Reads a waiting entry, as the owner will.
    ///
    /// # Errors
    /// [`Error::InboxStore`].
    pub async fn read(&self, entry: &PendingEntry) -> Result<EntryRead> {
        if let Err(rejection) = check(entry) {
            return Ok(EntryRead::Rejected(rejection));
        }
        match fetch(self.store.as_ref(), entry).await {
            Ok(Fetched::Bytes(bytes)) => Ok(match InboxEntry::decode(entry.kind(), &bytes) {
                Ok(entry) => EntryRead::Entry(entry),
                Err(rejection) => EntryRead::Rejected(rejection),
            }),
            Ok(Fetched::TooLarge(size)) => Ok(EntryRead::Rejected(Rejection::TooLarge { size })),
            Ok(Fetched::Gone) => Ok(EntryRead::Missing),
            Err(error) => Err(Error::InboxStore(error)),
        }
    }
}

/// Refuses what shows without a look inside.
pub(super) fn check(entry: &PendingEntry) -> std::result::Result<(), Rejection> {
    if matches!(entry.kind, crate::inbox::EntryKind::Unknown(_)) {
        return Err(Rejection::UnknownKind);
    }
    if entry.order.is_none() {
        return Err(Rejection::Unordered);
    }
    if let Err(Error::InvalidId { reason, .. }) = limits::check_inbox_id(&entry.id) {
        return Err(Rejection::InvalidId { reason: reason.to_owned() });
    }
    if entry.size > limits::MAX_INBOX_ENTRY_SIZE as u64 {
        return Err(Rejection::TooLarge { size: entry.size });
    }
    Ok(())
}

/// What a look at an entry's object gave.
pub(super) enum Fetched {
    Bytes(Bytes),
    /// It was replaced by something larger since it was listed.
    TooLarge(u64),
    Gone,
}

/// Gets an entry's bytes.
pub(super) async fn fetch(
    store: &dyn ObjectStore,
    entry: &PendingEntry,
) -> std::result::Result<Fetched, object_store::Error> {
    let got = match store.get(&entry.at).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => return Ok(Fetched::Gone),
        Err(error) => return Err(error),
    };
    if got.meta.size > limits::MAX_INBOX_ENTRY_SIZE as u64 {
        return Ok(Fetched::TooLarge(got.meta.size));
    }
    got.bytes().await.map(Fetched::Bytes)
}
