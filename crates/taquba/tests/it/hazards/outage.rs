//! An outage of the bucket is not the end: calls are bounded and say that they are not confirmed, and the engine
//! recovers alone. A request that never gets an answer is given up and sent again.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_outage_bounds_the_caller_and_the_engine_recovers_alone() {
    let bucket = Bucket::new();
    let patience = Duration::from_secs(2);
    let queue = open(&bucket, OpenOptions::default().call_timeout(patience)).await;
    let before = queue.enqueue("q", b"before".to_vec()).await.unwrap();

    bucket.hold(WAL_PUT);
    let waited = queue.enqueue("q", b"during".to_vec()).await.unwrap_err();
    assert!(
        matches!(waited, taquba::Error::NotConfirmed { waited_ms: 2_000, cause: None }),
        "{waited}"
    );
    assert!(!waited.is_permanent());

    bucket.release();
    let after = queue.enqueue("q", b"after".to_vec()).await.unwrap();
    let claims = queue.claim_batch("q", 9, Duration::from_secs(60)).await.unwrap();
    let payloads: Vec<_> = claims.iter().map(|claim| claim.payload.as_slice()).collect();
    // It was accepted, so it happened, whole and in order.
    assert_eq!(payloads, [&b"before"[..], b"during", b"after"]);
    assert_eq!((&claims[0].id, &claims[2].id), (&before, &after));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_given_up_and_sent_again() {
    let bucket = Bucket::new();
    let options = OpenOptions::default().store_request_timeout(Duration::from_secs(3));
    let queue = open(&bucket, options).await;
    bucket.hold(WAL_PUT);
    let caller = Arc::clone(&queue);
    let call = tokio::spawn(async move { caller.enqueue("q", Vec::new()).await });
    until("the request is on its way", async || bucket.held_now() > 0).await;
    let sent = bucket.calls();
    pass(Duration::from_secs(4)).await;
    until("it is sent again", async || bucket.calls() > sent).await;
    bucket.release();
    within(Duration::from_secs(9), "the answer", call).await.unwrap().unwrap();
}

/// Tables that do not get through fill the store's memory. New work waits outside before the store takes no more, so
/// what is claimed can still be settled and falls due on time.
#[tokio::test(start_paused = true)]
async fn tables_that_do_not_get_through_hold_up_new_work_and_nothing_else() {
    let bucket = Bucket::new();
    let memtable = 64 * 1_024;
    let options = OpenOptions {
        knobs: taquba::Knobs { memtable_bytes: Some(memtable), ..taquba::Knobs::default() },
        call_timeout: Duration::from_secs(5),
        ..OpenOptions::default()
    };
    let queue = open(&bucket, options).await;
    for _ in 0..40 {
        queue.enqueue("q", b"work".to_vec()).await.unwrap();
    }
    let claims = queue.claim_batch("q", 40, Duration::from_secs(3_600)).await.unwrap();
    assert_eq!(claims.len(), 40);

    bucket.hold(OTHER);
    let mut taken = 0;
    let refused = loop {
        match queue.enqueue("q", vec![0; 1_024]).await {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
        assert!(taken < 4 * memtable / 1_024, "nothing holds new work up");
    };
    assert!(matches!(refused, taquba::Error::NotConfirmed { .. }), "{refused}");
    assert!(taken > memtable / 1_024, "held up after {taken} jobs already");
    for claim in &claims {
        queue.ack(claim).await.unwrap();
    }

    bucket.release();
    queue.enqueue("q", b"after".to_vec()).await.unwrap();
    let stats = queue.view().stats("q").await.unwrap();
    // The refused one was never accepted.
    assert_eq!((stats.pending, stats.done), (taken as i64 + 1, 40));
}

#[tokio::test(start_paused = true)]
async fn an_outage_piles_up_no_beats() {
    let bucket = Bucket::new();
    let every = Duration::from_secs(1);
    let queue = open(&bucket, OpenOptions::default().liveness_heartbeat(every)).await;
    let beats = async || queue.view().writer_heartbeat().await.unwrap().unwrap().counter;
    let before = beats().await;
    bucket.hold(WAL_PUT);
    pass(20 * every).await;
    assert_eq!(beats().await, before + 1, "one is on its way, and no more are made");
    bucket.release();
    pass(5 * every).await;
    assert!(beats().await > before + 4, "it beats again");
}
