//! What operators do to many jobs, and what handlers say of their progress.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::object_store::memory::InMemory;
use taquba::{
    BulkAction, BulkReport, Clock, EnqueueOptions, EnqueueRequest, Error, JobFilter, JobStatus,
    LeaseHandle, MockClock, OpenOptions, Queue, QueueConfig, SettlementEffects,
};

use crate::support::audit::audit;
use crate::support::kill::{Kill, KillStore};
use crate::support::real::list;
use crate::support::rng::{Rng, seeds};

const LEASE: Duration = Duration::from_secs(3_600);

async fn open(bytes: &Arc<InMemory>, clock: &MockClock) -> Arc<Queue> {
    let config = QueueConfig::default().max_attempts(1_u32).keep_done_jobs(LEASE);
    let options = OpenOptions::default()
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
        .default_queue_config(config);
    Arc::new(Queue::open_with_options(bytes.clone(), "store", options).await.unwrap())
}

/// Enqueues `n` jobs, the even ones of tenant "a", the odd ones of "b", with payloads that have rows of their own.
async fn enqueue(queue: &Queue, name: &str, n: usize) {
    for batch in 0..n.div_ceil(500) {
        let effects = (batch * 500..n.min(batch * 500 + 500)).map(|n| EnqueueRequest {
            queue: name.to_owned(),
            payload: vec![b'p'; 600],
            options: EnqueueOptions::default().header("tenant", ["a", "b"][n % 2]),
        });
        let effects = SettlementEffects::default().enqueues(effects.collect());
        queue.commit_effects(effects).await.unwrap();
    }
}

/// Fails all pending jobs of a queue for good, by tenant.
async fn kill_all(queue: &Queue, name: &str) {
    loop {
        let claims = queue.claim_batch(name, 1_000, LEASE).await.unwrap();
        if claims.is_empty() {
            return;
        }
        let ends = claims.iter().map(|claim| {
            let error = format!("no luck with {}", claim.headers["tenant"]);
            async move { queue.dead_letter(claim, &error).await.unwrap() }
        });
        futures_util::future::join_all(ends).await;
    }
}

fn report(matched: u64, changed: u64) -> BulkReport {
    BulkReport { matched, changed, next_cursor: None }
}

#[tokio::test]
async fn a_dry_run_counts_and_changes_nothing_and_every_condition_must_hold() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    enqueue(&queue, "q", 6).await;
    enqueue(&queue, "other", 6).await;
    kill_all(&queue, "q").await;
    kill_all(&queue, "other").await;
    let all = JobFilter::new("q", JobStatus::Dead);
    let count = async |filter: JobFilter| {
        let dry = queue.bulk(&filter, BulkAction::Requeue, true).await.unwrap();
        assert_eq!(dry.changed, 0);
        dry.matched
    };
    assert_eq!(count(all.clone()).await, 6);
    assert_eq!(count(all.clone().header("tenant", "a")).await, 3);
    assert_eq!(count(all.clone().header("tenant", "a").error_contains("with b")).await, 0);
    assert_eq!(count(all.clone().error_contains("with b")).await, 3);
    assert_eq!(count(all.clone().older_than(Duration::from_millis(1))).await, 0);
    assert_eq!(count(JobFilter::new("q", JobStatus::Pending)).await, 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(count(all.clone().older_than(Duration::from_millis(1))).await, 6);
    assert_eq!(queue.view().stats("q").await.unwrap().dead, 6, "a dry run changes nothing");

    let some = all.clone().header("tenant", "a");
    let done = queue.bulk(&some, BulkAction::Requeue, false).await.unwrap();
    assert_eq!(done, report(3, 3));
    let back = list(&queue, "q", JobStatus::Pending, 9).await;
    assert!(back.iter().all(|job| job.headers["tenant"] == "a" && job.attempts == 0));
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    assert_eq!(claim.payload, vec![b'p'; 600], "with its payload");
    assert_eq!(queue.bulk(&all, BulkAction::Delete, false).await.unwrap(), report(3, 3));
    assert_eq!(queue.view().stats("other").await.unwrap().dead, 6, "nobody else's jobs");
    queue.close().await.unwrap();
    audit(&bytes, "store", Some(true)).await;
}

#[tokio::test]
async fn each_action_does_to_each_state_what_it_says() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    enqueue(&queue, "q", 4).await;
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    let done = queue.claim_next("q").await.unwrap().unwrap();
    queue.ack(&done).await.unwrap();
    let at = UNIX_EPOCH + Duration::from_secs(99);
    let later = EnqueueOptions::default().run_at(Some(at)).dedup_key("once");
    queue.enqueue_with("q", b"later".to_vec(), later.clone()).await.unwrap();
    let bulk = async |status, action| {
        let done = queue.bulk(&JobFilter::new("q", status), action, false).await.unwrap();
        (done.matched, done.changed)
    };
    // What an action does nothing to is matched and not changed.
    assert_eq!(bulk(JobStatus::Pending, BulkAction::Requeue).await, (2, 0));
    assert_eq!(bulk(JobStatus::Done, BulkAction::Cancel).await, (1, 0));
    assert_eq!(bulk(JobStatus::Claimed, BulkAction::Delete).await, (1, 0));
    assert_eq!(bulk(JobStatus::Claimed, BulkAction::Cancel).await, (1, 1));
    assert!(claim.cancel_token().is_cancelled());
    assert_eq!(bulk(JobStatus::Scheduled, BulkAction::Delete).await, (1, 1));
    assert_eq!(bulk(JobStatus::Pending, BulkAction::Cancel).await, (2, 2));
    assert_eq!(bulk(JobStatus::Done, BulkAction::Delete).await, (1, 1));
    let stats = queue.view().stats("q").await.unwrap();
    assert_eq!((stats.pending, stats.scheduled, stats.claimed, stats.dead), (0, 0, 1, 0));
    // The dedup key of what was deleted is free.
    queue.enqueue_with("q", b"again".to_vec(), later).await.unwrap();
    assert_eq!(queue.view().stats("q").await.unwrap().scheduled, 1);
    queue.close().await.unwrap();
    audit(&bytes, "store", Some(true)).await;
}

