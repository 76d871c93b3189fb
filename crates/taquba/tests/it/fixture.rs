//! A store of each format that was ever released, kept in the tree byte by byte: it must open for ever. Here: how one is
//! made, what is in it, and that today's library reads it, works it off and refuses what it must.
//!
//! A change of format adds a folder beside `v1` with a generator of its own; it changes none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::object_store::ObjectStore;
use taquba::object_store::memory::InMemory;
use taquba::{
    AttemptOutcome, Clock, EnqueueOptions, Error, ExpiryIndex, JobStatus, Knobs, MockClock,
    OpenOptions, Queue, QueueConfig, RetryPolicy, SettlementEffects, SignalDelivery,
};

use crate::support::within;

/// 2025-01-01: the fixture's jobs live at this time by a clock that stands.
const T0: u64 = 1_735_689_600_000;
const DAY: Duration = Duration::from_secs(24 * 3_600);
const LEASE: Duration = Duration::from_secs(30);
const PATH: &str = "jobs";
/// Above this a payload is an object; small, as the fixture is to be.
const OBJECT_ABOVE: usize = 2_000;

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

fn options(clock: &MockClock) -> OpenOptions {
    let config = QueueConfig::default().retry_backoff_base(Duration::from_secs(60));
    OpenOptions {
        clock: Arc::new(clock.clone()) as Arc<dyn Clock>,
        default_queue_config: config.keep_done_jobs(DAY),
        payload_offload_threshold: Some(OBJECT_ABOVE),
        liveness_heartbeat: Some(Duration::from_secs(30)),
        ..OpenOptions::default()
    }
}

async fn open(folder: &Path, options: OpenOptions) -> taquba::Result<Queue> {
    let url = format!("file://{}", folder.display());
    let (bucket, path) = taquba::open_url(&url, std::iter::empty::<(String, String)>())?;
    let path = path.join(PATH);
    within("open", Queue::open_with_options(bucket, path.as_ref(), options)).await
}

fn named(id: &str) -> EnqueueOptions {
    EnqueueOptions::default().id_override(id)
}

fn at(ms: u64) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_millis(T0 + ms)
}

