//! Hazard 7: a host whose clock is an hour behind opens the store. Ids go on rising and work goes on at once: the store
//! engine waits for its clock to catch up with what it stored, and closes the store when that takes too long.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::{Clock, EnqueueOptions, MockClock, OpenOptions, SystemClock};

use super::{Bucket, open, push_into_tables, within};

const HOUR: Duration = Duration::from_secs(3_600);
/// Of the runtime's paused time, which stands still while anybody works: any stall shows in full.
const AT_ONCE: Duration = Duration::from_millis(50);

/// The wall clock of a host that is an hour behind.
struct Behind;

impl Clock for Behind {
    fn now_ms(&self) -> u64 {
        SystemClock.now_ms() - 3_600_000
    }

    fn monotonic_ms(&self) -> u64 {
        SystemClock.monotonic_ms()
    }
}

fn behind() -> OpenOptions {
    let mut options = OpenOptions::default().clock(Arc::new(Behind) as Arc<dyn Clock>);
    options.knobs.host_behind = HOUR;
    options
}

#[tokio::test(start_paused = true)]
async fn hazard_07_a_clock_an_hour_back_at_reopen_stalls_nothing_and_ids_rise() {
    for (what, clean, in_tables) in [
        ("after a crash, from the log", false, false),
        ("after a close, from the log", true, false),
        ("after a crash, from a table", false, true),
    ] {
        let bucket = Bucket::new();
        let queue = open(&bucket, OpenOptions::default()).await;
        let mut last = queue.enqueue("q", b"before".to_vec()).await.unwrap();
        if in_tables {
            push_into_tables(&bucket, &queue).await;
            last = queue.enqueue("other", vec![]).await.unwrap();
        }
        match clean {
            true => Arc::into_inner(queue).unwrap().close().await.unwrap(),
            false => drop(queue),
        }

        let queue = within(AT_ONCE, what, open(&bucket, behind())).await;
        let work = async {
            for _ in 0..3 {
                let issued = queue.next_job_id();
                assert!(issued > last, "{what}: id {issued} after {last}");
                let id = queue.enqueue("q", b"after".to_vec()).await.unwrap();
                assert!(id > issued, "{what}: id {id} after {issued}");
                last = id;
            }
            // In the order of the enqueues, whatever the clocks said.
            for payload in [&b"before"[..], b"after", b"after", b"after"] {
                let claim = queue.claim_next("q").await.unwrap().unwrap();
                assert_eq!(claim.payload, payload, "{what}");
                queue.ack(&claim).await.unwrap();
            }
        };
        within(AT_ONCE, what, work).await;

        // And a second time, from an owner whose clock was behind already.
        drop(queue);
        let queue = within(AT_ONCE, what, open(&bucket, behind())).await;
        let id = within(AT_ONCE, what, queue.enqueue("q", vec![])).await.unwrap();
        assert!(id > last, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_07_scheduled_jobs_of_a_host_behind_are_not_lost_below_the_mark() {
    let bucket = Bucket::new();
    let at = |clock: &MockClock, ms| {
        let at = UNIX_EPOCH + Duration::from_millis(clock.now_ms() + ms);
        EnqueueOptions::default().run_at(at)
    };
    let on =
        |clock: &MockClock| OpenOptions::default().clock(Arc::new(clock.clone()) as Arc<dyn Clock>);
    // The mark of scheduled jobs follows the clock that is ahead ...
    let ahead = MockClock::new(10_000_000);
    let queue = open(&bucket, on(&ahead)).await;
    let later = at(&ahead, 1_000);
    queue.enqueue_with("q", b"later".to_vec(), later).await.unwrap();
    drop(queue);
    // ... and a job that falls due long before is not lost below it.
    let back = MockClock::new(10_000_000 - 3_600_000);
    let queue = open(&bucket, on(&back)).await;
    let soon = at(&back, 20_000);
    queue.enqueue_with("q", b"soon".to_vec(), soon).await.unwrap();
    drop(queue);
    let queue = open(&bucket, on(&back)).await;
    assert!(queue.claim_next("q").await.unwrap().is_none(), "not due yet");
    for (by, payload) in [(20, &b"soon"[..]), (3_600, b"later")] {
        back.advance(Duration::from_secs(by));
        let lease = Duration::from_secs(30);
        let claim = queue.claim_with_wait("q", lease, Duration::from_secs(1)).await.unwrap();
        assert_eq!(claim.map(|claim| claim.payload.clone()).as_deref(), Some(payload));
    }
}
