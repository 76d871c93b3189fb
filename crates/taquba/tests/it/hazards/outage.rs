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
    assert!(matches!(waited, taquba::Error::NotConfirmed { waited_ms: 2_000 }), "{waited}");
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
