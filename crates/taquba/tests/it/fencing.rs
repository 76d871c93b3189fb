//! A second open takes the store over. The first handle confirms nothing from then on, hands out nothing, and whatever
//! runs or waits on it ends. Where a limit of time is promised the test's time is virtual, so the limit is exact.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::ObjectStore;
use taquba::object_store::memory::InMemory;
use taquba::{
    CloseReason, Error, JobRecord, JobStatus, LeaseHandle, OpenOptions, Queue, Worker, WorkerError,
    run_worker, run_worker_concurrent,
};
use tokio::sync::mpsc;

use crate::support::real::list;
use crate::support::{now, within};

/// Of paused time.
const A_WHILE: Duration = Duration::from_secs(20);

const LEASE: Duration = Duration::from_secs(30);

fn bucket() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

async fn open(bucket: &Arc<dyn ObjectStore>) -> Queue {
    Queue::open(bucket.clone(), "jobs").await.unwrap()
}

/// A handle that looks every 200 ms whether the store is still its own.
async fn open_watchful(bucket: &Arc<dyn ObjectStore>) -> Queue {
    let options = OpenOptions::default().fence_check_interval(Duration::from_millis(200));
    Queue::open_with_options(bucket.clone(), "jobs", options).await.unwrap()
}

fn assert_fenced<T: std::fmt::Debug>(what: &str, answer: Result<T, Error>) {
    let fenced = matches!(answer, Err(Error::Closed(CloseReason::Fenced)));
    assert!(fenced, "{what}: {answer:?}");
}

#[tokio::test]
async fn from_the_first_call_that_fails_a_fenced_handle_answers_nothing_else() {
    let bucket = bucket();
    let first = open(&bucket).await;
    let ids = first.enqueue_batch("q", vec![b"job".to_vec(); 50]).await.unwrap();
    let claim = first.claim_next("q").await.unwrap().unwrap();
    let second = open(&bucket).await;

    assert_fenced("enqueue", first.enqueue("q", b"lost".to_vec()).await);
    assert_eq!(within("closed()", first.closed()).await, CloseReason::Fenced);
    assert!(claim.cancel_token().is_cancelled());
    // Its memory is full of ready jobs; they are not its own any more.
    assert_fenced("claim", first.claim_next("q").await);
    assert_fenced("claim_batch", first.claim_batch("q", 9, LEASE).await);
    assert_fenced("claim_with_wait", first.claim_with_wait("q", LEASE, LEASE).await);
    assert_fenced("ack", first.ack(&claim).await);
    assert_fenced("nack", first.nack(&claim, "no").await);
    assert_fenced("dead_letter", first.dead_letter(&claim, "no").await);
    assert_fenced("cancel", first.cancel(&ids[3]).await);
    assert_fenced("cancel of nothing", first.cancel("nothing").await);
    assert_fenced("wake", first.wake_scheduled(&ids[3], None).await);
    assert_fenced("requeue", first.requeue_dead_job(&ids[3]).await);
    assert_fenced("signal", first.send_signal("q", "k", Vec::new()).await);
    assert_fenced("clear_signal", first.clear_signal("q", "k").await);
    assert_fenced("kv_put", first.kv_put(b"k", b"v").await);
    assert_fenced("compare", first.kv_compare_put(b"k", None, b"v").await);
    assert_fenced("empty batch of effects", first.commit_effects(Default::default()).await);
    assert_fenced("wait", first.wait_for_completion(&ids[3]).await);
    assert_fenced("reap_now", first.reap_now().await);
    assert_fenced("get_job", first.view().get_job(&ids[3]).await);
    assert_fenced("stats", first.view().stats("q").await);
    assert_fenced("list_jobs", first.view().list_jobs("q", JobStatus::Pending, None, 9).await);
    assert_fenced("kv_get", first.view().kv_get(b"k").await);
    assert_fenced("renew_lease", first.renew_lease(&claim, LEASE));
    assert_fenced("ensure_at_least", first.lease_handle(&claim).ensure_at_least(LEASE));
    assert_eq!(first.lease_expiry("q", &claim.id), None);
    assert_fenced("close", first.close().await);

    let claims = second.claim_batch("q", 100, LEASE).await.unwrap();
    assert_eq!(claims.iter().map(|claim| claim.id.clone()).collect::<Vec<_>>(), ids);
    second.close().await.unwrap();
}

