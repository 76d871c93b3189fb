//! Who gets a job when it is not simply the next in line: claims by id, paused queues, and waiting for a job.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::object_store::memory::InMemory;
use taquba::{ClaimOutcome, Clock, EnqueueOptions, JobStatus, MockClock, OpenOptions, Queue};

use crate::support::audit::audit;
use crate::support::within;

const LEASE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3_600);

async fn open(bytes: &Arc<InMemory>, clock: &MockClock) -> Arc<Queue> {
    let options = OpenOptions::default().clock(Arc::new(clock.clone()) as Arc<dyn Clock>);
    Arc::new(Queue::open_with_options(bytes.clone(), "store", options).await.unwrap())
}

#[tokio::test]
async fn a_scheduled_job_that_waits_for_a_signal_can_be_claimed_by_its_id() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    let at = UNIX_EPOCH + Duration::from_secs(99);
    let options = EnqueueOptions::default().run_at(Some(at)).signal_key("key").dedup_key("only");
    let id = queue.enqueue_with("q", b"work".to_vec(), options).await.unwrap();
    let outcome = queue.claim_by_id(&id, LEASE).await.unwrap();
    let ClaimOutcome::Claimed(claim) = outcome else { panic!("{outcome:?}") };
    assert_eq!((claim.attempts, claim.status, claim.run_at), (1, JobStatus::Claimed, None));
    assert!(matches!(queue.claim_by_id(&id, LEASE).await.unwrap(), ClaimOutcome::NotClaimable));
    assert!(matches!(queue.claim_by_id("nobody", LEASE).await.unwrap(), ClaimOutcome::NotFound));
    // It waits for the signal no more, not even when it is tried again.
    queue.nack(&claim, "no").await.unwrap();
    queue.send_signal("q", "key", b"late".to_vec()).await.unwrap();
    let job = queue.view().get_job(&id).await.unwrap().unwrap();
    assert_eq!((job.status, job.wake_payload), (JobStatus::Scheduled, None));
    queue.close().await.unwrap();
    audit(&bytes, "store", Some(true)).await;
}

#[tokio::test]
async fn a_paused_queue_hands_out_nothing_across_openings_and_goes_on_when_resumed() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    let id = queue.enqueue("q", b"work".to_vec()).await.unwrap();
    assert!(queue.pause("q").await.unwrap());
    assert!(!queue.pause("q").await.unwrap(), "it is paused already");
    assert!(queue.claim_next("q").await.unwrap().is_none());
    queue.close().await.unwrap();

    let queue = open(&bytes, &clock).await;
    assert!(queue.view().stats("q").await.unwrap().paused);
    let waiter = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.claim_with_wait("q", LEASE, LONG).await.unwrap() }
    });
    queue.enqueue("q", b"more".to_vec()).await.unwrap();
    assert!(queue.claim_next("q").await.unwrap().is_none());
    assert!(queue.resume("q").await.unwrap());
    assert!(!queue.view().stats("q").await.unwrap().paused);
    let claim = within("the waiter", waiter).await.unwrap().unwrap();
    assert_eq!(claim.id, id, "in its turn");
}

#[tokio::test]
async fn who_waits_for_jobs_is_told_of_one_and_of_the_end() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    let wait = |name: &'static str| {
        let queue = Arc::clone(&queue);
        tokio::spawn(async move { queue.wait_for_jobs_on(name, LONG).await })
    };
    let (first, other) = (wait("q"), wait("other"));
    queue.enqueue("q", b"work".to_vec()).await.unwrap();
    within("news of a job", first).await.unwrap();
    // One that is there already is news too.
    within("news of the same job", wait("q")).await.unwrap();
    within("a wait that ends by itself", queue.wait_for_jobs_on("other", Duration::ZERO)).await;
    assert!(!other.is_finished());
    queue.close().await.unwrap();
    within("news of the end", other).await.unwrap();
    within("a wait on a closed queue", wait("q")).await.unwrap();
}
