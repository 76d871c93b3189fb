//! What a process asks of the bucket while nothing happens, counted over a day of simulated time against a budget. The
//! figures of docs/operations.md are these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use taquba::object_store::ObjectStore;
use taquba::object_store::memory::InMemory;
use taquba::{OpenOptions, Queue, QueueReader, ReaderMode, ReaderOptions, Takeover};

use crate::support::kill::{Kill, KillStore};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
const PATH: &str = "store";

type Calls = BTreeMap<&'static str, u64>;

fn counting(bytes: &Arc<InMemory>) -> KillStore {
    KillStore::new(Arc::clone(bytes), Kill::At(u64::MAX))
}

/// What is asked in a day, by counting `hours`; the first hour, in which things settle, is not counted.
async fn in_a_day(what: &str, store: &KillStore, hours: u32) -> Calls {
    taquba::time::sleep(HOUR).await;
    let before = store.by_kind();
    taquba::time::sleep(HOUR * hours).await;
    let mut asked = store.by_kind();
    for (kind, count) in &mut asked {
        *count -= before.get(kind).copied().unwrap_or_default();
        *count *= u64::from(24 / hours);
    }
    asked.retain(|_, count| *count > 0);
    println!("{what}: {asked:?} a day");
    asked
}

async fn with_a_past(bytes: &Arc<InMemory>, options: OpenOptions) -> (Queue, KillStore) {
    let store = counting(bytes);
    let queue = Queue::open_with_options(Arc::new(store.clone()), PATH, options).await.unwrap();
    queue.enqueue_batch("q", vec![vec![0; 200]; 100]).await.unwrap();
    for claim in queue.claim_batch("q", 50, Duration::from_secs(30)).await.unwrap() {
        queue.ack(&claim).await.unwrap();
    }
    (queue, store)
}

/// With workers that wait: they are told of jobs, they ask for none.
#[tokio::test(start_paused = true)]
async fn an_idle_owner_asks_for_its_ownership_and_nothing_else() {
    let (queue, store) = with_a_past(&Arc::default(), OpenOptions::default()).await;
    let queue = Arc::new(queue);
    for name in ["a", "b", "c"] {
        let queue = Arc::clone(&queue);
        tokio::spawn(async move { queue.claim_with_wait(name, DAY, DAY * 9).await });
    }
    let asked = in_a_day("an idle owner with three waiting workers", &store, 24).await;
    // Two GETs for a look at the manifest each 30 s (`fence_check_interval`), one LIST for the sweep of orphans.
    assert_eq!(asked.keys().copied().collect::<Vec<_>>(), ["GET", "LIST"], "{asked:?}");
    assert!(asked["GET"] <= 5_800 && asked["LIST"] == 1, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_beats_makes_one_put_a_beat() {
    let options = OpenOptions::default().liveness_heartbeat(Duration::from_secs(30));
    let (_queue, store) = with_a_past(&Arc::default(), options).await;
    let asked = in_a_day("an idle owner that beats each 30 s", &store, 4).await;
    assert!((2_870..=2_900).contains(&asked["PUT"]), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_waits_reads_little_and_writes_nothing() {
    let bytes = Arc::default();
    let owner = OpenOptions::default().takeover(Takeover::WhenSilent(Duration::from_secs(60)));
    let (_owner, _) = with_a_past(&bytes, owner).await;
    let store = counting(&bytes);
    let waits = OpenOptions::default().takeover(Takeover::WhenSilent(Duration::from_secs(60)));
    let waiter = tokio::spawn({
        let bucket = Arc::new(store.clone());
        async move { Queue::open_with_options(bucket, PATH, waits).await.map(drop) }
    });
    let asked = in_a_day("a replica that waits for 60 s of silence", &store, 4).await;
    assert!(!waiter.is_finished());
    assert_eq!(asked.get("PUT"), None, "{asked:?}");
    assert!(asked.values().sum::<u64>() <= 37_000, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_reader_looks_as_often_as_it_polls() {
    let bytes = Arc::default();
    let (_queue, _) = with_a_past(&bytes, OpenOptions::default()).await;
    let following = || ReaderOptions::default().mode(ReaderMode::FollowLatest);
    let readers = [
        ("an idle reader", following(), 87_000),
        ("an idle reader without the log", following().skip_wal_replay(true), 18_000),
        ("an idle reader, each minute", following().manifest_poll_interval(MINUTE), 14_500),
    ];
    for (what, options, budget) in readers {
        let store = counting(&bytes);
        let reader = QueueReader::open_with_options(Arc::new(store.clone()), PATH, options).await;
        let reader = reader.unwrap();
        let asked = in_a_day(what, &store, 4).await;
        assert_eq!(asked.get("PUT"), None, "{asked:?}");
        assert!(asked.values().sum::<u64>() <= budget, "{asked:?}");
        reader.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_reader_with_a_checkpoint_writes_manifests_and_nothing_else() {
    let bytes = Arc::new(InMemory::new());
    let (_queue, _) = with_a_past(&bytes, OpenOptions::default()).await;
    let objects = async || {
        let listed: Vec<_> = bytes.list(None).try_collect().await.unwrap();
        listed.into_iter().map(|meta| meta.location.to_string()).collect::<BTreeSet<_>>()
    };
    let before = objects().await;
    let reader = QueueReader::open(bytes.clone(), PATH).await.unwrap();
    reader.view().stats("q").await.unwrap();
    let (opened, _) = (objects().await, reader.close().await.unwrap());
    let closed = objects().await;
    let new: Vec<_> = opened.union(&closed).filter(|name| !before.contains(*name)).collect();
    assert!(!new.is_empty(), "its checkpoint");
    assert!(new.iter().all(|name| name.starts_with("store/manifest/")), "{new:?}");
}

/// What it costs to do something: PUTs for one job at a time, and for many at once.
#[tokio::test(start_paused = true)]
async fn a_job_alone_takes_two_puts_and_a_thousand_together_few_more() {
    let store = counting(&Arc::default());
    let queue = Queue::open(Arc::new(store.clone()), PATH).await.unwrap();
    let puts = || store.by_kind()["PUT"];
    let before = puts();
    for _ in 0..20 {
        queue.enqueue("q", vec![0; 200]).await.unwrap();
        let claim = queue.claim("q", HOUR).await.unwrap().unwrap();
        queue.ack(&claim).await.unwrap();
    }
    let alone = puts() - before;
    let before = puts();
    let all = (0..1_000).map(|_| async {
        queue.enqueue("q", vec![0; 200]).await.unwrap();
        let claim = queue.claim("q", HOUR).await.unwrap().unwrap();
        queue.ack(&claim).await.unwrap();
    });
    futures_util::future::join_all(all).await;
    let together = puts() - before;
    println!("20 jobs one after the other: {alone} PUTs; 1,000 together: {together} PUTs");
    assert_eq!(alone, 40);
    assert!(together <= 20, "{together}");
}