#[tokio::test]
async fn a_handle_that_had_no_news_for_a_second_hands_out_nothing_without_asking() {
    let bucket = bucket();
    // It would look by itself only after 30 s.
    let first = open(&bucket).await;
    first.enqueue_batch("q", vec![b"job".to_vec(); 50]).await.unwrap();
    let second = open(&bucket).await;
    let moved = second.claim_batch("q", 50, LEASE).await.unwrap();
    assert_eq!(moved.len(), 50);

    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(1_001)).await;
    tokio::time::resume();
    assert_fenced("claim", within("claim", first.claim_next("q")).await);
    second.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_on_an_idle_fenced_handle_hears_within_the_check_interval() {
    let bucket = bucket();
    let first = Arc::new(open_watchful(&bucket).await);
    let later = taquba::EnqueueOptions::default()
        .run_at(Some(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(9_000_000_000)));
    let id = first.enqueue_with("never", Vec::new(), later).await.unwrap();
    let never = std::future::pending::<()>;
    let poll = Duration::from_secs(1);
    let (worker, queue) = (Arc::new(Stuck::new().0), first.clone());
    let all = tokio::spawn(async move {
        tokio::join!(
            queue.claim_with_wait("empty", LEASE, Duration::from_secs(3_600)),
            queue.wait_for_completion(&id),
            run_worker(&queue, "empty", &*worker, poll, never()),
            run_worker_concurrent(&queue, "empty", worker.clone(), 4, poll, never()),
            queue.closed(),
        )
    });
    // They are all waiting before the store changes hands.
    first.reap_now().await.unwrap();
    let second = open(&bucket).await;
    let taken_over = now();
    let (claim, wait, alone, together, closed) = within("everybody", all).await.unwrap();
    let took = now() - taken_over;
    assert_fenced("claim_with_wait", claim);
    assert_fenced("wait_for_completion", wait);
    assert_fenced("run_worker", alone);
    assert_fenced("run_worker_concurrent", together);
    assert_eq!(closed, CloseReason::Fenced);
    // The interval, and one look at most before it.
    assert!(took <= Duration::from_millis(450), "they heard after {took:?}");
    second.close().await.unwrap();
}

/// A handler that only its token can end.
struct Stuck {
    started: mpsc::UnboundedSender<String>,
    stopped: mpsc::UnboundedSender<String>,
}

type News = mpsc::UnboundedReceiver<String>;

impl Stuck {
    fn new() -> (Self, News, News) {
        let (started, starts) = mpsc::unbounded_channel();
        let (stopped, stops) = mpsc::unbounded_channel();
        (Self { started, stopped }, starts, stops)
    }
}