/// Makes the store of format 1. Its owner ends as by a crash, its claims stored.
async fn make(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let clock = MockClock::new(T0);
    // Small memtables, so that there are tables and a log; and an engine's clock of that time, which today's is past.
    let host_behind = Duration::from_millis(taquba::SystemClock.now_ms() - T0);
    let knobs = Knobs { memtable_bytes: Some(4_000), host_behind, ..Knobs::default() };
    let queue = open(folder, OpenOptions { knobs, ..options(&clock) }).await.unwrap();
    let enqueue = async |payload: Vec<u8>, options| {
        queue.enqueue_with("q", payload, options).await.unwrap();
    };

    // Kept ones first, so that they are the next to be claimed.
    enqueue(b"done".to_vec(), named("done").header("tenant", "acme")).await;
    let claim = queue.claim("q", LEASE).await.unwrap().unwrap();
    let index = ExpiryIndex::new("index/");
    let effects = SettlementEffects::default()
        .result("came to this")
        .kv_put("row", "value")
        .expiry_entry(&index, T0, b"entry");
    queue.ack_with(&claim, effects).await.unwrap();
    enqueue(b"dead".to_vec(), named("dead").max_attempts(1_u32)).await;
    let claim = queue.claim("q", LEASE).await.unwrap().unwrap();
    queue.nack(&claim, "no luck").await.unwrap();
    enqueue(b"back".to_vec(), named("back").priority(2_000_u32)).await;
    let claim = queue.claim("q", LEASE).await.unwrap().unwrap();
    queue.dead_letter(&claim, "hopeless").await.unwrap();
    queue.requeue_dead_job("back").await.unwrap();
    enqueue(b"retried".to_vec(), named("retried").priority(1_u32)).await;
    let claim = queue.claim("q", LEASE).await.unwrap().unwrap();
    queue.nack(&claim, "not yet").await.unwrap();

    enqueue(b"pending".to_vec(), named("pending").dedup_key("key")).await;
    enqueue(vec![b'r'; 1_000], named("apart").header("a", "b").header("c", "d")).await;
    enqueue(vec![b'o'; OBJECT_ABOVE + 1], named("object")).await;
    enqueue(b"urgent".to_vec(), named("urgent").priority(100_u32)).await;
    enqueue(b"later".to_vec(), named("later").run_at(at(3_600_000))).await;
    let waits = named("waits").run_at(at(7_200_000)).signal_key("signal");
    enqueue(b"waits".to_vec(), waits).await;
    let woken = named("woken").run_at(at(7_200_000)).priority(3_000_u32);
    enqueue(b"woken".to_vec(), woken).await;
    queue.wake_scheduled("woken", Some(b"get up".to_vec())).await.unwrap();
    let policy = RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(9)).jitter(5);
    let rules = named("ruled").retry(policy).max_run(DAY).expire_at(at(86_400_000));
    enqueue(b"ruled".to_vec(), rules.priority(4_000_u32)).await;
    let list = RetryPolicy::list([1, 2, 3].map(Duration::from_secs));
    enqueue(b"expires".to_vec(), named("expires").retry(list).expire_at(at(60_000))).await;

    for id in ["held", "cancelled"] {
        enqueue(id.as_bytes().to_vec(), named(id).max_attempts(2_u32)).await;
        drop(queue.claim_by_id(id, LEASE).await.unwrap());
    }
    queue.cancel("cancelled").await.unwrap();
    enqueue(b"last".to_vec(), named("last").max_attempts(1_u32)).await;
    drop(queue.claim_by_id("last", LEASE).await.unwrap());

    queue.send_signal("q", "buffered", b"early".to_vec()).await.unwrap();
    queue.kv_put(b"", b"an empty key").await.unwrap();
    queue.enqueue_with("paused", Vec::new(), named("stays")).await.unwrap();
    queue.pause("paused").await.unwrap();
    let over = queue.closed();
    drop(queue);
    within("the end", over).await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// All jobs of a queue by id: where each stands, how often it was tried, its last error.
async fn jobs(queue: &Queue, name: &str) -> BTreeMap<String, (JobStatus, u32, Option<String>)> {
    use JobStatus::{Claimed, Dead, Done, Pending, Scheduled};
    let mut all = BTreeMap::new();
    for status in [Pending, Scheduled, Claimed, Done, Dead] {
        let page = queue.view().list_jobs(name, status, None, 100).await.unwrap();
        for job in page.jobs {
            assert_eq!(job.status, status);
            all.insert(job.id, (status, job.attempts, job.last_error));
        }
    }
    all
}

async fn as_it_was_left(queue: &Queue) {
    use JobStatus::{Dead, Done, Pending, Scheduled};
    let cut = "claim interrupted by process exit";
    let expected = [
        ("apart", Pending, 0, None),
        ("back", Pending, 0, None),
        ("cancelled", Pending, 1, None),
        ("dead", Dead, 1, Some("no luck")),
        ("done", Done, 1, None),
        ("expires", Pending, 0, None),
        ("held", Pending, 1, None),
        ("last", Dead, 1, Some(cut)),
        ("later", Scheduled, 0, None),
        ("object", Pending, 0, None),
        ("pending", Pending, 0, None),
        ("retried", Scheduled, 1, Some("not yet")),
        ("ruled", Pending, 0, None),
        ("urgent", Pending, 0, None),
        ("waits", Scheduled, 0, None),
        ("woken", Pending, 0, None),
    ];
    let expected = expected.map(|(id, status, attempts, error)| {
        (id.to_owned(), (status, attempts, error.map(str::to_owned)))
    });
    assert_eq!(jobs(queue, "q").await, BTreeMap::from(expected));
    let stats = queue.view().stats("q").await.unwrap();
    let counts = [stats.pending, stats.scheduled, stats.claimed, stats.done, stats.dead];
    assert_eq!(counts, [10, 3, 0, 1, 2]);
}

