//! What somebody meets who is new here or in a hurry: a store that refuses, a path that is not one, a claim settled
//! twice, a handle closed twice. Each is told at once and in words that name the thing.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use taquba::object_store::memory::InMemory;
use taquba::object_store::path::Path;
use taquba::object_store::{
    self, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use taquba::{CloseReason, EnqueueOptions, Error, OpenOptions, Queue, QueueConfig};
use tokio::sync::watch;

use crate::support::{now, within};

const SECOND: Duration = Duration::from_secs(1);

/// How a [`Folder`] treats the PUTs that it takes.
#[derive(Debug, Clone, Copy)]
enum Puts {
    Land,
    /// They wait, and land later even if nobody waits for them any more.
    Held,
    Fail(fn() -> object_store::Error),
    /// So many land, those after them fail.
    FailAfter(usize, fn() -> object_store::Error),
}

/// A store like a local folder: it refuses attributes, and a PUT that was begun lands.
#[derive(Debug)]
struct Folder {
    inner: Arc<InMemory>,
    puts: watch::Sender<Puts>,
    begun: AtomicUsize,
}

impl Folder {
    fn new(puts: Puts) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::default(),
            puts: watch::Sender::new(puts),
            begun: AtomicUsize::new(0),
        })
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("folder under test")
    }
}