impl Worker for Stuck {
    async fn process(&self, job: &JobRecord, lease: &LeaseHandle) -> Result<(), WorkerError> {
        self.started.send(job.id.clone()).unwrap();
        lease.cancel_token().cancelled().await;
        self.stopped.send(job.id.clone()).unwrap();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_of_a_fenced_handle_are_told_to_stop_within_two_seconds() {
    let bucket = bucket();
    // It would look by itself only after 30 s, were nobody working.
    let first = Arc::new(open(&bucket).await);
    first.enqueue_batch("q", vec![b"job".to_vec(); 6]).await.unwrap();
    let (stuck, mut starts, mut stops) = Stuck::new();
    let queue = first.clone();
    let pool = tokio::spawn(async move {
        let poll = Duration::from_secs(1);
        let never = std::future::pending::<()>();
        run_worker_concurrent(&queue, "q", Arc::new(stuck), 4, poll, never).await
    });
    for _ in 0..4 {
        within("a start", starts.recv()).await.unwrap();
    }
    // They run for a while, undisturbed.
    taquba::time::sleep(A_WHILE).await;
    assert!(stops.try_recv().is_err());

    let second = open(&bucket).await;
    let taken_over = now();
    for _ in 0..4 {
        within("a stop", stops.recv()).await.unwrap();
    }
    let took = now() - taken_over;
    assert!(took <= Duration::from_secs(2), "tokens fired after {took:?}");
    assert_fenced("run_worker_concurrent", within("the pool", pool).await.unwrap());
    assert!(starts.try_recv().is_err(), "a fenced pool started another job");
    assert_eq!(second.claim_batch("q", 9, LEASE).await.unwrap().len(), 6);
    second.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sequential_worker_of_a_fenced_handle_is_told_too() {
    let bucket = bucket();
    let first = Arc::new(open(&bucket).await);
    first.enqueue("q", b"job".to_vec()).await.unwrap();
    let (stuck, mut starts, mut stops) = Stuck::new();
    let queue = first.clone();
    let alone = tokio::spawn(async move {
        let never = std::future::pending::<()>();
        run_worker(&queue, "q", &stuck, Duration::from_secs(1), never).await
    });
    within("a start", starts.recv()).await.unwrap();
    taquba::time::sleep(A_WHILE).await;
    let second = open(&bucket).await;
    let taken_over = now();
    within("a stop", stops.recv()).await.unwrap();
    let took = now() - taken_over;
    assert!(took <= Duration::from_secs(2), "its token fired after {took:?}");
    assert_fenced("run_worker", within("the worker", alone).await.unwrap());
    second.close().await.unwrap();
}

/// One life after the other takes over while the one before settles as fast as it can: what one confirmed is never
/// seen again, and what none confirmed is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_takeover_in_full_flight_loses_no_job_and_settles_none_twice() {
    let bucket = bucket();
    let mut owner = Arc::new(open(&bucket).await);
    let all = owner.enqueue_batch("q", vec![b"job".to_vec(); 600]).await.unwrap();
    let mut settled = BTreeSet::new();
    for _ in 0..6 {
        let (queue, (go, going)) = (owner.clone(), tokio::sync::oneshot::channel());
        let work = tokio::spawn(async move {
            let mut confirmed = Vec::new();
            let mut go = Some(go);
            loop {
                let Ok(claims) = queue.claim_batch("q", 7, LEASE).await else { return confirmed };
                let acks = claims.iter().map(|claim| queue.ack(claim));
                let acked = futures_util::future::join_all(acks).await;
                let acked = claims.iter().zip(acked).filter(|(_, acked)| acked.is_ok());
                confirmed.extend(acked.map(|(claim, _)| claim.id.clone()));
                if let Some(go) = go.take_if(|_| confirmed.len() >= 30 || claims.is_empty()) {
                    go.send(()).unwrap();
                }
                if claims.is_empty() && queue.kv_put(b"alive", b"").await.is_err() {
                    return confirmed;
                }
            }
        });
        let enqueues = (0..20).map(|_| {
            let queue = owner.clone();
            tokio::spawn(async move {
                loop {
                    match queue.enqueue("other", Vec::new()).await {
                        Ok(_) => {}
                        Err(error) => return assert_fenced("enqueue", Err::<(), _>(error)),
                    }
                }
            })
        });
        let enqueues: Vec<_> = enqueues.collect();
        within("some settlements", going).await.unwrap();
        let next = within("the takeover", open(&bucket)).await;
        for id in within("the end of the fenced owner", work).await.unwrap() {
            assert!(settled.insert(id.clone()), "{id} was settled twice");
        }
        for enqueue in enqueues {
            within("the end of an enqueuer", enqueue).await.unwrap();
        }
        owner = Arc::new(next);
    }
    let left = list(&owner, "q", JobStatus::Pending, 1_000).await;
    let left: BTreeSet<String> = left.into_iter().map(|job| job.id).collect();
    assert!(left.is_disjoint(&settled), "came back: {:?}", left.intersection(&settled));
    let stats = owner.view().stats("q").await.unwrap();
    let done = usize::try_from(stats.done).unwrap();
    // A settlement that was not confirmed may have happened all the same.
    assert!(done >= settled.len());
    assert_eq!(left.len() + done, all.len(), "{stats:?}");
}

/// Six open at once, each works until it is fenced. In the end one owner is left, and all that any of them confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_opens_one_owner_is_left_and_nothing_confirmed_is_lost() {
    for _ in 0..5 {
        let bucket = bucket();
        let racers = (0..6).map(|racer| {
            let bucket = bucket.clone();
            tokio::spawn(async move {
                let mut confirmed = Vec::new();
                let queue = match Queue::open(bucket, "jobs").await {
                    Ok(queue) => queue,
                    Err(error) => {
                        assert_fenced("an open that lost the race", Err::<(), _>(error));
                        return (None, confirmed);
                    }
                };
                for job in 0..40 {
                    match queue.enqueue("q", format!("{racer}.{job}").into_bytes()).await {
                        Ok(id) => confirmed.push(id),
                        Err(error) => {
                            assert_fenced("enqueue", Err::<(), _>(error));
                            return (None, confirmed);
                        }
                    }
                }
                (Some(queue), confirmed)
            })
        });
        let racers: Vec<_> = racers.collect();
        let (mut last, mut confirmed) = (Vec::new(), BTreeSet::new());
        for racer in racers {
            let (queue, ids) = within("a racer", racer).await.unwrap();
            last.extend(queue);
            confirmed.extend(ids);
        }
        let mut owners = Vec::new();
        for queue in last {
            match queue.kv_put(b"mine", b"").await {
                Ok(()) => owners.push(queue),
                Err(error) => assert_fenced("kv_put", Err::<(), _>(error)),
            }
        }
        assert_eq!(owners.len(), 1);
        let owner = owners.pop().unwrap();
        let jobs = list(&owner, "q", JobStatus::Pending, 1_000).await;
        let jobs: BTreeSet<String> = jobs.into_iter().map(|job| job.id).collect();
        assert!(jobs.is_superset(&confirmed), "lost: {:?}", confirmed.difference(&jobs));
        owner.close().await.unwrap();
    }
}
