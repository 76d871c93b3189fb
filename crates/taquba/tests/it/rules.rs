//! What a job may bring of its own: how it is retried, how long an attempt may run, when it expires, what it came to.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::object_store::memory::InMemory;
use taquba::{
    ClaimOutcome, Clock, EnqueueOptions, JobRecord, JobStatus, LeaseHandle, MockClock, OpenOptions,
    Queue, QueueConfig, RetryPolicy, SettlementEffects, WaitOutcome, Worker, WorkerError,
    run_worker,
};

use crate::support::audit::audit;
use crate::support::within;

const LEASE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

async fn open(bytes: &Arc<InMemory>, clock: &MockClock, config: QueueConfig) -> Arc<Queue> {
    let options = OpenOptions::default()
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
        .default_queue_config(config);
    Arc::new(Queue::open_with_options(bytes.clone(), "store", options).await.unwrap())
}

fn world() -> (Arc<InMemory>, MockClock) {
    (Arc::new(InMemory::new()), MockClock::new(1_000))
}

fn at_ms(ms: u64) -> Option<std::time::SystemTime> {
    Some(UNIX_EPOCH + Duration::from_millis(ms))
}

#[tokio::test]
async fn a_jobs_own_retry_policy_goes_before_its_queues_and_that_before_the_default() {
    let (bytes, clock) = world();
    let config = QueueConfig::default().retry(RetryPolicy::fixed(7 * MS)).max_attempts(9_u32);
    let queue = open(&bytes, &clock, config).await;
    let own = EnqueueOptions::default().retry(RetryPolicy::list([MS, 20 * MS]));
    let own = queue.enqueue_with("q", Vec::new(), own).await.unwrap();
    let plain = queue.enqueue("q", Vec::new()).await.unwrap();
    for (own_ms, plain_ms) in [(1, 7), (20, 7), (20, 7)] {
        clock.advance(Duration::from_secs(1));
        queue.reap_now().await.unwrap();
        for claim in queue.claim_batch("q", 9, LEASE).await.unwrap() {
            queue.nack(&claim, "no").await.unwrap();
        }
        let run_at = async |id: &str| queue.view().get_job(id).await.unwrap().unwrap().run_at;
        assert_eq!(run_at(&own).await, Some(clock.now_ms() + own_ms));
        assert_eq!(run_at(&plain).await, Some(clock.now_ms() + plain_ms));
    }
    let policy = RetryPolicy::list(vec![MS; 101]);
    let refused = EnqueueOptions::default().retry(policy);
    let refused = queue.enqueue_with("q", Vec::new(), refused).await.unwrap_err();
    assert!(refused.to_string().contains("retry delays"), "{refused}");
}

/// A hundred thousand would take CI too long; a thousand that fail together show the same spread.
#[tokio::test]
async fn jobs_that_fail_together_do_not_come_back_together_when_jitter_is_asked_for() {
    let (bytes, clock) = world();
    let policy = RetryPolicy::fixed(1_000 * MS).jitter(50);
    let queue = open(&bytes, &clock, QueueConfig::default().retry(policy)).await;
    queue.enqueue_batch("q", vec![Vec::new(); 1_000]).await.unwrap();
    let claims = queue.claim_batch("q", 1_000, LEASE).await.unwrap();
    let fails = claims.iter().map(|claim| queue.nack(claim, "no"));
    futures_util::future::try_join_all(fails).await.unwrap();
    // Ten slices of the second in which they come back, a tenth each, give or take.
    for slice in 0..10 {
        clock.advance((if slice == 0 { 600 } else { 100 }) * MS);
        queue.promote_scheduled_now().await.unwrap();
        let back = queue.claim_batch("q", 1_000, LEASE).await.unwrap().len();
        assert!((50..200).contains(&back), "{back} in slice {slice}");
    }
    assert!(queue.view().stats("q").await.unwrap().scheduled <= 1);
}