#[tokio::test]
async fn ten_thousand_jobs_are_requeued_in_bounded_batches_and_it_goes_on_after_a_crash() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    enqueue(&queue, "q", 10_000).await;
    kill_all(&queue, "q").await;
    let filter = JobFilter::new("q", JobStatus::Dead);
    let mut cursor = None;
    for _ in 0..5 {
        let call = queue.bulk_step(&filter, BulkAction::Requeue, cursor.as_deref(), false);
        let step = call.await.unwrap();
        assert!(step.changed <= 512 && step.next_cursor.is_some());
        cursor = step.next_cursor;
    }
    let closed = queue.closed();
    drop(queue);
    closed.await;

    let store = Arc::new(KillStore::new(bytes.clone(), Kill::At(u64::MAX)));
    let options = OpenOptions::default().clock(Arc::new(clock.clone()) as Arc<dyn Clock>);
    let queue = Queue::open_with_options(store.clone(), "store", options).await.unwrap();
    let before = store.effects();
    let rest = queue.bulk(&filter, BulkAction::Requeue, false).await.unwrap();
    let stats = queue.view().stats("q").await.unwrap();
    assert_eq!((stats.pending, stats.dead), (10_000, 0), "{rest:?}");
    let puts = store.effects() - before;
    assert!(puts < 80, "{puts} writes");
}

/// Operators, workers and the clock at once: no job is lost or doubled, and nothing hangs.
#[tokio::test]
async fn bulk_actions_race_workers_and_lose_nothing() {
    for seed in seeds(6) {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
        let queue = open(&bytes, &clock).await;
        enqueue(&queue, "q", 300).await;
        let operator = async {
            for _ in 0..20 {
                let status = *rng.pick(&[JobStatus::Dead, JobStatus::Pending, JobStatus::Claimed]);
                let action = match status {
                    JobStatus::Dead => BulkAction::Requeue,
                    _ => BulkAction::Cancel,
                };
                let tenant = if status == JobStatus::Dead { "a" } else { "b" };
                let filter = JobFilter::new("q", status).header("tenant", tenant);
                queue.bulk(&filter, action, false).await.unwrap();
            }
        };
        let mut ends = 0;
        let worker = async {
            while let Some(claim) = queue.claim_next("q").await.unwrap() {
                if ends % 3 == 0 && ends < 400 {
                    queue.nack(&claim, "no").await.unwrap();
                } else {
                    queue.ack(&claim).await.unwrap();
                }
                ends += 1;
            }
        };
        futures_util::future::join(operator, worker).await;
        let requeue = JobFilter::new("q", JobStatus::Dead).header("tenant", "a");
        queue.bulk(&requeue, BulkAction::Requeue, false).await.unwrap();
        let stats = queue.view().stats("q").await.unwrap();
        // Of tenant "a" nothing was cancelled: each job is done or waits.
        let left = [JobStatus::Pending, JobStatus::Done].map(|status| {
            let queue = Arc::clone(&queue);
            async move { list(&queue, "q", status, 1_000).await }
        });
        let of_a = futures_util::future::join_all(left).await.concat();
        assert_eq!(
            of_a.iter().filter(|job| job.headers["tenant"] == "a").count(),
            150,
            "{stats:?}"
        );
        queue.close().await.unwrap();
        audit(&bytes, "store", Some(true)).await;
    }
}

#[tokio::test]
async fn progress_shows_at_once_is_stored_seldom_and_goes_with_its_attempt() {
    let bytes = Arc::new(InMemory::new());
    let store = Arc::new(KillStore::new(bytes.clone(), Kill::At(u64::MAX)));
    let queue = Queue::open(store.clone(), "store").await.unwrap();
    let id = queue.enqueue("q", b"work".to_vec()).await.unwrap();
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    let lease: LeaseHandle = queue.lease_handle(&claim);
    let before = store.effects();
    for percent in 0..=250 {
        lease.report_progress(percent, &format!("step {percent}, {}", "x".repeat(2_000))).unwrap();
    }
    let job = queue.view().get_job(&id).await.unwrap().unwrap();
    let progress = job.progress.unwrap();
    assert_eq!((progress.percent, progress.note.len()), (100, 1_024));
    assert!(progress.note.starts_with("step 250, x"));
    // It is stored with the claim, a while later, in a PUT or two.
    for _ in 0..4_000 {
        if store.effects() > before {
            break;
        }
        taquba::time::sleep(Duration::from_millis(5)).await;
    }
    assert!((1..=2).contains(&(store.effects() - before)), "{}", store.effects() - before);
    queue.nack(&claim, "again").await.unwrap();
    assert!(matches!(lease.report_progress(1, "late"), Err(Error::ClaimLost)));
    assert_eq!(queue.view().get_job(&id).await.unwrap().unwrap().progress, None);
    LeaseHandle::detached().report_progress(1, "nobody's").unwrap();
    queue.close().await.unwrap();
    audit(&bytes, "store", Some(true)).await;
}
