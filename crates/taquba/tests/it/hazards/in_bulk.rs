//! Ten thousand jobs that fall due at once, and ten thousand leases that run out at once: a few log objects, and nobody
//! else waits for all of them.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::{
    Clock, EnqueueOptions, EnqueueRequest, MockClock, OpenOptions, Queue, QueueStats,
    SettlementEffects,
};

use super::{Bucket, open, until};

const JOBS: usize = 10_000;
const LEASE: Duration = Duration::from_secs(60);
/// A round takes a thousand; each may be a log object of its own.
const PUTS_MAX: usize = 20;

async fn stats(queue: &Queue) -> QueueStats {
    queue.view().stats("q").await.unwrap()
}

/// Moves the clock past what is due, and makes other calls at once: they wait neither for all that is due to be worked
/// off, nor for more log objects than anyone.
async fn advance_beside(
    bucket: &Bucket,
    queue: &Queue,
    clock: &MockClock,
    due: fn(&QueueStats) -> i64,
) {
    queue.enqueue("other", vec![]).await.unwrap();
    let before = bucket.wal_puts();
    clock.advance(2 * LEASE);
    let claim = queue.claim("other", LEASE).await.unwrap();
    assert!(claim.is_some());
    let left = due(&stats(queue).await);
    assert!(left >= 5_000, "another call waited until only {left} were left");
    queue.enqueue("other", vec![]).await.unwrap();
    let puts = bucket.wal_puts() - before;
    assert!(puts <= 3, "another call waited for {puts} log objects");
}

#[tokio::test]
async fn hazard_in_bulk_ten_thousand_due_jobs_take_few_log_objects_and_delay_nobody() {
    let bucket = Bucket::new();
    let clock = MockClock::new(1_000_000);
    let options = OpenOptions::default().clock(Arc::new(clock.clone()) as Arc<dyn Clock>);
    let queue = open(&bucket, options).await;
    let due = EnqueueOptions::default().run_at(UNIX_EPOCH + Duration::from_secs(1_030));
    for _ in 0..JOBS / 1_000 {
        let job = EnqueueRequest { queue: "q".to_owned(), payload: vec![], options: due.clone() };
        let jobs = SettlementEffects::default().enqueues(vec![job; 1_000]);
        queue.commit_effects(jobs).await.unwrap();
    }
    assert_eq!(stats(&queue).await.scheduled, 10_000);

    let before = bucket.wal_puts();
    advance_beside(&bucket, &queue, &clock, |stats| stats.scheduled).await;
    until("all are ready", async || stats(&queue).await.pending == 10_000).await;
    queue.kv_put(b"last", b"").await.unwrap();
    let puts = bucket.wal_puts() - before;
    assert!(puts <= PUTS_MAX, "{puts} log objects");
    assert_eq!(queue.claim_batch("q", 2 * JOBS, LEASE).await.unwrap().len(), JOBS);
}

#[tokio::test]
async fn hazard_in_bulk_ten_thousand_expired_leases_take_few_log_objects_and_delay_nobody() {
    let bucket = Bucket::new();
    let clock = MockClock::new(1_000_000);
    let options = OpenOptions::default().clock(Arc::new(clock.clone()) as Arc<dyn Clock>);
    let queue = open(&bucket, options).await;
    queue.enqueue_batch("q", vec![vec![]; JOBS]).await.unwrap();
    let held = queue.claim_batch("q", JOBS, LEASE).await.unwrap();
    assert_eq!(held.len(), JOBS);
    queue.kv_put(b"claims are durable", b"").await.unwrap();

    let before = bucket.wal_puts();
    advance_beside(&bucket, &queue, &clock, |stats| stats.claimed).await;
    until("all are ready", async || stats(&queue).await.pending == 10_000).await;
    queue.kv_put(b"last", b"").await.unwrap();
    let puts = bucket.wal_puts() - before;
    assert!(puts <= PUTS_MAX, "{puts} log objects");
    assert!(held.iter().all(|claim| claim.cancel_token().is_cancelled()));
    let again = queue.claim_batch("q", 2 * JOBS, LEASE).await.unwrap();
    assert_eq!(again.len(), JOBS);
    assert!(again.iter().all(|claim| claim.attempts == 2));
}
