//! Hazard 5: reads of the bucket that stall. Whoever needs what is cold waits; hot calls go on as if nothing were.

use std::sync::Arc;
use std::time::Duration;

use taquba::{CancelOutcome, Clock, EnqueueOptions, MockClock, OpenOptions, SystemClock};
use tokio::task::JoinHandle;

use super::{Bucket, TABLE_GET, open, open_plain, push_into_tables, step_back, until, within};

const LEASE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(20);
const HOT: usize = 200;

/// A store whose `cold` queue is in tables that nobody has read yet.
async fn cold_store() -> (Arc<Bucket>, Vec<String>) {
    let bucket = Bucket::new();
    let queue = open_plain(&bucket).await;
    let mut ids = queue.enqueue_batch("cold", vec![b"cold".to_vec(); 100]).await.unwrap();
    let keyed = EnqueueOptions::default().dedup_key("k");
    ids.push(queue.enqueue_with("cold", vec![], keyed).await.unwrap());
    push_into_tables(&bucket, &queue).await;
    drop(queue);
    (Bucket::on(bucket.fork(), None), ids)
}

#[tokio::test]
async fn hazard_05_stalled_gets_leave_hot_calls_alone() {
    let (bucket, ids) = cold_store().await;
    // Time stands still, so that failed jobs stay in their backoff.
    let clock: Arc<dyn Clock> = Arc::new(MockClock::new(SystemClock.now_ms()));
    let queue = open(&bucket, OpenOptions::default().clock(clock)).await;
    bucket.hold(TABLE_GET);

    let mut cold: Vec<(&str, JoinHandle<bool>)> = Vec::new();
    let (q, id) = (Arc::clone(&queue), ids[50].clone());
    let cancel = async move { q.cancel(&id).await.unwrap() == CancelOutcome::Removed };
    cold.push(("a cancel by id", tokio::spawn(cancel)));
    let (q, id) = (Arc::clone(&queue), ids[100].clone());
    let keyed = async move {
        let keyed = EnqueueOptions::default().dedup_key("k");
        q.enqueue_with("cold", vec![], keyed).await.unwrap() == id
    };
    cold.push(("an enqueue with a dedup key", tokio::spawn(keyed)));
    let (q, id) = (Arc::clone(&queue), ids[0].clone());
    let claim = async move {
        let claim = q.claim("cold", LEASE).await.unwrap();
        claim.is_some_and(|claim| claim.id == id)
    };
    cold.push(("a claim that needs a refill", tokio::spawn(claim)));
    let (q, id) = (Arc::clone(&queue), ids[60].clone());
    let wait = async move {
        matches!(q.wait_for_completion(&id).await, Ok(taquba::WaitOutcome::Cancelled))
    };
    cold.push(("a wait for a cold job", tokio::spawn(wait)));
    until("the cold calls wait for the bucket", async || bucket.held_now() > 0).await;

    // Hot work of every kind, on a queue beside and on the cold one.
    for n in 0..HOT {
        let id = queue.enqueue("hot", vec![]).await.unwrap();
        let claim = queue.claim("hot", LEASE).await.unwrap().unwrap();
        assert_eq!(claim.id, id);
        match n % 3 {
            0 => queue.nack(&claim, "no").await.unwrap(),
            1 => queue.dead_letter(&claim, "no").await.unwrap(),
            _ => queue.ack(&claim).await.unwrap(),
        }
        queue.enqueue("cold", vec![]).await.unwrap();
        queue.kv_put(b"hot", &[0]).await.unwrap();
    }
    step_back().await;
    for (what, call) in &cold {
        assert!(!call.is_finished(), "{what} did not need the bucket: nothing was tested");
    }

    bucket.release();
    let (q, id) = (Arc::clone(&queue), ids[60].clone());
    let removed = within(LIMIT, "a cancel", async move { q.cancel(&id).await }).await;
    assert_eq!(removed.unwrap(), CancelOutcome::Removed);
    for (what, call) in cold {
        assert!(within(LIMIT, what, call).await.unwrap(), "{what}: wrong answer");
    }
    // Everything that was there, or came while its queue was being read, is there once.
    let mut left = 0;
    while queue.claim("cold", LEASE).await.unwrap().is_some() {
        left += 1;
    }
    assert_eq!(left, 101 - 3 + HOT);
}

#[tokio::test]
async fn hazard_05_a_crowd_of_cold_calls_leaves_room_for_settlements() {
    let (bucket, ids) = cold_store().await;
    let queue = open_plain(&bucket).await;
    for _ in 0..2 {
        queue.enqueue("hot", vec![]).await.unwrap();
    }
    let held = queue.claim("hot", LEASE).await.unwrap().unwrap();
    bucket.hold(TABLE_GET);
    // More of them than the mailbox has room for.
    let mut cold = tokio::task::JoinSet::new();
    for id in ids.into_iter().take(20) {
        let queue = Arc::clone(&queue);
        let large = Some(vec![0; 1_024 * 1_024]);
        cold.spawn(async move { queue.wake_scheduled(&id, large).await });
    }
    until("the cold calls wait for the bucket", async || bucket.held_now() > 0).await;
    step_back().await;
    within(LIMIT, "an ack", queue.ack(&held)).await.unwrap();
    let next = within(LIMIT, "a claim", queue.claim("hot", LEASE)).await.unwrap().unwrap();
    within(LIMIT, "a nack", queue.nack(&next, "no")).await.unwrap();

    bucket.release();
    let all = async { while cold.join_next().await.transpose().unwrap().is_some() {} };
    within(LIMIT, "the cold calls", all).await;
}
