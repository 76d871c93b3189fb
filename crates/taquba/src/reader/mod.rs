//! Reading a store from any process, beside its owner: the thin public surface over `store::reader`.

mod options;

use std::sync::Arc;

use crate::error::Result;
use crate::limits;
use crate::liveness::{StoreActivity, WriterHeartbeat};
use crate::object_store::ObjectStore;
use crate::queue::QueueView;
use crate::store::db::Location;
use crate::store::objects::Objects;
use crate::store::reader::Reader;

pub use options::{ReaderMode, ReaderOptions};

/// A store open for reading only, beside the process that owns it: it never fences, and any number may read.
///
/// It sees whole commits, each at the latest one [`poll`](ReaderOptions::manifest_poll_interval) after it became
/// durable. A read goes to the bucket only for what it has not cached. In an outage reads wait for the bucket; bound
/// them as you need. Dropping it is like [`close`](Self::close).
///
/// ```
/// # tokio_test(async {
/// use std::sync::Arc;
/// use taquba::{Queue, QueueReader, object_store::memory::InMemory};
///
/// let bucket = Arc::new(InMemory::new());
/// let queue = Queue::open(bucket.clone(), "jobs").await?;
/// queue.enqueue("mail", b"hello".to_vec()).await?;
///
/// // In another process, with the bucket's read and write rights, or read-only in `ReaderMode::FollowLatest`.
/// let reader = QueueReader::open(bucket, "jobs").await?;
/// assert_eq!(reader.view().stats("mail").await?.pending, 1);
/// reader.close().await?;
/// # queue.close().await
/// # });
/// # fn tokio_test<F: Future<Output = Result<(), taquba::Error>>>(f: F) {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(f).unwrap();
/// # }
/// ```
pub struct QueueReader {
    reader: Arc<Reader>,
    view: QueueView,
}

impl QueueReader {
    /// Opens the store at `path` for reading, with default options.
    ///
    /// # Errors
    /// [`Error::StoreNotInitialized`](crate::Error::StoreNotInitialized) when there is no queue store there (yet; the
    /// same call can succeed later); [`Error::Format`](crate::Error::Format) for something else or a newer format;
    /// [`Error::Storage`](crate::Error::Storage) when the object store refuses.
    pub async fn open(object_store: Arc<dyn ObjectStore>, path: &str) -> Result<Self> {
        Self::open_with_options(object_store, path, ReaderOptions::default()).await
    }

    /// Opens the store at `path` for reading.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::InvalidOption`](crate::Error::InvalidOption) for what is wrong in `options`.
    pub async fn open_with_options(
        object_store: Arc<dyn ObjectStore>,
        path: &str,
        options: ReaderOptions,
    ) -> Result<Self> {
        let following = options.following()?;
        let path = limits::check_path(path)?;
        let location = Location::for_reader(
            path,
            object_store,
            options.wal_object_store,
            options.store_request_timeout,
        );
        let chosen = (options.payload_store, options.payload_path.as_deref());
        let objects = Objects::of(&location, chosen, options.store_request_timeout)?;
        let reader = Arc::new(Reader::open(&location, following).await?);
        let view = QueueView::lagging(Arc::clone(&reader), objects);
        Ok(Self { reader, view })
    }

    /// Returns the view: stats, listings, records, KV reads, as of the last time that the reader caught up. Clones of
    /// it keep the reader going.
    #[must_use]
    pub fn view(&self) -> &QueueView {
        &self.view
    }

    /// Returns what the reader last saw happen to the store. Makes no request.
    #[must_use]
    pub fn last_store_activity(&self) -> StoreActivity {
        self.reader.activity()
    }

    /// Returns the last beat of the owner that the reader knows of; `None` when no owner ever beat.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) after a close; [`Error::Storage`](crate::Error::Storage).
    pub async fn writer_heartbeat(&self) -> Result<Option<WriterHeartbeat>> {
        self.view.writer_heartbeat().await
    }

    /// Stops following the store. Reads of its views answer [`Error::Closed`](crate::Error::Closed) from then on.
    ///
    /// # Errors
    /// [`Error::Storage`](crate::Error::Storage) when its note in the store could not be removed
    /// ([`ReaderMode::ManagedCheckpoint`]); it lapses by itself.
    pub async fn close(&self) -> Result<()> {
        self.reader.close().await
    }
}

impl std::fmt::Debug for QueueReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueReader").field("path", &self.reader.path()).finish_non_exhaustive()
    }
}
