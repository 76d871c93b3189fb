//! Hazard 8: a claim whose caller goes away. Wherever its future is dropped, the job is there for the next one at once,
//! no attempt is charged, and another worker that waits is woken for it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use taquba::{EnqueueOptions, JobStatus, OpenOptions, Queue};

use super::{Bucket, WAL_PUT, open_plain, step_back, until, within};

const LEASE: Duration = Duration::from_secs(3_600);
const LONG: Duration = Duration::from_secs(60);

/// Polls a call this often, letting everybody else go on this many times in between, then drops it. Tells whether the
/// call was answered.
async fn poll_and_drop(polls: usize, yields: usize, call: impl Future) -> bool {
    let mut call = pin!(call);
    for _ in 0..polls {
        if call.as_mut().now_or_never().is_some() {
            return true;
        }
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
    }
    false
}

async fn status(queue: &Queue, id: &str) -> Option<JobStatus> {
    queue.view().get_job(id).await.unwrap().map(|job| job.status)
}

/// Claims the queue's only job, which must be there as if nothing had been.
async fn claim_untouched(queue: &Queue, name: &str, id: &str) -> taquba::Claim {
    let claim = queue.claim(name, LEASE).await.unwrap();
    let claim = claim.unwrap_or_else(|| panic!("{id} is not claimable at once"));
    assert_eq!((claim.id.as_str(), claim.attempts), (id, 1));
    claim
}

#[tokio::test]
async fn hazard_08_a_claim_dropped_at_any_await_point_leaves_its_job_untouched() {
    let queue = open_plain(&Bucket::new()).await;
    for polls in 0..5 {
        for yields in [1, 2, 3, 5, 8, 64] {
            for wait in [false, true] {
                let name = format!("q-{polls}-{yields}-{wait}");
                let id = queue.enqueue(&name, vec![]).await.unwrap();
                let answered = match wait {
                    false => poll_and_drop(polls, yields, queue.claim(&name, LEASE)).await,
                    true => {
                        let claim = queue.claim_with_wait(&name, LEASE, LONG);
                        poll_and_drop(polls, yields, claim).await
                    }
                };
                if answered {
                    // The last poll took the claim over: from there on it is the caller's.
                    assert_eq!(status(&queue, &id).await, Some(JobStatus::Claimed));
                    continue;
                }
                let claim = claim_untouched(&queue, &name, &id).await;
                queue.ack(&claim).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn hazard_08_a_granted_claim_that_is_dropped_wakes_the_next_waiter() {
    let queue = open_plain(&Bucket::new()).await;
    for at_once in [1, 3] {
        let name = format!("q-{at_once}");
        // Two are in line for the same jobs; then the jobs come, and the first one's answer is never looked at.
        let mut first = Box::pin(queue.claim_with_wait(&name, LEASE, LONG));
        assert!(first.as_mut().now_or_never().is_none());
        step_back().await;
        let second = tokio::spawn({
            let (queue, name) = (Arc::clone(&queue), name.clone());
            async move { queue.claim_with_wait(&name, LEASE, LONG).await }
        });
        step_back().await;
        let id = queue.enqueue(&name, vec![]).await.unwrap();
        until("the first has the job", async || {
            status(&queue, &id).await == Some(JobStatus::Claimed)
        })
        .await;
        assert!(!second.is_finished());
        drop(first);
        let claim = within(LONG, "the second waiter", second).await.unwrap().unwrap().unwrap();
        assert_eq!((claim.id.as_str(), claim.attempts), (id.as_str(), 1));
        queue.ack(&claim).await.unwrap();
    }
}

#[tokio::test]
async fn hazard_08_a_claim_dropped_while_its_hand_over_waits_for_the_log_is_given_back() {
    let bucket = Bucket::new();
    let queue = open_plain(&bucket).await;
    let id = queue.enqueue("q", vec![]).await.unwrap();
    drop(queue);
    // After a crash a claim is handed over only when it is durable.
    let copy = Bucket::on(bucket.fork(), None);
    let queue = open_plain(&copy).await;
    copy.hold(WAL_PUT);
    {
        let mut claim = Box::pin(queue.claim("q", LEASE));
        for _ in 0..10 {
            assert!(claim.as_mut().now_or_never().is_none(), "handed over undurable");
            step_back().await;
        }
        assert_eq!(status(&queue, &id).await, Some(JobStatus::Claimed));
    }
    copy.release();
    until("the job is given back", async || status(&queue, &id).await == Some(JobStatus::Pending))
        .await;
    let claim = claim_untouched(&queue, "q", &id).await;
    queue.ack(&claim).await.unwrap();
}

#[tokio::test]
async fn hazard_08_a_batch_that_is_dropped_comes_back_whole_and_in_order() {
    let queue = open_plain(&Bucket::new()).await;
    let payloads: Vec<_> = (0..50_u8).map(|n| vec![n]).collect();
    queue.enqueue_batch("q", payloads.clone()).await.unwrap();
    assert!(!poll_and_drop(1, 64, queue.claim_batch("q", 30, LEASE)).await);
    let claims = queue.claim_batch("q", 100, LEASE).await.unwrap();
    let order: Vec<_> = claims.iter().map(|claim| claim.payload.clone()).collect();
    assert_eq!(order, payloads);
    assert!(claims.iter().all(|claim| claim.attempts == 1));
}

#[tokio::test]
async fn hazard_08_a_dropped_claim_keeps_its_dedup_key_unless_another_job_took_it() {
    let queue = open_plain(&Bucket::new()).await;
    let keyed = || EnqueueOptions::default().dedup_key("k");
    let id = queue.enqueue_with("q", vec![], keyed()).await.unwrap();
    assert!(!poll_and_drop(1, 64, queue.claim("q", LEASE)).await);
    assert_eq!(queue.enqueue_with("q", vec![], keyed()).await.unwrap(), id);

    // Granted, not looked at; its key is taken meanwhile; then dropped.
    let mut claim = Box::pin(queue.claim("q", LEASE));
    assert!(claim.as_mut().now_or_never().is_none());
    step_back().await;
    let other = queue.enqueue_with("q", vec![], keyed()).await.unwrap();
    assert_ne!(other, id);
    drop(claim);
    assert_eq!(queue.enqueue_with("q", vec![], keyed()).await.unwrap(), other);
    for id in [id, other] {
        let claim = claim_untouched(&queue, "q", &id).await;
        queue.ack(&claim).await.unwrap();
    }
    assert!(queue.claim("q", LEASE).await.unwrap().is_none());
}

#[tokio::test]
async fn hazard_08_a_claim_dropped_during_a_refill_harms_nobody() {
    let bucket = Bucket::new();
    let queue = open_plain(&bucket).await;
    queue.enqueue_batch("q", vec![vec![]; 20]).await.unwrap();
    drop(queue);
    let mut options = OpenOptions::default();
    options.knobs.page_jobs = Some(4);
    options.knobs.refill_yields = 200;
    let queue = super::open(&Bucket::on(bucket.fork(), None), options).await;
    for polls in 0..6 {
        let claim = queue.claim_with_wait("q", LEASE, LONG);
        assert!(!poll_and_drop(polls, 8, claim).await, "answered before the page came");
    }
    let left = queue.view().stats("q").await.unwrap().pending;
    let mut found = 0;
    while queue.claim("q", LEASE).await.unwrap().is_some() {
        found += 1;
    }
    assert_eq!(found, left);
}