#[tokio::test]
async fn a_job_expires_at_its_very_millisecond_wherever_it_waits_and_not_while_it_runs() {
    let (bytes, clock) = world();
    let queue = open(&bytes, &clock, QueueConfig::default()).await;
    let expiring = EnqueueOptions::default().expire_at(at_ms(2_000)).dedup_key("only");
    let pending = queue.enqueue_with("q", vec![1], expiring.clone()).await.unwrap();
    let options = expiring.clone().run_at(at_ms(9_000)).signal_key("key").dedup_key("other");
    let scheduled = queue.enqueue_with("q", vec![2], options).await.unwrap();
    let options = expiring.clone().priority(1).dedup_key("third");
    let running = queue.enqueue_with("q", vec![3], options).await.unwrap();
    let claim = queue.claim("q", Duration::from_secs(99)).await.unwrap().unwrap();
    assert_eq!((&claim.id, claim.expire_at), (&running, Some(2_000)));
    let waiter = tokio::spawn({
        let (queue, id) = (Arc::clone(&queue), scheduled.clone());
        async move { queue.wait_for_completion(&id).await.unwrap() }
    });

    clock.advance(999 * MS);
    queue.reap_now().await.unwrap();
    assert_eq!(queue.view().stats("q").await.unwrap().dead, 0);
    clock.advance(MS);
    queue.reap_now().await.unwrap();
    assert_eq!(queue.view().stats("q").await.unwrap().dead, 2);
    let ended = within("the waiter", waiter).await.unwrap();
    let WaitOutcome::Dead(dead) = ended else { panic!("{ended:?}") };
    assert_eq!((dead.last_error.as_deref(), dead.failed_at), (Some("expired"), Some(2_000)));
    assert_eq!(dead.attempts, 0, "no attempt began");
    assert!(queue.claim_next("q").await.unwrap().is_none());
    let by_id = queue.claim_by_id(&pending, LEASE).await.unwrap();
    assert!(matches!(by_id, ClaimOutcome::NotClaimable), "{by_id:?}");
    // What it held is free.
    let again = EnqueueOptions::default().dedup_key("only");
    assert_ne!(queue.enqueue_with("q", vec![4], again).await.unwrap(), pending);
    // Brought back, it may run after all.
    queue.requeue_dead_job(&pending).await.unwrap();
    let back = queue.view().get_job(&pending).await.unwrap().unwrap();
    assert_eq!((back.status, back.expire_at), (JobStatus::Pending, None));
    // The one that runs may fail once; there is no second attempt.
    queue.nack(&claim, "no").await.unwrap();
    queue.reap_now().await.unwrap();
    let late = queue.view().get_job(&running).await.unwrap().unwrap();
    assert_eq!((late.status, late.last_error.as_deref()), (JobStatus::Dead, Some("expired")));
    queue.close().await.unwrap();
    audit(&bytes, "store", Some(true)).await;
}

#[tokio::test]
async fn ten_thousand_jobs_that_expire_at_once_take_a_few_batches_also_after_a_crash() {
    let (bytes, clock) = world();
    let queue = open(&bytes, &clock, QueueConfig::default()).await;
    for _ in 0..20 {
        let jobs = (0..500).map(|_| taquba::EnqueueRequest {
            queue: "q".to_owned(),
            options: EnqueueOptions::default().expire_at(at_ms(1_500)),
            ..Default::default()
        });
        let effects = SettlementEffects::default().enqueues(jobs.collect());
        queue.commit_effects(effects).await.unwrap();
    }
    let closed = queue.closed();
    drop(queue);
    within("the end", closed).await;
    clock.advance(Duration::from_secs(1));
    let store = Arc::new(crate::support::kill::KillStore::new(
        bytes.clone(),
        crate::support::kill::Kill::At(u64::MAX),
    ));
    let options = OpenOptions::default().clock(Arc::new(clock.clone()) as Arc<dyn Clock>);
    let queue = Queue::open_with_options(store.clone(), "store", options).await.unwrap();
    within("the time", queue.reap_now()).await.unwrap();
    let stats = queue.view().stats("q").await.unwrap();
    assert_eq!((stats.pending, stats.dead), (0, 10_000));
    assert!(store.effects() < 60, "{} writes", store.effects());
}

