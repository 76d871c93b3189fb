//! SlateDB behind a narrow door: commit a batch and get its sequence, watch durability, get, scan, flush, close.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use slatedb::admin::Admin;
use slatedb::config::{FlushOptions, FlushType, Settings};
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use slatedb::db_cache::{DbCache, SplitCache};
use slatedb::{Db, DbStatus, ErrorKind};
use tokio::sync::watch;

use super::clock::StoreClock;
use super::deadline::Deadline;
use super::rows::Batch;
use super::snapshot::Snapshot;
use crate::error::{CloseReason, Error, Result};
use crate::object_store::ObjectStore;
use crate::telemetry;

/// Cache of indexes and filters, which every absent key and every scan needs (24 MiB), and of data blocks (40 MiB).
const META_CACHE_BYTES: u64 = 24 * 1_024 * 1_024;
const BLOCK_CACHE_BYTES: u64 = 40 * 1_024 * 1_024;
/// A memtable of this size goes to the object store (16 MiB), so that replay after a crash and memory stay small.
const L0_BYTES: usize = 16 * 1_024 * 1_024;
/// SlateDB stops taking writes at this many memtables' bytes in memory (64 MiB). The engine stops admitting work
/// before.
const UNFLUSHED_MEMTABLES: usize = 4;
pub(crate) const MAX_UNFLUSHED_BYTES: usize = UNFLUSHED_MEMTABLES * L0_BYTES;
/// Level-0 tables past which SlateDB writes no more, which is out of reach: it would wait for a compaction, and while it
/// opens a store nobody compacts. An owner that dies again and again leaves a few tables each time, and its next
/// opening must not wait for ever. New work waits at [`L0_MANY`].
const L0_MAX: usize = 65_536;
/// Level-0 tables at which the engine admits no new work until compaction has caught up (2 GiB of them: a compaction
/// that died with its process is taken over after half a minute).
pub(crate) const L0_MANY: usize = 128;
/// How often an open is tried that finds something in its way.
const OPEN_TRIES: u32 = 3;
/// Polling is off: ownership is proved by PUTs and refreshes on demand, compaction runs on demand.
const NEVER: Duration = Duration::from_secs(24 * 3_600);

/// Where a store is, for those who open it again beside the writer (compaction, garbage collection).
#[derive(Clone)]
pub(crate) struct Location {
    pub(crate) path: String,
    pub(crate) main: Arc<dyn ObjectStore>,
    pub(crate) wal: Option<Arc<dyn ObjectStore>>,
}

impl Location {
    /// Bounds each request of both stores.
    pub(crate) fn new(
        path: &str,
        main: Arc<dyn ObjectStore>,
        wal: Option<Arc<dyn ObjectStore>>,
        request_timeout: Duration,
    ) -> Self {
        let bound = |inner| Arc::new(Deadline::new(inner, request_timeout)) as Arc<dyn ObjectStore>;
        Self { path: path.to_owned(), main: bound(main), wal: wal.map(bound) }
    }

    /// The same, where a write that is denied is not retried.
    pub(crate) fn for_reader(
        path: &str,
        main: Arc<dyn ObjectStore>,
        wal: Option<Arc<dyn ObjectStore>>,
        request_timeout: Duration,
    ) -> Self {
        let bound =
            |inner| Arc::new(Deadline::for_reader(inner, request_timeout)) as Arc<dyn ObjectStore>;
        Self { path: path.to_owned(), main: bound(main), wal: wal.map(bound) }
    }
}

/// An open store.
#[derive(Clone)]
pub(crate) struct Store {
    db: Db,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) location: Location,
    /// SlateDB stops taking writes when this much is in memory only.
    pub(crate) unflushed_max: usize,
}

impl Store {
    /// Opens (and so takes over) the store at a location, creating it when there is none. With `after`, only as the one
    /// owner that follows the owner of this epoch; who else was quicker has the store, and this answers that it is
    /// fenced. `memtable_bytes` is in place of [`L0_BYTES`], in tests.
    pub(crate) async fn open(
        location: Location,
        clock: StoreClock,
        after: Option<u64>,
        memtable_bytes: Option<usize>,
    ) -> Result<Self> {
        let clock = Arc::new(clock);
        let l0_bytes = memtable_bytes.unwrap_or(L0_BYTES);
        let mut tries = 1;
        let db = loop {
            // Before the replay, which may write tables: none may be older than those that are there.
            clock.raise(newest_table(&location).await?.unwrap_or(0));
            match Self::build(&location, &clock, after, l0_bytes).await {
                // Two first opens at once: who did not create the manifest finds it at the next try. Or the last owner
                // wrote a table after we looked for the newest: it is fenced now, so the next look is final.
                Err(error) if passes(error.kind()) && tries < OPEN_TRIES => tries += 1,
                built => break built?,
            }
        };
        Ok(Self { db, clock, location, unflushed_max: UNFLUSHED_MEMTABLES * l0_bytes })
    }

    async fn build(
        location: &Location,
        clock: &Arc<StoreClock>,
        after: Option<u64>,
        l0_bytes: usize,
    ) -> Result<Db, slatedb::Error> {
        let settings = Settings {
            flush_interval: None,
            manifest_poll_interval: NEVER,
            l0_sst_size_bytes: l0_bytes,
            l0_max_ssts: L0_MAX,
            l0_max_ssts_per_key: L0_MAX,
            max_unflushed_bytes: UNFLUSHED_MEMTABLES * l0_bytes,
            min_filter_keys: 0,
            compactor_options: None,
            garbage_collector_options: None,
            ..Settings::default()
        };
        let mut builder = Db::builder(location.path.clone(), Arc::clone(&location.main))
            .with_settings(settings)
            .with_system_clock(Arc::clone(clock) as Arc<dyn slatedb_common::clock::SystemClock>)
            .with_db_cache(cache(), 0);
        if let Some(epoch) = after {
            builder = builder.with_expected_epoch(epoch);
        }
        if let Some(recorder) = telemetry::engine_recorder() {
            builder = builder.with_metrics_recorder(recorder);
        }
        if let Some(wal) = &location.wal {
            builder = builder.with_wal_object_store(Arc::clone(wal));
        }
        builder.build().await
    }

