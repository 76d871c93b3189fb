//! Hazard 3: a change that nobody waits for. It may share the log PUT of what comes soon, but when nothing comes it is
//! in the bucket within `deferred_flush_max`.

use std::time::Duration;

use taquba::{EnqueueOptions, OpenOptions, Queue};

use super::{Bucket, open, pass};

const DEFERRED_MAX: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(10);

/// How long it takes, in the runtime's paused time, until one more log object is written.
async fn time_to_next_put(bucket: &Bucket) -> Duration {
    let before = bucket.wal_puts();
    let mut waited = Duration::ZERO;
    while bucket.wal_puts() == before {
        assert!(waited < 50 * DEFERRED_MAX, "never flushed");
        taquba::time::sleep(STEP).await;
        waited += STEP;
    }
    waited
}

/// The attempts that a job is charged when this process dies now.
async fn attempts_after_a_crash(bucket: &Bucket) -> u32 {
    let copy = std::sync::Arc::new(bucket.fork());
    let queue = Queue::open(copy, "hazards").await.unwrap();
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    claim.attempts - 1
}

#[tokio::test(start_paused = true)]
async fn hazard_03_a_deferred_change_is_flushed_in_time() {
    let bucket = Bucket::new();
    let options = OpenOptions::default().deferred_flush_max(DEFERRED_MAX);
    let queue = open(&bucket, options).await;
    queue.enqueue("q", vec![]).await.unwrap();

    // A claim: on its own it waits its time, and then it is there.
    let puts = bucket.wal_puts();
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    assert_eq!((bucket.wal_puts(), attempts_after_a_crash(&bucket).await), (puts, 0));
    let waited = time_to_next_put(&bucket).await;
    assert!(waited <= DEFERRED_MAX + 2 * STEP, "flushed only after {waited:?}");
    assert!(waited >= DEFERRED_MAX - 2 * STEP, "not deferred at all: {waited:?}");
    assert_eq!(attempts_after_a_crash(&bucket).await, 1);

    // A second one that comes later does not push the first one's time back.
    queue.ack(&claim).await.unwrap();
    queue.enqueue_batch("q", vec![vec![]; 20]).await.unwrap();
    let started = bucket.wal_puts();
    let mut held = Vec::new();
    let mut waited = Duration::ZERO;
    while bucket.wal_puts() == started {
        assert!(waited < 50 * DEFERRED_MAX, "never flushed");
        held.extend(queue.claim_next("q").await.unwrap());
        taquba::time::sleep(3 * STEP).await;
        waited += 3 * STEP;
    }
    assert!(waited <= DEFERRED_MAX + 6 * STEP, "flushed only after {waited:?}");

    // Nothing is written when there is nothing to write.
    pass(2 * DEFERRED_MAX).await;
    let puts = bucket.wal_puts();
    pass(10 * DEFERRED_MAX).await;
    assert_eq!(bucket.wal_puts(), puts);

    // The claim of a job with a dedup key is written at once, since it frees the key; it too is flushed in time.
    let keyed = EnqueueOptions::default().dedup_key("k");
    queue.enqueue_with("keyed", vec![], keyed).await.unwrap();
    queue.claim_next("keyed").await.unwrap().unwrap();
    let waited = time_to_next_put(&bucket).await;
    assert!(waited <= DEFERRED_MAX + 2 * STEP, "flushed only after {waited:?}");
    assert!(waited >= DEFERRED_MAX - 2 * STEP, "not deferred at all: {waited:?}");
    pass(2 * DEFERRED_MAX).await;
    let puts = bucket.wal_puts();

    // One that comes with a settlement shares its PUT, which does not wait.
    queue.claim_next("q").await.unwrap().unwrap();
    queue.ack(&held[0]).await.unwrap();
    assert_eq!(bucket.wal_puts(), puts + 1);
}
