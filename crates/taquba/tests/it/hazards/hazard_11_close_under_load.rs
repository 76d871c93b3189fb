//! Hazard 11: close while everybody is at work. Every call is answered, none hangs, and what was confirmed is there when
//! the store is opened again; also when the bucket hangs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taquba::object_store::ObjectStore;
use taquba::{
    CloseReason, Error, JobRecord, LeaseHandle, OpenOptions, Queue, QueueConfig, Worker,
    WorkerError, run_worker_concurrent,
};
use tokio::task::JoinSet;

use super::{ALL, Bucket, WAL_PUT, open, pass, until, within};

const LEASE: Duration = Duration::from_secs(60);
const FOR_EVER: Duration = Duration::from_secs(1_000_000);
const LIMIT: Duration = Duration::from_secs(20);
const EACH: usize = 64;

/// What the callers were told.
#[derive(Default)]
struct Told {
    enqueued: Mutex<BTreeSet<String>>,
    acked: Mutex<BTreeSet<String>>,
    /// Calls that were answered with an error other than that the queue is closed.
    odd: Mutex<Vec<String>>,
    answered: AtomicUsize,
}

impl Told {
    /// The ids of the jobs whose enqueue was confirmed, and of those whose ack was.
    fn confirmed(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let acked = self.acked.lock().unwrap().clone();
        (self.enqueued.lock().unwrap().clone(), acked)
    }

    /// Whether to go on.
    fn hear<T>(&self, what: &str, answer: taquba::Result<T>) -> Option<T> {
        self.answered.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(value) => Some(value),
            Err(Error::Closed(CloseReason::Closed)) => None,
            Err(other) => {
                self.odd.lock().unwrap().push(format!("{what}: {other}"));
                None
            }
        }
    }
}

async fn produce(queue: &Queue, told: &Told, last: &Mutex<String>) {
    while let Some(id) = told.hear("enqueue", queue.enqueue("q", vec![1]).await) {
        told.enqueued.lock().unwrap().insert(id.clone());
        *last.lock().unwrap() = id;
    }
}

async fn work(queue: &Queue, told: &Told) {
    while let Some(claim) =
        told.hear("claim_with_wait", queue.claim_with_wait("q", LEASE, FOR_EVER).await)
    {
        let claim = claim.expect("it waits for ever");
        if told.hear("ack", queue.ack(&claim).await).is_none() {
            return;
        }
        assert!(told.acked.lock().unwrap().insert(claim.id.clone()), "acked twice");
    }
}

async fn wait_for_jobs(queue: &Queue, told: &Told) {
    while told
        .hear("claim_with_wait", queue.claim_with_wait("empty", LEASE, FOR_EVER).await)
        .is_some()
    {}
}

async fn watch(queue: &Queue, told: &Told, last: &Mutex<String>) {
    loop {
        let id = last.lock().unwrap().clone();
        if told.hear("wait_for_completion", queue.wait_for_completion(&id).await).is_none() {
            return;
        }
    }
}

async fn all_else(queue: &Queue, told: &Told, last: &Mutex<String>) {
    loop {
        let id = last.lock().unwrap().clone();
        let done = async {
            told.hear("kv_put", queue.kv_put(b"row", b"1").await)?;
            told.hear("kv_compare_put", queue.kv_compare_put(b"row", None, b"1").await)?;
            told.hear("send_signal", queue.send_signal("q", "key", vec![]).await)?;
            told.hear("wake", queue.wake_scheduled(&id, None).await)?;
            told.hear("reap_now", queue.reap_now().await)?;
            told.hear("claim", queue.claim("empty", LEASE).await)?;
            told.hear("stats", queue.view().stats("q").await)
        };
        if done.await.is_none() {
            return;
        }
    }
}

/// Starts everybody.
fn start(queue: &Arc<Queue>, told: &Arc<Told>, stuck: &str) -> JoinSet<()> {
    let last = Arc::new(Mutex::new(String::new()));
    let mut callers = JoinSet::new();
    for n in 0..EACH {
        let (q, t, l) = (queue.clone(), told.clone(), last.clone());
        callers.spawn(async move { produce(&q, &t, &l).await });
        let (q, t) = (queue.clone(), told.clone());
        callers.spawn(async move { work(&q, &t).await });
        let (q, t) = (queue.clone(), told.clone());
        callers.spawn(async move { wait_for_jobs(&q, &t).await });
        let (q, t, l) = (queue.clone(), told.clone(), last.clone());
        // Half of them wait for a job that nobody finishes.
        let own = Arc::new(Mutex::new(stuck.to_owned()));
        let l = if n % 2 == 0 { l } else { own };
        callers.spawn(async move { watch(&q, &t, &l).await });
    }
    let (q, t) = (queue.clone(), told.clone());
    callers.spawn(async move { all_else(&q, &t, &last).await });
    let (q, t) = (queue.clone(), told.clone());
    callers.spawn(async move {
        let ended = run_worker_concurrent(
            &q,
            "looped",
            Arc::new(Slow),
            4,
            Duration::ZERO,
            std::future::pending(),
        );
        t.hear("worker loop", ended.await);
    });
    callers
}