    /// Writes a batch to memory and the log's buffer; answers its sequence. Durable once the watermark says so.
    pub(crate) async fn write(&self, batch: Batch) -> Result<u64> {
        Ok(self.db.write(batch.inner).await?.seqnum())
    }

    /// Pushes the log's buffer to the object store.
    pub(crate) async fn flush(&self) -> Result<()> {
        Ok(self.db.flush().await?)
    }

    /// Writes the memtable to the object store, so that replay starts after it.
    pub(crate) async fn flush_memtable(&self) -> Result<()> {
        let options = FlushOptions { flush_type: FlushType::MemTable };
        Ok(self.db.flush_with_options(options).await?)
    }

    /// Reads the manifest: proof of ownership, or the news that it is lost.
    pub(crate) async fn refresh(&self) -> Result<()> {
        Ok(self.db.refresh_manifest().await?)
    }

    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.db.get(key).await?)
    }

    /// A view of one moment, for reads that must fit together.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::of_owner(self.db.snapshot()?))
    }

    /// Durability and the end of the store.
    pub(crate) fn progress(&self) -> Progress {
        Progress { status: self.db.subscribe() }
    }

    /// Closes without a last memtable flush: everything is in the log already.
    pub(crate) async fn close(&self) -> Result<()> {
        let options = slatedb::config::CloseOptions { flush_type: None };
        Ok(self.db.close_with_options(options).await?)
    }
}

/// Whether an open that failed so may succeed at the next try.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Data | ErrorKind::Invalid)
}

/// The latest time that a table of the store carries, in its rows or its name; 0 when it has none yet. `None` when
/// there is no store.
pub(super) async fn newest_table(location: &Location) -> Result<Option<u64>> {
    let admin = Admin::builder(location.path.clone(), Arc::clone(&location.main)).build();
    let Some(manifest) = admin.read_manifest(None).await? else { return Ok(None) };
    let last_tick = u64::try_from(manifest.last_l0_clock_tick()).unwrap_or(0);
    let tables = manifest.l0().iter().map(|view| view.sst.id.value());
    let compacted = [manifest.last_compacted_l0_sst_id(), manifest.last_compacted_l0_sst_view_id()];
    let names = tables.chain(compacted.into_iter().flatten());
    Ok(Some(names.map(|name| name.timestamp_ms()).fold(last_tick, u64::max)))
}

/// A cache of a store's own.
pub(super) fn cache() -> Arc<dyn DbCache> {
    let part = |bytes| {
        let options = MokaCacheOptions { max_capacity: bytes, ..MokaCacheOptions::default() };
        Some(Arc::new(MokaCache::new_with_opts(options)) as Arc<dyn DbCache>)
    };
    let cache = SplitCache::new()
        .with_block_cache(part(BLOCK_CACHE_BYTES))
        .with_meta_cache(part(META_CACHE_BYTES));
    Arc::new(cache.build())
}

/// Watches what is durable and whether the store still is ours.
#[derive(Clone)]
pub(crate) struct Progress {
    status: watch::Receiver<DbStatus>,
}

impl Progress {
    /// Every write of at most this sequence is in the object store.
    pub(crate) fn durable_seq(&self) -> u64 {
        self.status.borrow().durable_seq
    }

    /// The same, and from here on [`changed`](Self::changed) tells only of later news.
    pub(crate) fn take_durable_seq(&mut self) -> u64 {
        self.status.borrow_and_update().durable_seq
    }

    /// Why the store ended, if it did.
    pub(crate) fn ended(&self) -> Option<CloseReason> {
        self.status.borrow().close_reason.as_ref().map(close_reason)
    }

    /// The number of this taking-over, as the store engine counts them.
    pub(crate) fn writer_epoch(&self) -> u64 {
        self.status.borrow().current_manifest.writer_epoch()
    }

    /// How many level-0 tables wait for compaction.
    pub(crate) fn l0_tables(&self) -> usize {
        self.status.borrow().current_manifest.l0().len()
    }

    /// Every write of at most this sequence is in a table and no longer in memory.
    pub(crate) fn stored_seq(&self) -> u64 {
        self.status.borrow().current_manifest.last_l0_seq()
    }

    /// Returns when anything of it changed; an error when the store is gone.
    pub(crate) async fn changed(&mut self) -> Result<(), CloseReason> {
        match self.status.changed().await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().unwrap_or(CloseReason::Closed)),
        }
    }
}

fn close_reason(reason: &slatedb::CloseReason) -> CloseReason {
    match reason {
        slatedb::CloseReason::Clean => CloseReason::Closed,
        slatedb::CloseReason::Fenced => CloseReason::Fenced,
        other => CloseReason::Failed(format!("the storage engine stopped: {other:?}")),
    }
}

/// Why an error of the store ends the engine; `None` when it may pass.
pub(crate) fn fatal(error: &Error) -> Option<CloseReason> {
    match error {
        Error::Closed(reason) => Some(reason.clone()),
        Error::Storage(inner) => match inner.kind() {
            ErrorKind::Unavailable => None,
            _ => Some(CloseReason::Failed(inner.to_string())),
        },
        _ => None,
    }
}
