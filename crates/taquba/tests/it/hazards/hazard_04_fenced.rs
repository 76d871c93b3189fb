//! Hazard 4: a process that has lost its store goes on handing out the ready jobs in its memory.

use std::sync::Arc;
use std::time::Duration;

use taquba::{CloseReason, Error, OpenOptions, run_worker};

use super::{Bucket, open, open_plain, pass, within};

const LEASE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn is_fenced<T: std::fmt::Debug>(answer: taquba::Result<T>) -> bool {
    match answer {
        Err(Error::Closed(CloseReason::Fenced)) => true,
        other => panic!("not fenced: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_04_a_fenced_process_hands_out_nothing_on_an_old_proof() {
    let bucket = Bucket::new();
    // Nothing is asked of the store meanwhile but what the claims ask.
    let idle = OpenOptions::default().fence_check_interval(Duration::from_secs(3_600));
    let old = open(&bucket, idle).await;
    old.enqueue_batch("q", vec![vec![1]; 1_000]).await.unwrap();
    pass(2 * SECOND).await;

    let new = open_plain(&bucket).await;
    for call in 0..3 {
        // Once by each kind of claim: none hands anything out, from the first call on.
        match call {
            0 => assert!(is_fenced(old.claim_batch("q", 10, LEASE).await)),
            1 => assert!(is_fenced(old.claim_next("q").await)),
            _ => assert!(is_fenced(old.claim_with_wait("q", LEASE, SECOND).await)),
        }
    }
    assert!(is_fenced(old.enqueue("q", vec![]).await));
    // The new owner has them all, none of them charged.
    let claims = new.claim_batch("q", 2_000, LEASE).await.unwrap();
    assert_eq!(claims.len(), 1_000);
    assert!(claims.iter().all(|claim| claim.attempts == 1));
}

#[tokio::test(start_paused = true)]
async fn hazard_04_a_fenced_process_that_works_is_over_within_two_seconds() {
    let bucket = Bucket::new();
    let idle = OpenOptions::default().fence_check_interval(Duration::from_secs(3_600));
    let old = open(&bucket, idle).await;
    old.enqueue_batch("q", vec![vec![1]; 1_000]).await.unwrap();
    let held = old.claim_next("q").await.unwrap().unwrap();
    let waiter = tokio::spawn({
        let old = Arc::clone(&old);
        async move { old.claim_with_wait("empty", LEASE, 3_600 * SECOND).await.map(drop) }
    });

    let new = open_plain(&bucket).await;
    // While its proof is young it may still hand jobs out; nothing that it does with them can be confirmed.
    let mut handed_out = 0;
    let mut last = Ok(());
    for _ in 0..60 {
        match old.claim_next("q").await {
            Ok(claim) => handed_out += usize::from(claim.is_some()),
            Err(error) => last = Err(error),
        }
        pass(Duration::from_millis(50)).await;
    }
    assert!(handed_out <= 22, "{handed_out} jobs handed out, one each 50 ms");
    assert!(is_fenced(last));
    assert!(held.cancel_token().is_cancelled(), "its handlers go on");
    assert!(is_fenced(old.ack(&held).await));
    assert!(is_fenced(within(SECOND, "a waiting claim", waiter).await.unwrap()));
    assert_eq!(old.closed().await, CloseReason::Fenced);

    let claims = new.claim_batch("q", 2_000, LEASE).await.unwrap();
    assert_eq!(claims.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn hazard_04_handlers_of_a_fenced_process_are_told_within_two_seconds() {
    let bucket = Bucket::new();
    let idle = OpenOptions::default().fence_check_interval(3_600 * SECOND);
    let old = open(&bucket, idle).await;
    old.enqueue("q", vec![]).await.unwrap();
    let held = old.claim("q", LEASE).await.unwrap().unwrap();
    pass(5 * SECOND).await;
    let _new = open_plain(&bucket).await;
    assert!(!held.cancel_token().is_cancelled());
    // Nobody asks the old process for anything.
    let told = held.cancel_token().cancelled();
    within(2 * SECOND, "its handler goes on", told).await;
    assert_eq!(old.closed().await, CloseReason::Fenced);
}

#[tokio::test(start_paused = true)]
async fn hazard_04_an_idle_fenced_process_ends_within_its_check_interval() {
    struct Nobody;
    impl taquba::Worker for Nobody {
        async fn process(
            &self,
            _: &taquba::JobRecord,
            _: &taquba::LeaseHandle,
        ) -> Result<(), taquba::WorkerError> {
            panic!("a fenced process started a handler")
        }
    }
    let bucket = Bucket::new();
    let old = open(&bucket, OpenOptions::default().fence_check_interval(5 * SECOND)).await;
    let id = old.enqueue("other", vec![]).await.unwrap();
    let looped = tokio::spawn({
        let old = Arc::clone(&old);
        async move { run_worker(&old, "q", &Nobody, SECOND, std::future::pending()).await }
    });
    let waiter = tokio::spawn({
        let old = Arc::clone(&old);
        async move { old.wait_for_completion(&id).await.map(drop) }
    });
    pass(2 * SECOND).await;

    let new = open_plain(&bucket).await;
    new.enqueue("q", vec![]).await.unwrap();
    let limit = 7 * SECOND;
    assert!(is_fenced(within(limit, "an idle worker loop", looped).await.unwrap()));
    assert!(is_fenced(within(limit, "a waiter", waiter).await.unwrap()));
}
