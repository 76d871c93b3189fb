//! Two commands at once, over and over, where the order in which they meet decides what is right and nothing else may
//! happen.

use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::memory::InMemory;
use taquba::{
    CancelOutcome, Claim, EnqueueOptions, EnqueueRequest, JobRecord, JobStatus, Knobs, LeaseHandle,
    MockClock, OpenOptions, Queue, QueueConfig, Reads, SettlementEffects, SignalDelivery,
    WaitOutcome, WakeOutcome, Worker, WorkerError, run_worker,
};

use crate::support::audit::audit;
use crate::support::real::{STATES, list};
use crate::support::within;

const LEASE: Duration = Duration::from_secs(30);
const T0: u64 = 1_000_000;

struct Race {
    bytes: Arc<InMemory>,
    clock: MockClock,
    knobs: Knobs,
}

impl Race {
    fn new(knobs: Knobs) -> Self {
        Self { bytes: Arc::new(InMemory::new()), clock: MockClock::new(T0), knobs }
    }

    async fn open(&self) -> Arc<Queue> {
        let config = QueueConfig::default().retry_backoff_base(Duration::ZERO);
        let options = OpenOptions {
            clock: Arc::new(self.clock.clone()),
            default_queue_config: config.max_attempts(100_u32),
            knobs: self.knobs,
            ..OpenOptions::default()
        };
        let open = Queue::open_with_options(self.bytes.clone(), "store", options);
        Arc::new(within("open", open).await.unwrap())
    }

    fn at(&self, ms: u64) -> Option<std::time::SystemTime> {
        use taquba::Clock;
        Some(std::time::UNIX_EPOCH + Duration::from_millis(self.clock.now_ms() + ms))
    }

    /// Closes, and checks the rows that are left.
    async fn close(&self, queue: Arc<Queue>) {
        let queue = Arc::into_inner(queue).expect("nobody else has the queue");
        within("close", queue.close()).await.unwrap();
        audit(&self.bytes, "store", Some(true)).await;
    }
}

/// Runs a future on a task of its own, so that it is truly elsewhere.
async fn apart<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    within("a racing call", tokio::spawn(future)).await.unwrap()
}

async fn claim_all(queue: &Queue) -> Vec<Claim> {
    within("a claim", queue.claim_batch("q", 1_000, LEASE)).await.unwrap()
}

async fn assert_recount(queue: &Queue) {
    let stats = queue.view().stats("q").await.unwrap();
    for status in STATES {
        let listed = i64::try_from(list(queue, "q", status, 100).await.len()).unwrap();
        let counted = match status {
            JobStatus::Pending => stats.pending,
            JobStatus::Scheduled => stats.scheduled,
            JobStatus::Claimed => stats.claimed,
            JobStatus::Dead => stats.dead,
            JobStatus::Done => continue,
        };
        assert_eq!(counted, listed, "{status:?}");
    }
}