async fn each_job_whole(queue: &Queue) {
    let view = queue.view();
    let job = async |id: &str| view.get_job(id).await.unwrap().unwrap();
    for id in ["done", "dead", "back", "retried", "pending", "later", "waits", "held", "last"] {
        assert_eq!(job(id).await.payload, id.as_bytes(), "{id}");
        assert_eq!(job(id).await.enqueued_at, T0, "{id}");
    }
    assert_eq!(job("apart").await.payload, vec![b'r'; 1_000]);
    assert_eq!(job("apart").await.headers.len(), 2);
    let object = job("object").await;
    assert!(object.payload_ref.is_some());
    assert_eq!(object.payload, vec![b'o'; OBJECT_ABOVE + 1]);
    let done = job("done").await;
    assert_eq!((done.completed_at, done.result.as_deref()), (Some(T0), Some(&b"came to this"[..])));
    assert_eq!(done.headers["tenant"], "acme");
    assert_eq!(job("dead").await.failed_at, Some(T0));
    assert_eq!(job("retried").await.run_at, Some(T0 + 60_000));
    assert_eq!(job("later").await.run_at, Some(T0 + 3_600_000));
    assert_eq!(job("pending").await.dedup_key.as_deref(), Some("key"));
    assert_eq!(job("urgent").await.priority, 100);
    let woken = job("woken").await;
    assert_eq!((woken.woken_at, woken.wake_payload.as_deref()), (Some(T0), Some(&b"get up"[..])));
    let ruled = job("ruled").await;
    assert_eq!((ruled.max_run, ruled.expire_at), (Some(DAY), Some(T0 + 86_400_000)));
    assert!(job("cancelled").await.cancel_requested);

    use AttemptOutcome::{Completed, DeadLettered, Interrupted, Requeued, Retried};
    for (id, expected) in [
        ("done", vec![Completed]),
        ("dead", vec![DeadLettered]),
        ("back", vec![DeadLettered, Requeued]),
        ("retried", vec![Retried]),
        ("held", vec![Interrupted]),
        ("last", vec![DeadLettered]),
        ("pending", vec![]),
    ] {
        let history = view.attempt_history(id).await.unwrap();
        assert_eq!(history.iter().map(|e| e.outcome).collect::<Vec<_>>(), expected, "{id}");
    }
    assert_eq!(view.kv_get(b"row").await.unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(view.kv_get(b"").await.unwrap().as_deref(), Some(&b"an empty key"[..]));
    assert_eq!(view.kv_scan(b"index/", .., 9).await.unwrap().entries.len(), 1);
    assert_eq!(view.list_queues().await.unwrap(), ["q", "paused"]);
    assert!(view.stats("paused").await.unwrap().paused);
    let beat = view.writer_heartbeat().await.unwrap().unwrap();
    assert!(!beat.closed && beat.counter >= 2, "{beat:?}");
}

async fn claimed_in_order(queue: &Queue) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(claim) = within("a claim", queue.claim("q", LEASE)).await.unwrap() {
        let token = claim.cancel_token().is_cancelled();
        assert_eq!(token, claim.id == "cancelled", "{}", claim.id);
        queue.ack(&claim).await.unwrap();
        ids.push(claim.id.clone());
    }
    ids
}

fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("taquba-{name}-{}", std::process::id()));
    // A run before may have left it.
    drop(std::fs::remove_dir_all(&folder));
    folder
}

#[tokio::test]
async fn the_store_of_format_1_opens_shows_every_job_and_is_worked_off() {
    let folder = scratch("fixture");
    copy(&kept(), &folder);
    is_what_it_should_be(&folder).await;
}

/// With `TAQUBA_FIXTURE=write` it is made where it is kept, for a commit: before a format is released, never after.
#[tokio::test]
async fn a_store_made_today_is_like_the_one_of_format_1() {
    let folder = scratch("made");
    if std::env::var("TAQUBA_FIXTURE").is_ok_and(|how| how == "write") {
        drop(std::fs::remove_dir_all(kept()));
        make(&kept()).await;
    }
    make(&folder).await;
    is_what_it_should_be(&folder).await;
}

