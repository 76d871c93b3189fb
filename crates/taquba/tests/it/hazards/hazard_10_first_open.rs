//! Hazard 10: a process that dies in the very first open of a store, at each of its requests. What it leaves is a new
//! store or an open one, and the next process works with it.

use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::ObjectStore;
use taquba::{OpenOptions, Queue};

use super::{Bucket, Down, open_plain, within};

const LIMIT: Duration = Duration::from_secs(20);

async fn works(bucket: &Arc<Bucket>, what: &str) {
    let queue = within(LIMIT, what, open_plain(bucket)).await;
    let stats = queue.view().stats("q").await.unwrap();
    assert_eq!((stats.pending, stats.done), (0, 0), "{what}");
    let id = queue.enqueue("q", b"first".to_vec()).await.unwrap();
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    assert_eq!(claim.id, id, "{what}");
    queue.ack(&claim).await.unwrap();
    let kept = queue.enqueue("q", b"second".to_vec()).await.unwrap();
    Arc::into_inner(queue).unwrap().close().await.unwrap();
    let queue = within(LIMIT, what, open_plain(bucket)).await;
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    assert_eq!(claim.id, kept, "{what}");
}

/// Opens a new store on a bucket that goes down at a request; tells whether the bucket came to that request.
async fn open_on_failing(down: Down, at: usize) -> (Arc<Bucket>, bool) {
    let bucket = Bucket::on(Default::default(), Some(down));
    let store = Arc::clone(&bucket) as Arc<dyn ObjectStore>;
    let opened = within(
        LIMIT,
        &format!("the first open with {down:?}"),
        Queue::open_with_options(store, "hazards", OpenOptions::default()),
    )
    .await;
    let reached = bucket.calls() >= at;
    assert!(opened.is_ok() || reached, "an open fails on a good bucket: {opened:?}");
    if down == Down::Before(at) && reached {
        assert!(opened.is_err(), "open answers although request {at} of it failed");
    }
    drop(opened);
    (bucket, reached)
}

#[tokio::test]
async fn hazard_10_the_first_open_killed_at_every_call_leaves_a_usable_store() {
    for down in [Down::Before, Down::After] {
        let mut at = 1;
        loop {
            assert!(at < 100, "an open makes some requests, not a hundred");
            let (bucket, reached) = open_on_failing(down(at), at).await;
            let left = Bucket::on(bucket.fork(), None);
            works(&left, &format!("after a first open with {:?}", down(at))).await;
            if !reached {
                break;
            }
            at += 1;
        }
        assert!(at > 5, "an open makes several requests; only {at} were seen");
    }
}

#[tokio::test]
async fn hazard_10_two_first_opens_killed_in_a_row_leave_a_usable_store() {
    let mut first = 1;
    loop {
        let (bucket, reached) = open_on_failing(Down::After(first), first).await;
        if !reached {
            break;
        }
        let mut second = 1;
        loop {
            let again = Bucket::on(bucket.fork(), Some(Down::After(second)));
            let store = Arc::clone(&again) as Arc<dyn ObjectStore>;
            let what = format!("opens down after {first} and {second}");
            drop(within(LIMIT, &what, Queue::open(store, "hazards")).await);
            works(&Bucket::on(again.fork(), None), &what).await;
            if again.calls() < second {
                break;
            }
            second += 3;
        }
        first += 2;
    }
}