/// A handler that is at work when the queue closes, and notices.
struct Slow;

impl Worker for Slow {
    async fn process(&self, _: &JobRecord, lease: &LeaseHandle) -> Result<(), WorkerError> {
        lease.cancel_token().cancelled().await;
        Ok(())
    }
}

fn options() -> OpenOptions {
    let config = QueueConfig::default().retry_backoff_base(Duration::ZERO);
    OpenOptions::default().default_queue_config(config)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hazard_11_close_under_load_answers_everybody() {
    for round in 0..4 {
        let bucket = Bucket::new();
        let queue = open(&bucket, options()).await;
        let stuck = queue.enqueue("nobody", vec![]).await.unwrap();
        queue.enqueue_batch("looped", vec![vec![]; 8]).await.unwrap();
        let told = Arc::new(Told::default());
        let mut callers = start(&queue, &told, &stuck);
        until("they are all at it", async || {
            told.answered.load(Ordering::Relaxed) > 2_000 + 137 * round
        })
        .await;

        within(LIMIT, "close", queue.close()).await.unwrap();
        let everybody = async { while callers.join_next().await.transpose().unwrap().is_some() {} };
        within(LIMIT, "answers to everybody", everybody).await;
        drop(queue);
        assert_eq!(*told.odd.lock().unwrap(), Vec::<String>::new());

        // What was confirmed is there; what was not may be.
        let queue = open(&bucket, options()).await;
        let (enqueued, acked) = told.confirmed();
        let mut left = BTreeSet::new();
        while let Some(claim) = queue.claim("q", LEASE).await.unwrap() {
            assert!(left.insert(claim.id.clone()), "handed out twice");
        }
        for id in enqueued.iter() {
            assert!(acked.contains(id) || left.contains(id), "{id} was confirmed and is lost");
        }
        assert!(left.is_disjoint(&acked), "acked and still there");
        let stats = queue.view().stats("q").await.unwrap();
        assert!(stats.done >= i64::try_from(acked.len()).unwrap());
    }
}

/// A bucket that hangs, and everybody at work: close gives up after its 10 s, and everybody hears.
async fn close_on_a_hanging_bucket(kinds: usize, busy: bool) {
    let bucket = Bucket::new();
    let queue = open(&bucket, options()).await;
    let stuck = queue.enqueue("nobody", vec![]).await.unwrap();
    queue.enqueue_batch("looped", vec![vec![]; 8]).await.unwrap();
    let confirmed = queue.enqueue("q", vec![]).await.unwrap();
    let told = Arc::new(Told::default());
    let mut callers = JoinSet::new();
    if busy {
        callers = start(&queue, &told, &stuck);
        // The paused clock stands still while anybody works.
        while told.answered.load(Ordering::Relaxed) < 1_000 {
            tokio::task::yield_now().await;
        }
    } else {
        let (q, t) = (queue.clone(), told.clone());
        callers.spawn(async move { wait_for_jobs(&q, &t).await });
        pass(Duration::from_millis(500)).await;
    }
    bucket.hold(kinds);
    if busy {
        // Those that need the bucket hang by now.
        pass(Duration::from_millis(500)).await;
    }

    let closed = within(Duration::from_millis(10_100), "close", queue.close()).await;
    assert!(matches!(closed, Err(Error::NotConfirmed { .. })), "{closed:?}");
    let everybody = async { while callers.join_next().await.transpose().unwrap().is_some() {} };
    within(Duration::from_secs(1), "answers to everybody", everybody).await;
    assert_eq!(*told.odd.lock().unwrap(), Vec::<String>::new());
    assert!(matches!(queue.enqueue("q", vec![]).await, Err(Error::Closed(_))));

    let copy: Arc<dyn ObjectStore> = Arc::new(bucket.fork());
    let queue = Queue::open_with_options(copy, "hazards", options()).await.unwrap();
    let (enqueued, acked) = told.confirmed();
    for id in enqueued.iter().chain([&confirmed]) {
        let there = queue.view().get_job(id).await.unwrap().is_some();
        assert!(there != acked.contains(id), "{id}: there {there}");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_11_close_while_the_bucket_hangs_ends_within_ten_seconds_under_load() {
    close_on_a_hanging_bucket(WAL_PUT, true).await;
    close_on_a_hanging_bucket(ALL, true).await;
}

#[tokio::test(start_paused = true)]
async fn hazard_11_close_while_the_bucket_hangs_ends_within_ten_seconds_when_idle() {
    close_on_a_hanging_bucket(ALL, false).await;
}