/// Says that it works, works on until its token fires, and says so.
struct Endless(tokio::sync::mpsc::UnboundedSender<&'static str>);

impl Worker for Endless {
    async fn process(&self, _job: &JobRecord, lease: &LeaseHandle) -> Result<(), WorkerError> {
        self.0.send("works").unwrap();
        lease.cancel_token().cancelled().await;
        self.0.send("stops").unwrap();
        Err("stopped".into())
    }
}

#[tokio::test]
async fn an_attempt_runs_as_long_as_its_job_its_queue_or_its_loop_allows() {
    let (bytes, clock) = world();
    let config = QueueConfig::default().max_attempts(1_u32);
    let options = OpenOptions::default()
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
        .queue_config("limited", config.clone().max_run(Duration::from_secs(20)))
        .default_queue_config(config);
    let queue = Queue::open_with_options(bytes, "store", options).await.unwrap();
    let own = || EnqueueOptions::default().max_run(Duration::from_secs(10));
    for (name, options, seconds) in [
        ("limited", own(), 10),
        ("limited", EnqueueOptions::default(), 20),
        ("plain", own(), 10),
        ("plain", EnqueueOptions::default(), 3_600),
    ] {
        let (told, mut news) = tokio::sync::mpsc::unbounded_channel();
        let id = queue.enqueue_with(name, Vec::new(), options).await.unwrap();
        let watch = async {
            assert_eq!(news.recv().await, Some("works"));
            clock.advance(Duration::from_secs(seconds) - MS);
            queue.reap_now().await.unwrap();
            assert!(news.try_recv().is_err(), "it has a millisecond left");
            clock.advance(MS);
            assert_eq!(news.recv().await, Some("stops"));
        };
        let worker = Endless(told);
        let work = run_worker(&queue, name, &worker, Duration::ZERO, watch);
        within("the attempt", work).await.unwrap();
        let job = queue.view().get_job(&id).await.unwrap().unwrap();
        assert_eq!(job.status, JobStatus::Dead);
        assert_eq!(job.last_error.as_deref(), Some("lease expired"));
    }
}

struct Doubles;

impl Worker for Doubles {
    async fn process_with_effects(
        &self,
        job: &JobRecord,
        _lease: &LeaseHandle,
    ) -> Result<SettlementEffects, WorkerError> {
        Ok(SettlementEffects::default().result(job.payload.repeat(2)))
    }
}

#[tokio::test]
async fn a_result_is_given_to_who_waits_and_kept_with_the_record() {
    let (bytes, clock) = world();
    let kept = QueueConfig::default().keep_done_jobs(LEASE);
    for (config, keeps) in [(QueueConfig::default(), false), (kept, true)] {
        let queue = open(&bytes, &clock, config).await;
        let id = queue.enqueue("q", b"ab".to_vec()).await.unwrap();
        let waiter = queue.wait_for_completion(&id);
        let worker = async {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let outcome = async {
                let outcome = waiter.await.unwrap();
                stop.send(()).unwrap();
                outcome
            };
            let shutdown = async { drop(stopped.await) };
            let work = run_worker(&queue, "q", &Doubles, Duration::ZERO, shutdown);
            futures_util::future::join(work, outcome).await.1
        };
        let WaitOutcome::Done(done) = within("the result", worker).await else { panic!() };
        assert_eq!(done.result.as_deref(), Some(&b"abab"[..]));
        let stored = queue.view().get_job(&id).await.unwrap();
        assert_eq!(stored.is_some(), keeps);
        assert!(stored.is_none_or(|job| job.result.as_deref() == Some(b"abab")));
        queue.close().await.unwrap();
    }
    audit(&bytes, "store", Some(true)).await;
}
