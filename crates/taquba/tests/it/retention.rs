//! Kept jobs are forgotten when their time is over: to the millisecond, in few batches, across crashes, and never one
//! that was brought back.

use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::memory::InMemory;
use taquba::{Clock, Error, JobStatus, MockClock, OpenOptions, Queue, QueueConfig};

use crate::support::audit::audit;
use crate::support::kill::{Kill, KillStore};
use crate::support::real::list;
use crate::support::within;

const LEASE: Duration = Duration::from_secs(3_600);

fn options(clock: &MockClock) -> OpenOptions {
    let config = QueueConfig::default()
        .max_attempts(1_u32)
        .keep_done_jobs(Duration::from_millis(100))
        .dead_retention(Duration::from_millis(200));
    OpenOptions::default()
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
        .default_queue_config(config)
}

/// Makes `n` jobs, and ends the even ones well and the odd ones badly.
async fn end_jobs(queue: &Queue, n: usize) {
    for batch in 0..n.div_ceil(1_000) {
        let size = 1_000.min(n - batch * 1_000);
        queue.enqueue_batch("q", vec![vec![b'p'; 600]; size]).await.unwrap();
        let claims = queue.claim_batch("q", size, LEASE).await.unwrap();
        assert_eq!(claims.len(), size);
        let ends = claims.iter().enumerate().map(|(n, claim)| async move {
            match n % 2 {
                0 => queue.ack(claim).await.unwrap(),
                _ => queue.nack(claim, "no").await.unwrap(),
            }
        });
        futures_util::future::join_all(ends).await;
    }
}

async fn counts(queue: &Queue) -> (usize, usize) {
    let done = list(queue, "q", JobStatus::Done, 1_000).await.len();
    let dead = list(queue, "q", JobStatus::Dead, 1_000).await.len();
    assert_eq!(queue.view().stats("q").await.unwrap().dead, i64::try_from(dead).unwrap());
    (done, dead)
}

#[tokio::test]
async fn kept_jobs_go_at_their_very_millisecond_and_done_counts_on() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = Queue::open_with_options(bytes.clone(), "store", options(&clock)).await.unwrap();
    end_jobs(&queue, 6).await;
    for (by, expected) in [(99, (3, 3)), (1, (0, 3)), (99, (0, 3)), (1, (0, 0))] {
        clock.advance(Duration::from_millis(by));
        queue.reap_now().await.unwrap();
        assert_eq!(counts(&queue).await, expected, "at {}", clock.now_ms());
    }
    assert_eq!(queue.view().stats("q").await.unwrap().done, 3, "it never decreases");
    queue.close().await.unwrap();
    audit(&bytes, "store", Some(true)).await;
}

#[tokio::test]
async fn ten_thousand_kept_jobs_go_in_a_few_batches() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let store = Arc::new(KillStore::new(bytes.clone(), Kill::At(u64::MAX)));
    let queue = Queue::open_with_options(store.clone(), "store", options(&clock)).await.unwrap();
    end_jobs(&queue, 10_000).await;
    let before = store.effects();
    clock.advance(Duration::from_millis(200));
    within("the sweep", queue.reap_now()).await.unwrap();
    let puts = store.effects() - before;
    assert_eq!(counts(&queue).await, (0, 0));
    assert!(puts <= 40, "{puts} writes for 10,000 jobs");
}

#[tokio::test]
async fn what_fell_due_while_nobody_was_there_goes_after_a_crash_too() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let open = || Queue::open_with_options(bytes.clone(), "store", options(&clock));
    let queue = open().await.unwrap();
    end_jobs(&queue, 8).await;
    let closed = queue.closed();
    drop(queue);
    within("the end", closed).await;
    audit(&bytes, "store", Some(false)).await;

    // Another process whose clock is behind keeps jobs that ended earlier than those.
    clock.advance(Duration::from_millis(150));
    let early = MockClock::new(700);
    let queue = Queue::open_with_options(bytes.clone(), "store", options(&early)).await.unwrap();
    end_jobs(&queue, 2).await;
    queue.close().await.unwrap();
    audit(&bytes, "store", Some(true)).await;

    let queue = open().await.unwrap();
    queue.reap_now().await.unwrap();
    // At 1,150: those that ended at 700 are over, and the completed ones of 1,000.
    assert_eq!(counts(&queue).await, (0, 4));
}

#[tokio::test]
async fn a_dead_job_that_is_brought_back_is_not_forgotten() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = Queue::open_with_options(bytes.clone(), "store", options(&clock)).await.unwrap();
    end_jobs(&queue, 40).await;
    let dead = list(&queue, "q", JobStatus::Dead, 100).await;
    // All at once: the look at what is due, and who brings the jobs back.
    clock.advance(Duration::from_millis(200));
    let back = dead.iter().map(|job| queue.requeue_dead_job(&job.id));
    let (swept, back) =
        futures_util::future::join(queue.reap_now(), futures_util::future::join_all(back)).await;
    swept.unwrap();
    let brought = back.iter().filter(|result| result.is_ok()).count();
    for result in back.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(result, Error::JobNotFound(_)), "{result}");
    }
    assert_eq!(list(&queue, "q", JobStatus::Pending, 100).await.len(), brought);
    assert_eq!(counts(&queue).await, (0, 0));
    queue.close().await.unwrap();
    audit(&bytes, "store", Some(true)).await;
}