/// A waiter falls due while its signal is on the way: it is woken by one of the two, and the signal is delivered or
/// kept, never both and never neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_signal_that_meets_the_timeout_is_delivered_or_kept() {
    signal_against("its timeout", |race, _, _| {
        let clock = race.clock.clone();
        Box::pin(async move {
            clock.advance(Duration::from_millis(10));
            false
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_signal_that_meets_a_wake_is_delivered_or_kept() {
    signal_against("a wake", |_, queue, id| {
        Box::pin(async move {
            let woken = queue.wake_scheduled(&id, None).await.unwrap();
            assert_ne!(woken, WakeOutcome::NotFound);
            false
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_signal_that_meets_a_cancel_is_delivered_or_kept() {
    signal_against("a cancel", |_, queue, id| {
        Box::pin(async move { queue.cancel(&id).await.unwrap() == CancelOutcome::Removed })
    })
    .await;
}

type Rival = std::pin::Pin<Box<dyn Future<Output = bool> + Send>>;

/// Twenty waiters at a time, each signalled while `rival` deals with it; the rival says whether it removed its job.
async fn signal_against(what: &str, rival: impl Fn(&Race, Arc<Queue>, String) -> Rival) {
    let race = Race::new(Knobs::default());
    let queue = race.open().await;
    for turn in 0..25 {
        let mut waiters = Vec::new();
        for n in 0..20 {
            let options = EnqueueOptions::default().signal_key(format!("{n}")).run_at(race.at(10));
            waiters.push(queue.enqueue_with("q", Vec::new(), options).await.unwrap());
        }
        let signals = (0..20).map(|n| {
            let queue = queue.clone();
            apart(async move { queue.send_signal("q", &format!("{n}"), vec![1]).await.unwrap() })
        });
        let rivals = waiters.iter().map(|id| apart(rival(&race, queue.clone(), id.clone())));
        let (signals, removed) = tokio::join!(
            futures_util::future::join_all(signals),
            futures_util::future::join_all(rivals)
        );
        race.clock.advance(Duration::from_millis(10));
        queue.promote_scheduled_now().await.unwrap();
        assert_recount(&queue).await;
        let claims = claim_all(&queue).await;
        for (n, id) in waiters.iter().enumerate() {
            let of_this: Vec<_> = claims.iter().filter(|claim| claim.id == *id).collect();
            assert_eq!(of_this.len(), usize::from(!removed[n]), "turn {turn}: {what}, waiter {n}");
            let delivered = signals[n] == SignalDelivery::Delivered;
            if let Some(claim) = of_this.first() {
                let carried = claim.wake_payload == Some(vec![1]);
                assert_eq!(carried, delivered, "turn {turn}: {what}, waiter {n}");
            }
            let kept = queue.clear_signal("q", &format!("{n}")).await.unwrap();
            assert_eq!(kept, !delivered, "turn {turn}: {what}, waiter {n}");
        }
        for claim in claims {
            queue.ack(&claim).await.unwrap();
        }
        assert!(claim_all(&queue).await.is_empty());
    }
    race.close(queue).await;
}

/// A decision writes a row that it did not read while another command compares it. The compare holds before the write
/// or fails after it; the write is never lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_compare_never_overwrites_what_a_decision_wrote_meanwhile() {
    let race = Race::new(Knobs::default());
    let queue = race.open().await;
    for turn in 0..300 {
        queue.kv_put(b"row", b"old").await.unwrap();
        let (a, b) = (queue.clone(), queue.clone());
        let (compared, ()) = tokio::join!(
            apart(
                async move { a.kv_compare_put(b"row", Some(b"old"), b"compared").await.unwrap() }
            ),
            apart(async move {
                let write = |_: &taquba::Facts, changes: &mut taquba::Changes| {
                    changes.kv_put(b"row".as_slice(), b"decided".as_slice());
                };
                b.decide(Reads::default(), write).await.unwrap();
            }),
        );
        let row = queue.view().kv_get(b"row").await.unwrap().unwrap();
        assert_eq!(row, &b"decided"[..], "turn {turn}, compared: {compared}");
    }
    race.close(queue).await;
}

/// Right after an opening, when windows are still empty, jobs are cancelled, claimed, woken and enqueued at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_changes_while_the_windows_fill_is_neither_lost_nor_brought_back() {
    for turn in 0..40 {
        let knobs = Knobs {
            page_jobs: Some(1 + turn % 5),
            band_bytes: Some(1_500),
            timer_bytes: Some(1_500),
            refill_yields: turn % 7,
            ..Knobs::default()
        };
        let race = Race::new(knobs);
        let queue = race.open().await;
        let payloads = |n| vec![b"job".to_vec(); n];
        let ready = queue.enqueue_batch("q", payloads(24)).await.unwrap();
        let mut later = Vec::new();
        for n in 0..24 {
            let options = EnqueueOptions::default().run_at(race.at(1_000 + n));
            later.push(queue.enqueue_with("q", b"later".to_vec(), options).await.unwrap());
        }
        race.close(queue).await;

        let queue = race.open().await;
        let cancels = ready.iter().chain(&later).enumerate().filter(|(n, _)| n % 3 == 0);
        let cancels = cancels.map(|(_, id)| {
            let (queue, id) = (queue.clone(), id.clone());
            apart(async move { (queue.cancel(&id).await.unwrap(), id) })
        });
        let wakes = later.iter().enumerate().filter(|(n, _)| n % 3 == 1).map(|(_, id)| {
            let (queue, id) = (queue.clone(), id.clone());
            apart(async move { queue.wake_scheduled(&id, None).await.unwrap() })
        });
        let enqueues = (0..6).map(|_| {
            let queue = queue.clone();
            apart(async move { queue.enqueue("q", b"new".to_vec()).await.unwrap() })
        });
        let claims = (0..12).map(|_| {
            let queue = queue.clone();
            apart(async move { queue.claim_next("q").await.unwrap() })
        });
        let (cancelled, woken, new, claimed) = tokio::join!(
            futures_util::future::join_all(cancels),
            futures_util::future::join_all(wakes),
            futures_util::future::join_all(enqueues),
            futures_util::future::join_all(claims),
        );
        assert!(woken.iter().all(|woken| *woken == WakeOutcome::Woken));
        let mut left: std::collections::BTreeSet<String> =
            ready.iter().chain(&later).chain(&new).cloned().collect();
        for (outcome, id) in cancelled {
            if outcome == CancelOutcome::Removed {
                assert!(left.remove(&id));
            }
        }
        let mut claims: Vec<Claim> = claimed.into_iter().flatten().collect();
        race.clock.advance(Duration::from_secs(2));
        queue.promote_scheduled_now().await.unwrap();
        loop {
            let more = claim_all(&queue).await;
            for claim in claims.drain(..).chain(more) {
                assert!(left.remove(&claim.id), "turn {turn}: {} is not to be had", claim.id);
                queue.ack(&claim).await.unwrap();
            }
            if queue.view().stats("q").await.unwrap().pending == 0 {
                break;
            }
        }
        assert!(left.is_empty(), "turn {turn}: nobody got {left:?}");
        assert_recount(&queue).await;
        race.close(queue).await;
    }
}

/// Jobs are acknowledged while the windows are refilled around them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_refill_never_brings_an_acknowledged_job_back() {
    for turn in 0..12 {
        let knobs = Knobs {
            page_jobs: Some(2 + turn % 3),
            band_bytes: Some(1_200),
            refill_yields: 3 * turn,
            ..Knobs::default()
        };
        let race = Race::new(knobs);
        let queue = race.open().await;
        queue.enqueue_batch("q", vec![b"job".to_vec(); 120]).await.unwrap();
        let seen = Arc::new(std::sync::Mutex::new(std::collections::BTreeMap::new()));
        let workers = (0..6).map(|worker| {
            let (queue, seen) = (queue.clone(), seen.clone());
            apart(async move {
                for n in 0_u64.. {
                    let Some(claim) = queue.claim_next("q").await.unwrap() else { return };
                    // Some attempts fail, so that jobs return to their places all along the line.
                    if (n + worker) % 3 == 0 && claim.attempts < 3 {
                        queue.nack(&claim, "again").await.unwrap();
                    } else {
                        queue.ack(&claim).await.unwrap();
                        let acks = seen.lock().unwrap().insert(claim.id.clone(), ());
                        assert!(acks.is_none(), "{} was acknowledged twice", claim.id);
                    }
                }
            })
        });
        futures_util::future::join_all(workers).await;
        let stats = queue.view().stats("q").await.unwrap();
        assert_eq!((stats.pending, stats.claimed, stats.done), (0, 0, 120), "turn {turn}");
        race.close(queue).await;
    }
}

/// One job's end is awaited while it comes: the waiter hears of it, whichever is first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_wait_that_meets_the_end_of_its_job_hears_of_it() {
    let race = Race::new(Knobs::default());
    let queue = race.open().await;
    for _ in 0..200 {
        let id = queue.enqueue("q", Vec::new()).await.unwrap();
        let claim = queue.claim_next("q").await.unwrap().unwrap();
        let (a, b) = (queue.clone(), queue.clone());
        let (waited, ()) = tokio::join!(
            apart(async move { a.wait_for_completion(&id).await.unwrap() }),
            apart(async move { b.ack(&claim).await.unwrap() }),
        );
        // A job that is gone before the wait begins cannot be told from one that never was.
        assert!(matches!(waited, WaitOutcome::Done(_) | WaitOutcome::NotFound), "{waited:?}");
    }
    race.close(queue).await;
}

/// One decision cancels a job and enqueues its successor under all that the job held.
#[tokio::test]
async fn a_decision_hands_on_what_it_cancels() {
    let race = Race::new(Knobs::default());
    let queue = race.open().await;
    let options = || {
        let options = EnqueueOptions::default().dedup_key("key").signal_key("signal");
        options.run_at(race.at(1_000)).id_override("same")
    };
    let successor = EnqueueRequest { queue: "q".into(), payload: vec![2], options: options() };
    queue.enqueue_with("q", vec![1], options()).await.unwrap();

    let reads = Reads { jobs: vec!["same".into()], ..Reads::default() };
    let reads = reads.for_enqueues(std::slice::from_ref(&successor));
    let request = successor.clone();
    let change = move |_: &taquba::Facts, changes: &mut taquba::Changes| {
        changes.cancel("same");
        changes.cancel("same");
        changes.enqueue(request);
    };
    queue.decide(reads, change).await.unwrap();
    assert_eq!(queue.view().get_job("same").await.unwrap().unwrap().payload, [2]);
    assert_recount(&queue).await;

    let effects =
        SettlementEffects::default().enqueue(EnqueueRequest { payload: vec![3], ..successor });
    let (outcome, results) = queue.cancel_with("same", effects).await.unwrap();
    assert_eq!((outcome, results.len()), (CancelOutcome::Removed, 1));
    assert_eq!(queue.view().get_job("same").await.unwrap().unwrap().payload, [3]);
    assert_eq!(queue.send_signal("q", "signal", vec![]).await.unwrap(), SignalDelivery::Delivered);
    assert_recount(&queue).await;
    race.close(queue).await;
}

/// A decision that settles a claim and cancels the same job; and a decision and a plain call that cancel claims which
/// are not stored yet.
#[tokio::test]
async fn a_decision_cancels_claims_for_good_and_its_own_job_not_at_all() {
    let race = Race::new(Knobs::default());
    let queue = race.open().await;
    let ids = queue.enqueue_batch("q", vec![Vec::new(); 3]).await.unwrap();
    let own = queue.claim_next("q").await.unwrap().unwrap();
    let others = queue.claim_batch("q", 2, LEASE).await.unwrap();
    let reads = Reads { jobs: ids.clone(), ..Reads::default() };
    let both = ids[..2].to_vec();
    let change = move |_: &taquba::Facts, changes: &mut taquba::Changes| {
        changes.nack("later");
        both.iter().for_each(|id| changes.cancel(id.clone()));
    };
    queue.settle_decided(&own, reads, change).await.unwrap();
    assert_eq!(queue.cancel(&ids[2]).await.unwrap(), CancelOutcome::Requested);
    assert_recount(&queue).await;
    assert!(others.iter().all(|claim| claim.cancel_token().is_cancelled()));
    let retried = queue.view().get_job(&ids[0]).await.unwrap().unwrap();
    assert_eq!((retried.status, retried.cancel_requested), (JobStatus::Pending, false));
    drop(queue);

    // The request was durable, and so is the claim that it was made to.
    let queue = race.open().await;
    for id in &ids[1..] {
        let cancelled = queue.view().get_job(id).await.unwrap().unwrap();
        assert_eq!((cancelled.attempts, cancelled.cancel_requested), (1, true));
    }
    assert_recount(&queue).await;
    race.close(queue).await;
}

/// A handler that never ends.
struct Endless(tokio::sync::mpsc::UnboundedSender<()>);

impl Worker for Endless {
    async fn process(&self, _: &JobRecord, _: &LeaseHandle) -> Result<(), WorkerError> {
        self.0.send(())?;
        std::future::pending().await
    }
}

/// While its handler lives, a job is kept past its lease; when the worker is dropped, the lease is what is left of it.
#[tokio::test]
async fn a_worker_that_is_dropped_leaves_its_job_to_its_lease() {
    let race = Race::new(Knobs::default());
    let queue = race.open().await;
    let id = queue.enqueue("q", Vec::new()).await.unwrap();
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let worker = {
        let queue = queue.clone();
        tokio::spawn(async move {
            let never = std::future::pending::<()>();
            run_worker(&queue, "q", &Endless(started), LEASE, never).await
        })
    };
    within("a start", starts.recv()).await.unwrap();
    let status_after = async |by: Duration| {
        race.clock.advance(by);
        queue.reap_now().await.unwrap();
        queue.view().get_job(&id).await.unwrap().unwrap().status
    };
    for _ in 0..10 {
        assert_eq!(status_after(LEASE).await, JobStatus::Claimed);
    }
    worker.abort();
    assert!(within("the end of the worker", worker).await.unwrap_err().is_cancelled());
    assert_eq!(status_after(LEASE - Duration::from_millis(1)).await, JobStatus::Claimed);
    assert_eq!(status_after(Duration::from_millis(1)).await, JobStatus::Pending);
    race.close(queue).await;
}