/// Opens the store, compares it with what was put in, works it off and removes it.
async fn is_what_it_should_be(folder: &Path) {
    let clock = MockClock::new(T0);
    let queue = open(folder, options(&clock)).await.unwrap();
    as_it_was_left(&queue).await;
    each_job_whole(&queue).await;

    // What its rows promise still holds: the keys, the signals, the pause, the times.
    let again = EnqueueOptions::default().dedup_key("key");
    assert_eq!(queue.enqueue_with("q", Vec::new(), again).await.unwrap(), "pending");
    let twice = queue.enqueue_with("q", Vec::new(), named("later")).await;
    assert!(matches!(twice, Err(Error::DuplicateJobId { .. })), "{twice:?}");
    let sent = queue.send_signal("q", "signal", b"go".to_vec()).await.unwrap();
    assert_eq!(sent, SignalDelivery::Delivered);
    let takes = named("takes").run_at(at(7_200_000)).signal_key("buffered").priority(9_000_u32);
    queue.enqueue_with("q", Vec::new(), takes).await.unwrap();
    let taken = queue.view().get_job("takes").await.unwrap().unwrap();
    assert_eq!(taken.wake_payload.as_deref(), Some(&b"early"[..]));
    assert!(queue.claim("paused", LEASE).await.unwrap().is_none());

    clock.advance(Duration::from_secs(60));
    queue.promote_scheduled_now().await.unwrap();
    queue.reap_now().await.unwrap();
    let order = ["retried", "urgent", "pending", "apart", "object", "waits", "held", "cancelled"];
    let order = [&order[..], &["back", "woken", "ruled", "takes"]].concat();
    assert_eq!(claimed_in_order(&queue).await, order);
    let expired = queue.view().get_job("expires").await.unwrap().unwrap();
    assert_eq!(expired.last_error.as_deref(), Some("expired"));
    clock.advance(Duration::from_secs(3_600));
    queue.promote_scheduled_now().await.unwrap();
    assert_eq!(claimed_in_order(&queue).await, ["later"]);
    queue.resume("paused").await.unwrap();
    let claim = within("the rest", queue.claim("paused", LEASE)).await.unwrap().unwrap();
    queue.ack(&claim).await.unwrap();
    clock.advance(DAY * 8);
    queue.reap_now().await.unwrap();
    assert_eq!(jobs(&queue, "q").await, BTreeMap::new());
    assert_eq!(queue.view().stats("q").await.unwrap().done, 14);
    queue.close().await.unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

async fn with_row(key: &[u8], value: &[u8]) -> Arc<dyn ObjectStore> {
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let db = slatedb::Db::open(PATH, bucket.clone()).await.unwrap();
    db.put(key, value).await.unwrap();
    db.close().await.unwrap();
    bucket
}

#[tokio::test]
async fn a_newer_stamp_another_one_and_none_beside_rows_are_refused_with_a_sentence() {
    let cases: [(&[u8], &[u8], &str); 3] = [
        (b"Mformat", b"taquba 2", "upgrade the library"),
        (b"Mformat", b"other 1", "is not one of a queue store"),
        (b"somebody's", b"row", "no format stamp, so it is not a queue store"),
    ];
    for (key, value, says) in cases {
        let refused = Queue::open(with_row(key, value).await, PATH).await;
        let Err(error @ Error::Format { .. }) = refused else { panic!("{refused:?}") };
        assert!(error.is_permanent());
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn a_path_with_files_of_the_engine_and_without_rows_is_new() {
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    slatedb::Db::open(PATH, bucket.clone()).await.unwrap().close().await.unwrap();
    let queue = Queue::open(bucket.clone(), PATH).await.unwrap();
    queue.enqueue("q", Vec::new()).await.unwrap();
    queue.close().await.unwrap();
    let again = OpenOptions::default().create(false);
    let queue = Queue::open_with_options(bucket, PATH, again).await.unwrap();
    assert_eq!(queue.view().stats("q").await.unwrap().pending, 1, "and stamped now");
}
