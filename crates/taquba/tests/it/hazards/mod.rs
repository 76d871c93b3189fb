//! The eleven hazards of DESIGN.md section 3, a file each (11 in two, and one for what falls due in bulk); here what
//! they share: a bucket whose requests can be counted, held and refused, and ways to wait without a clock.

mod hazard_01_undurable_answers;
mod hazard_02_abort;
mod hazard_03_deferred_flush;
mod hazard_04_fenced;
mod hazard_05_stalled_gets;
mod hazard_06_page_boundaries;
mod hazard_07_clock_back;
mod hazard_08_dropped_claims;
mod hazard_09_churn;
mod hazard_10_first_open;
mod hazard_11_close_under_load;
mod in_bulk;
mod outage;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use taquba::object_store::memory::InMemory;
use taquba::object_store::path::Path;
use taquba::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use taquba::{OpenOptions, Queue};
use tokio::sync::watch;

/// Kinds of requests, as bits.
const WAL_PUT: usize = 1;
const TABLE_GET: usize = 1 << 1;
const OTHER: usize = 1 << 2;
const ALL: usize = WAL_PUT | TABLE_GET | OTHER;

/// How a bucket goes down at one of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Down {
    /// From this request on nothing has an effect, and each answers an error that nobody retries.
    Before(usize),
    /// The same, but this request itself has its effect.
    After(usize),
}

/// A bucket in memory that can be told to misbehave.
#[derive(Debug)]
struct Bucket {
    inner: InMemory,
    held: watch::Sender<usize>,
    down: Option<Down>,
    calls: AtomicUsize,
    wal_puts: AtomicUsize,
    tables: AtomicUsize,
    manifests_since_table: AtomicUsize,
    /// Requests that are being held.
    waiting: AtomicUsize,
}

impl Bucket {
    fn on(inner: InMemory, down: Option<Down>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            held: watch::Sender::new(0),
            down,
            calls: AtomicUsize::new(0),
            wal_puts: AtomicUsize::new(0),
            tables: AtomicUsize::new(0),
            manifests_since_table: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        })
    }

    fn new() -> Arc<Self> {
        Self::on(InMemory::new(), None)
    }

    /// Lets no request of these kinds through, until released.
    fn hold(&self, kinds: usize) {
        self.held.send_replace(kinds);
    }

    fn release(&self) {
        self.held.send_replace(0);
    }

    /// Requests that wait to be released.
    fn held_now(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Log objects that were written.
    fn wal_puts(&self) -> usize {
        self.wal_puts.load(Ordering::SeqCst)
    }

    /// Manifests that were written since the last table was; 0 when none was.
    fn manifests_since_table(&self) -> usize {
        self.manifests_since_table.load(Ordering::SeqCst)
    }

    fn saw_table(&self) {
        self.tables.fetch_add(1, Ordering::SeqCst);
        self.manifests_since_table.store(0, Ordering::SeqCst);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// What a machine that comes up later finds.
    fn fork(&self) -> InMemory {
        self.inner.fork()
    }

    async fn pass<T>(&self, kind: usize, call: impl Future<Output = Result<T>>) -> Result<T> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let refused = || Error::NotSupported {
            source: format!("the bucket went down before request {number}").into(),
        };
        match self.down {
            Some(Down::Before(at)) if number >= at => return Err(refused()),
            Some(Down::After(at)) if number > at => return Err(refused()),
            _ => {}
        }
        let mut held = self.held.subscribe();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let free = held.wait_for(|kinds| kinds & kind == 0).await.is_ok();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        assert!(free, "the bucket outlives its requests");
        let done = call.await;
        if kind == WAL_PUT {
            self.wal_puts.fetch_add(1, Ordering::SeqCst);
        }
        match self.down {
            Some(Down::After(at)) if number == at => Err(refused()),
            _ => done,
        }
    }
}

fn is_in(at: &Path, folder: &str) -> bool {
    at.parts().any(|part| part.as_ref() == folder)
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bucket under test")
    }
}

#[async_trait]
impl ObjectStore for Bucket {
    async fn put_opts(&self, at: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let kind = if is_in(at, "wal") { WAL_PUT } else { OTHER };
        let done = self.pass(kind, self.inner.put_opts(at, body, opts)).await;
        if is_in(at, "compacted") {
            self.saw_table();
        } else if is_in(at, "manifest") && self.tables.load(Ordering::SeqCst) > 0 {
            self.manifests_since_table.fetch_add(1, Ordering::SeqCst);
        }
        done
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.pass(OTHER, self.inner.put_multipart_opts(at, opts)).await;
        if is_in(at, "compacted") {
            self.saw_table();
        }
        upload
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let kind = if is_in(at, "compacted") { TABLE_GET } else { OTHER };
        self.pass(kind, self.inner.get_opts(at, options)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        // The list is taken when it is asked for; whether it is answered is decided as for any other request.
        let listed = self.inner.list(prefix);
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let down = match self.down {
            Some(Down::Before(at)) => number >= at,
            Some(Down::After(at)) => number >= at,
            None => false,
        };
        if down {
            let source = format!("the bucket went down before request {number}").into();
            return futures_util::stream::once(async { Err(Error::NotSupported { source }) })
                .boxed();
        }
        let mut held = self.held.subscribe();
        futures_util::stream::once(async move {
            let free = held.wait_for(|kinds| kinds & OTHER == 0).await.is_ok();
            assert!(free, "the bucket outlives its requests");
            listed
        })
        .flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.pass(OTHER, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.pass(OTHER, self.inner.copy_opts(from, to, options)).await
    }
}

/// Opens the store that all of these tests use.
async fn open(bucket: &Arc<impl ObjectStore>, options: OpenOptions) -> Arc<Queue> {
    let store = Arc::clone(bucket) as Arc<dyn ObjectStore>;
    let opened = Queue::open_with_options(store, "hazards", options).await;
    Arc::new(opened.unwrap())
}

/// Opens with defaults.
async fn open_plain(bucket: &Arc<impl ObjectStore>) -> Arc<Queue> {
    open(bucket, OpenOptions::default()).await
}

/// Writes more than a memtable holds, so that what was there before is in a table from which nothing is cached yet
/// when the store is opened again.
async fn push_into_tables(bucket: &Bucket, queue: &Queue) {
    for _ in 0..80 {
        // As large as stays in the store.
        queue.enqueue("filler", vec![0; 256 * 1_024]).await.unwrap();
    }
    until("a table is written and named", async || bucket.manifests_since_table() > 0).await;
}

/// Lets everybody else go on until they all wait for something.
async fn step_back() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Waits until `done`, for a bounded number of short steps.
async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    for _ in 0..2_000 {
        if done().await {
            return;
        }
        taquba::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to be that {what}");
}

/// Runs `call`, which must end within `limit` of the runtime's time (paused or not).
async fn within<T>(limit: Duration, what: &str, call: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = call => done,
        () = pass(limit) => panic!("no end within {limit:?}: {what}"),
    }
}

/// Lets time pass, in short steps: what is due in between happens in between.
async fn pass(time: Duration) {
    let step = Duration::from_millis(50);
    for _ in 0..time.as_millis().div_ceil(step.as_millis()) {
        taquba::time::sleep(step).await;
    }
}
