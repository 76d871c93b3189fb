//! The story a newcomer needs: open, enqueue, claim, crash, reopen, retry, settle, inspect.

use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::{ObjectStore, memory::InMemory};
use taquba::{JobStatus, MockClock, OpenOptions, Queue, QueueConfig, WaitOutcome};

#[tokio::test]
async fn a_job_survives_a_crash_is_retried_and_settles_once() {
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let clock = MockClock::new(1_000_000);
    let options =
        || OpenOptions::default().clock(Arc::new(clock.clone()) as Arc<dyn taquba::Clock>);

    // A producer enqueues. When the call returns, the job is in the bucket.
    let queue = Queue::open_with_options(bucket.clone(), "orders", options()).await.unwrap();
    let id = queue.enqueue("ship", b"order 7".to_vec()).await.unwrap();

    // A worker claims it, and the process dies before the worker is done.
    let claim = queue.claim_next("ship").await.unwrap().unwrap();
    assert_eq!((claim.id.as_str(), claim.payload.as_slice()), (id.as_str(), &b"order 7"[..]));
    assert_eq!(claim.attempts, 1);
    drop(queue);

    // Another process opens the same path: the job is there, claimable at once.
    let queue = Queue::open_with_options(bucket.clone(), "orders", options()).await.unwrap();
    let claim = queue.claim_next("ship").await.unwrap().unwrap();
    assert_eq!(claim.id, id);

    // This attempt fails. The job waits for its backoff, then comes again.
    queue.nack(&claim, "the carrier is down").await.unwrap();
    assert!(queue.claim_next("ship").await.unwrap().is_none());
    let waiting = queue.view().get_job(&id).await.unwrap().unwrap();
    assert_eq!(waiting.status, JobStatus::Scheduled);
    assert_eq!(waiting.last_error.as_deref(), Some("the carrier is down"));
    clock.advance(Duration::from_secs(300));
    let claim = queue.claim_with_wait("ship", Duration::from_secs(30), Duration::from_secs(5));
    let claim = claim.await.unwrap().unwrap();

    // It succeeds. Whoever waited for it hears so, and it cannot be settled again.
    let (outcome, ack) = tokio::join!(queue.wait_for_completion(&id), queue.ack(&claim));
    ack.unwrap();
    assert!(matches!(outcome.unwrap(), WaitOutcome::Done(job) if job.id == id));
    assert!(matches!(queue.ack(&claim).await, Err(taquba::Error::ClaimLost)));

    let stats = queue.view().stats("ship").await.unwrap();
    assert_eq!(
        (stats.pending, stats.claimed, stats.scheduled, stats.dead, stats.done),
        (0, 0, 0, 0, 1)
    );
    queue.close().await.unwrap();
}

#[tokio::test]
async fn a_job_that_keeps_failing_is_dead_lettered_and_can_be_brought_back() {
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let config = QueueConfig::default().max_attempts(2_u32).retry_backoff_base(Duration::ZERO);
    let options = OpenOptions::default().default_queue_config(config);
    let queue = Queue::open_with_options(bucket, "orders", options).await.unwrap();
    let id = queue.enqueue("ship", b"order 8".to_vec()).await.unwrap();
    for _ in 0..2 {
        let claim = queue.claim_next("ship").await.unwrap().unwrap();
        queue.nack(&claim, "no such address").await.unwrap();
    }
    let dead = queue.view().dead_jobs("ship", None, 10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].last_error.as_deref(), Some("no such address"));

    queue.requeue_dead_job(&id).await.unwrap();
    let claim = queue.claim_next("ship").await.unwrap().unwrap();
    assert_eq!(claim.attempts, 1);
    queue.ack(&claim).await.unwrap();
    queue.close().await.unwrap();
}
