//! The history of a job's attempts: what is recorded, how much is kept, and that it goes with the job.

use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::memory::InMemory;
use taquba::{AttemptOutcome, Clock, EnqueueOptions, MockClock, OpenOptions, Queue, QueueConfig};

use crate::support::audit::audit;

async fn open(bytes: &Arc<InMemory>, clock: &MockClock) -> Queue {
    let kept = QueueConfig::default()
        .retry_backoff_base(Duration::ZERO)
        .keep_done_jobs(Duration::from_secs(60));
    let options = OpenOptions::default()
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
        .queue_config("kept", kept)
        .default_queue_config(QueueConfig::default().retry_backoff_base(Duration::ZERO));
    Queue::open_with_options(bytes.clone(), "store", options).await.unwrap()
}

#[tokio::test]
async fn each_way_that_an_attempt_ends_is_recorded_with_its_times() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let mut queue = open(&bytes, &clock).await;
    let options = EnqueueOptions::default().max_attempts(4_u32);
    let id = queue.enqueue_with("kept", b"work".to_vec(), options).await.unwrap();
    assert_eq!(queue.view().attempt_history(&id).await.unwrap(), []);

    let claim = queue.claim_next("kept").await.unwrap().unwrap();
    clock.advance(Duration::from_millis(5));
    queue.nack(&claim, "no luck").await.unwrap();

    queue.claim("kept", Duration::from_millis(10)).await.unwrap().unwrap();
    clock.advance(Duration::from_millis(10));
    queue.reap_now().await.unwrap();

    queue.claim_next("kept").await.unwrap().unwrap();
    queue.close().await.unwrap();
    queue = open(&bytes, &clock).await;

    let claim = queue.claim_next("kept").await.unwrap().unwrap();
    queue.nack(&claim, "out of luck").await.unwrap();
    clock.advance(Duration::from_millis(1));
    queue.requeue_dead_job(&id).await.unwrap();
    let claim = queue.claim_next("kept").await.unwrap().unwrap();
    queue.ack(&claim).await.unwrap();

    let history = queue.view().attempt_history(&id).await.unwrap();
    let brief: Vec<_> = history
        .iter()
        .map(|e| (e.attempt, e.claimed_at, e.recorded_at, e.outcome, e.error.as_deref()))
        .collect();
    let interrupted = "claim interrupted by process exit";
    assert_eq!(
        brief,
        [
            (1, Some(1_000), 1_005, AttemptOutcome::Retried, Some("no luck")),
            (2, Some(1_005), 1_015, AttemptOutcome::LeaseExpired, Some("lease expired")),
            (3, Some(1_015), 1_015, AttemptOutcome::Interrupted, Some(interrupted)),
            (4, Some(1_015), 1_015, AttemptOutcome::DeadLettered, Some("out of luck")),
            (4, None, 1_016, AttemptOutcome::Requeued, None),
            (1, Some(1_016), 1_016, AttemptOutcome::Completed, None),
        ]
    );
    let job = queue.view().get_job(&id).await.unwrap().unwrap();
    assert_eq!(job.completed_at, Some(1_016), "the record and its history tell the same time");
    queue.close().await.unwrap();
    audit(&bytes, "store", Some(true)).await;
}

#[tokio::test]
async fn the_latest_hundred_entries_are_kept_and_go_with_the_job() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    let options = EnqueueOptions::default().max_attempts(1_000_u32);
    let id = queue.enqueue_with("q", b"work".to_vec(), options).await.unwrap();
    for n in 1..=130 {
        let claim = queue.claim_next("q").await.unwrap().unwrap();
        queue.nack(&claim, &format!("failure {n}")).await.unwrap();
    }
    let history = queue.view().attempt_history(&id).await.unwrap();
    let attempts: Vec<u32> = history.iter().map(|entry| entry.attempt).collect();
    assert_eq!(attempts, (31..=130).collect::<Vec<_>>());

    let claim = queue.claim_next("q").await.unwrap().unwrap();
    queue.ack(&claim).await.unwrap();
    assert_eq!(queue.view().attempt_history(&id).await.unwrap(), []);
    queue.close().await.unwrap();
    // No row of it is left: the audit knows of no history without a job.
    audit(&bytes, "store", Some(true)).await;
}