#[async_trait]
impl ObjectStore for Folder {
    async fn put_opts(
        &self,
        at: &Path,
        body: PutPayload,
        opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        if !opts.attributes.is_empty() || matches!(opts.mode, PutMode::Update(_)) {
            let operation = "attributes".to_owned();
            return Err(object_store::Error::NotImplemented {
                operation,
                implementer: self.to_string(),
            });
        }
        let before = self.begun.fetch_add(1, Ordering::SeqCst);
        let (inner, mut puts, at) = (Arc::clone(&self.inner), self.puts.subscribe(), at.clone());
        let landing = tokio::spawn(async move {
            let now = *puts.wait_for(|puts| !matches!(puts, Puts::Held)).await.unwrap();
            match now {
                Puts::Fail(error) => Err(error()),
                Puts::FailAfter(most, error) if before >= most => Err(error()),
                _ => inner.put_opts(&at, body, opts).await,
            }
        });
        landing.await.unwrap()
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, opts).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

async fn open_on(store: Arc<dyn ObjectStore>, options: OpenOptions) -> taquba::Result<Queue> {
    Queue::open_with_options(store, "clumsy", options).await
}

async fn open() -> Queue {
    open_on(Arc::new(InMemory::new()), OpenOptions::default()).await.unwrap()
}

fn generic(kind: io::ErrorKind) -> object_store::Error {
    object_store::Error::Generic { store: "folder", source: io::Error::from(kind).into() }
}

fn no_route() -> object_store::Error {
    generic(io::ErrorKind::HostUnreachable)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_every_put_ends_open_within_the_call_timeout_and_is_quoted() {
    let limit = 5 * SECOND;
    let start = now();
    let opened =
        open_on(Folder::new(Puts::Fail(no_route)), OpenOptions::default().call_timeout(limit));
    let refused = opened.await.unwrap_err();
    assert!(now() - start <= 6 * SECOND, "{:?}", now() - start);
    let Error::StoreUnreachable { path, waited_ms, last_error } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(path, "clumsy");
    assert!((5_000..6_000).contains(waited_ms), "{waited_ms}");
    assert!(last_error.starts_with("PUT of \"clumsy/"), "{last_error}");
    assert!(last_error.contains("host unreachable"), "{last_error}");
    assert!(!refused.is_permanent());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_ends_open_within_the_call_timeout() {
    let opened = open_on(Folder::new(Puts::Held), OpenOptions::default().call_timeout(5 * SECOND));
    let refused = opened.await.unwrap_err().to_string();
    assert!(refused.contains("\"clumsy\""), "{refused}");
    assert!(refused.contains("did not answer"), "{refused}");
}

/// The storage engine would go on trying behind the back of a caller who was told that it is over, and take the store
/// over when it comes back.
#[tokio::test(start_paused = true)]
async fn an_open_that_gave_up_leaves_nobody_behind_who_tries_on() {
    for lands in 0..6 {
        let folder = Folder::new(Puts::FailAfter(lands, no_route));
        let options = OpenOptions::default().call_timeout(5 * SECOND);
        let Err(refused) = open_on(folder.clone(), options).await else { continue };
        assert!(matches!(refused, Error::StoreUnreachable { .. }), "{refused}");
        taquba::time::sleep(5 * SECOND).await;
        let begun = folder.begun.load(Ordering::SeqCst);
        taquba::time::sleep(60 * SECOND).await;
        assert_eq!(folder.begun.load(Ordering::SeqCst), begun, "after {lands} PUTs");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_want_of_permission_ends_open_at_once() {
    for refusal in [
        || object_store::Error::PermissionDenied { path: "x".into(), source: "403".into() },
        || object_store::Error::Unauthenticated { path: "x".into(), source: "401".into() },
        || generic(io::ErrorKind::PermissionDenied),
        || generic(io::ErrorKind::ReadOnlyFilesystem),
    ] {
        let start = now();
        let opened = open_on(Folder::new(Puts::Fail(refusal)), OpenOptions::default()).await;
        assert!(matches!(opened, Err(Error::StoreUnreachable { .. })), "{opened:?}");
        assert!(now() - start < SECOND, "{:?}", now() - start);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_call_and_an_unconfirmed_close_say_what_the_store_said() {
    let folder = Folder::new(Puts::Land);
    let options = OpenOptions::default().call_timeout(5 * SECOND);
    let queue = open_on(folder.clone(), options).await.unwrap();
    folder.puts.send_replace(Puts::Fail(no_route));
    let calls = [queue.enqueue("q", vec![]).await.map(drop), queue.close().await];
    for call in calls {
        let Err(Error::NotConfirmed { cause: Some(cause), .. }) = &call else { panic!("{call:?}") };
        assert!(cause.starts_with("PUT of \"clumsy/wal/"), "{cause}");
        assert!(cause.contains("host unreachable"), "{cause}");
    }
}

/// A folder's write runs on in its thread when nobody waits for it any more. Sent again, it would find itself there.
#[tokio::test(start_paused = true)]
async fn a_put_that_lands_late_on_a_store_without_attributes_fences_nobody() {
    let folder = Folder::new(Puts::Land);
    let options = OpenOptions::default().store_request_timeout(3 * SECOND);
    let queue = Arc::new(open_on(folder.clone(), options).await.unwrap());
    folder.puts.send_replace(Puts::Held);
    let begun = folder.begun.load(Ordering::SeqCst);
    let caller = Arc::clone(&queue);
    let call = tokio::spawn(async move { caller.enqueue("q", vec![1]).await });
    // Past the deadline of a request three times over.
    taquba::time::sleep(10 * SECOND).await;
    assert_eq!(folder.begun.load(Ordering::SeqCst), begun + 1, "the PUT was sent again");
    folder.puts.send_replace(Puts::Land);
    let id = call.await.unwrap().unwrap();
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    assert_eq!(claim.id, id);
    queue.ack(&claim).await.unwrap();
    queue.close().await.unwrap();
}

#[tokio::test]
async fn limits_that_nothing_could_meet_are_refused() {
    let short = Duration::from_millis(99);
    for (options, says) in [
        (OpenOptions::default().call_timeout(Duration::ZERO), "option call_timeout: must not be"),
        (
            OpenOptions::default().store_request_timeout(short),
            "option store_request_timeout: must be at least 100 ms",
        ),
        (
            OpenOptions::default().queue_config("mail", QueueConfig::default().max_attempts(0_u32)),
            "option max_attempts of queue \"mail\": must be at least 1",
        ),
        (
            OpenOptions::default()
                .queue_config("mail", QueueConfig::default().lease_duration(Duration::ZERO)),
            "option lease_duration of queue \"mail\": must not be zero",
        ),
    ] {
        let refused = open_on(Arc::new(InMemory::new()), options).await.unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
        assert!(refused.is_permanent());
    }
}

#[tokio::test]
async fn a_path_that_a_store_would_write_in_another_way_is_refused_and_named() {
    for path in ["ü", "a/../b", "..", "a/./b", "a\tb", "a%20b", "a//b", "a~b", "a*b", "a#1", "a\\b"]
    {
        let refused = Queue::open(Arc::new(InMemory::new()), path).await.unwrap_err();
        assert!(matches!(&refused, Error::InvalidPath { path: named } if named == path));
        assert!(refused.is_permanent());
        assert!(refused.to_string().contains("may hold A-Z a-z 0-9"), "{refused}");
    }
}

#[tokio::test]
async fn a_legal_path_is_the_same_store_with_and_without_outer_slashes() {
    for (path, again) in
        [("", "/"), ("a/b", "/a/b/"), ("a b.c/-_=+@!$&'(),;:", "//a b.c/-_=+@!$&'(),;:")]
    {
        let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let queue = Queue::open(Arc::clone(&bucket), path).await.unwrap();
        let id = queue.enqueue("q", vec![]).await.unwrap();
        // Not closed: what is in the log must be found there.
        drop(queue);
        let queue = Queue::open(bucket, again).await.unwrap();
        assert_eq!(queue.claim_next("q").await.unwrap().unwrap().id, id, "{path:?}");
        queue.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_damaged_manifest_is_refused_for_good_and_the_path_is_named() {
    let bucket = Arc::new(InMemory::new());
    let queue = open_on(bucket.clone(), OpenOptions::default()).await.unwrap();
    queue.close().await.unwrap();
    let all: Vec<ObjectMeta> =
        futures_util::TryStreamExt::try_collect(bucket.list(None)).await.unwrap();
    for object in all.iter().filter(|object| object.location.as_ref().contains("manifest")) {
        let junk = PutPayload::from_static(b"not a manifest");
        object_store::ObjectStoreExt::put(&*bucket, &object.location, junk).await.unwrap();
    }
    let refused = open_on(bucket, OpenOptions::default()).await.unwrap_err();
    assert!(refused.is_permanent(), "{refused:?}");
    assert!(refused.to_string().contains("store at \"clumsy\""), "{refused}");
}

#[tokio::test]
async fn a_second_ack_of_ones_own_is_told_as_one() {
    let queue = open().await;
    queue.enqueue("q", vec![]).await.unwrap();
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    queue.ack(&claim).await.unwrap();
    let refused = queue.ack(&claim).await.unwrap_err();
    assert!(matches!(refused, Error::ClaimLost));
    assert!(refused.to_string().contains("it was settled before"), "{refused}");
    queue.close().await.unwrap();
}

#[tokio::test]
async fn leases_of_a_closed_handle_are_refused_as_closed() {
    let queue = open().await;
    queue.enqueue("q", vec![]).await.unwrap();
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    let lease = queue.lease_handle(&claim);
    queue.close().await.unwrap();
    for refused in [queue.renew_lease(&claim, SECOND).map(drop), lease.ensure_at_least(SECOND)] {
        assert!(matches!(refused, Err(Error::Closed(CloseReason::Closed))), "{refused:?}");
    }
    assert!(refused_for_good(queue.enqueue("q", vec![]).await));
}

fn refused_for_good<T: fmt::Debug>(answer: taquba::Result<T>) -> bool {
    answer.unwrap_err().is_permanent()
}

#[tokio::test]
async fn what_is_too_large_is_named_and_the_advice_fits() {
    let queue = open().await;
    let name = "n".repeat(9_000);
    for (options, says) in [
        (EnqueueOptions::default().header("trace", "x".repeat(9_000)), "header \"trace\""),
        (EnqueueOptions::default().header(name, ""), "header \"nnnn"),
        (EnqueueOptions::default().dedup_key("k".repeat(2_000)), "choose a shorter key"),
    ] {
        let refused = queue.enqueue_with("q", vec![], options).await.unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
        assert!(refused.len() < 300, "{refused}");
    }
    let long = "q".repeat(100_000);
    let refused = queue.enqueue(&long, vec![]).await.unwrap_err().to_string();
    assert!(refused.contains("must be at most 255 bytes") && refused.len() < 400, "{refused}");
    queue.close().await.unwrap();
}

#[tokio::test]
async fn closing_twice_and_from_many_tasks_is_one_close() {
    let queue = Arc::new(open().await);
    queue.enqueue("q", vec![]).await.unwrap();
    let closers: Vec<_> = (0..8)
        .map(|_| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.close().await })
        })
        .collect();
    for closer in closers {
        closer.await.unwrap().unwrap();
    }
    queue.close().await.unwrap();
    assert_eq!(queue.closed().await, CloseReason::Closed);
}

#[tokio::test]
async fn closing_a_fenced_handle_again_says_fenced_again() {
    let bucket = Arc::new(InMemory::new());
    let first = open_on(bucket.clone(), OpenOptions::default()).await.unwrap();
    let second = open_on(bucket, OpenOptions::default()).await.unwrap();
    assert!(first.enqueue("q", vec![]).await.is_err());
    for _ in 0..2 {
        let closed = first.close().await;
        assert!(matches!(closed, Err(Error::Closed(CloseReason::Fenced))), "{closed:?}");
    }
    second.close().await.unwrap();
}

#[test]
fn a_handle_whose_runtime_is_gone_says_so() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (first, second) = (runtime(), runtime());
    let queue = first.block_on(open());
    let claim = first.block_on(async {
        queue.enqueue("q", vec![]).await.unwrap();
        queue.claim_next("q").await.unwrap().unwrap()
    });
    drop(first);
    second.block_on(async {
        let reason = within("the end of the handle", queue.closed()).await;
        assert!(matches!(&reason, CloseReason::Failed(text) if text.contains("runtime")));
        assert!(claim.cancel_token().is_cancelled());
        let refused = queue.enqueue("q", vec![]).await.unwrap_err();
        assert_eq!(refused.close_reason(), Some(&reason));
        assert_eq!(queue.close().await.unwrap_err().close_reason(), Some(&reason));
    });
}
