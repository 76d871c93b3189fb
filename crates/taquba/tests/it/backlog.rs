//! A backlog far larger than what memory holds: enqueued, left by a crash, drained by another process in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use taquba::object_store::{ObjectStore, memory::InMemory};
use taquba::{JobStatus, Queue};

const JOBS: usize = 200_000;
const BATCH: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_thousand_jobs_left_by_a_crash_are_drained_in_order_and_once() {
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let queue = Queue::open(bucket.clone(), "backlog").await.unwrap();
    for batch in 0..JOBS / BATCH {
        let payload = |n: usize| ((batch * BATCH + n) as u32).to_be_bytes().to_vec();
        queue.enqueue_batch("q", (0..BATCH).map(payload).collect()).await.unwrap();
    }
    drop(queue);

    let queue = Arc::new(Queue::open(bucket, "backlog").await.unwrap());
    assert_eq!(queue.view().stats("q").await.unwrap().pending, JOBS as i64);
    let done = Arc::new(AtomicUsize::new(0));
    let mut next = 0_u32;
    while (next as usize) < JOBS {
        let claims = queue.claim_batch("q", 1_000, Duration::from_secs(60)).await.unwrap();
        assert!(!claims.is_empty(), "nothing to claim at {next} of {JOBS}");
        let mut acks = tokio::task::JoinSet::new();
        for claim in claims {
            assert_eq!(claim.payload, next.to_be_bytes(), "out of order");
            next += 1;
            let (queue, done) = (queue.clone(), done.clone());
            acks.spawn(async move {
                queue.ack(&claim).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        acks.join_all().await;
    }
    assert_eq!(done.load(Ordering::Relaxed), JOBS);
    assert!(queue.claim_next("q").await.unwrap().is_none());
    let stats = queue.view().stats("q").await.unwrap();
    assert_eq!((stats.pending, stats.claimed, stats.done), (0, 0, JOBS as i64));
    let left = queue.view().list_jobs("q", JobStatus::Pending, None, 10).await.unwrap();
    assert!(left.jobs.is_empty());
    Arc::into_inner(queue).unwrap().close().await.unwrap();
}
