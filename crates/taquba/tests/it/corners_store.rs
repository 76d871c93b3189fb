//! The corners that callers rely on, second half: waiters, rows of the caller, opening. The table of all of them is in
//! `corners.rs`.

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::FutureExt;
use taquba::object_store::memory::InMemory;
use taquba::{
    CancelOutcome, Clock, EnqueueOptions, EnqueueRequest, EnqueueResult, Error, JobStatus, KvPage,
    MAX_KV_VALUE_SIZE, MockClock, OpenOptions, Queue, QueueConfig, SettlementEffects, WaitOutcome,
};

use crate::support::{now, within};

const T0: u64 = 1_000_000;
const LEASE: Duration = Duration::from_secs(30);

fn options(clock: &MockClock) -> OpenOptions {
    OpenOptions::default()
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
        .default_queue_config(QueueConfig::default().retry_backoff_base(Duration::ZERO))
}

async fn open() -> (Arc<Queue>, MockClock) {
    let clock = MockClock::new(T0);
    let bytes = Arc::new(InMemory::new());
    let queue = Queue::open_with_options(bytes, "corners", options(&clock)).await.unwrap();
    (Arc::new(queue), clock)
}

fn none() -> EnqueueOptions {
    EnqueueOptions::default()
}

fn is_claimed(id: &str) -> impl AsyncFn(&Queue) -> bool {
    async move |queue| {
        let job = queue.view().get_job(id).await.unwrap();
        job.is_some_and(|job| job.status == JobStatus::Claimed)
    }
}

async fn until(what: &str, queue: &Queue, done: impl AsyncFn(&Queue) -> bool) {
    within(what, async {
        while !done(queue).await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_claim_lasts_its_whole_time_whatever_wakes_it() {
    let (queue, _clock) = open().await;
    let waits = Duration::from_millis(1_000);
    let began = now();
    let waiter = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.claim_with_wait("q", LEASE, waits).await }
    });
    // It is woken for jobs that are not for it: paused before they come, cancelled as they come, in another queue.
    for _ in 0..5 {
        queue.pause("q").await.unwrap();
        let id = queue.enqueue("q", Vec::new()).await.unwrap();
        assert_eq!(queue.cancel(&id).await.unwrap(), CancelOutcome::Removed);
        queue.resume("q").await.unwrap();
        queue.enqueue("other", Vec::new()).await.unwrap();
    }
    assert!(!waiter.is_finished());
    assert!(waiter.await.unwrap().unwrap().is_none());
    assert!(now() - began >= waits, "{:?}", now() - began);
}

#[tokio::test]
async fn one_job_goes_to_one_waiter_and_a_batch_to_many() {
    let (queue, _clock) = open().await;
    let mut waiters: Vec<_> = (0..64)
        .map(|_| {
            let queue = Arc::clone(&queue);
            Box::pin(async move {
                queue.claim_with_wait("q", LEASE, Duration::from_secs(600)).await.unwrap()
            })
        })
        .collect();
    // In line, in order.
    for waiter in &mut waiters {
        assert!(waiter.as_mut().now_or_never().is_none());
    }
    let id = queue.enqueue("q", Vec::new()).await.unwrap();
    until("somebody has the job", &queue, is_claimed(&id)).await;
    let first = within("the first in line", waiters.remove(0)).await.unwrap();
    assert_eq!(first.id, id);
    assert_eq!(waiters.iter_mut().filter_map(|w| w.as_mut().now_or_never()).count(), 0);

    let ids = queue.enqueue_batch("q", vec![Vec::new(); 63]).await.unwrap();
    let got = within("all of them", futures_util::future::join_all(waiters)).await;
    let got: Vec<String> = got.into_iter().map(|claim| claim.unwrap().id.clone()).collect();
    assert_eq!(got, ids, "each one job, in the order of their waiting");
}

#[tokio::test]
async fn a_wait_for_a_job_that_is_over_answers_at_once() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(T0));
    let config = QueueConfig::default().keep_done_jobs(Duration::from_secs(60));
    let options = options(&clock).default_queue_config(config);
    let queue = Queue::open_with_options(bytes, "corners", options).await.unwrap();
    let unknown = within("unknown", queue.wait_for_completion("nobody")).await.unwrap();
    assert!(matches!(unknown, WaitOutcome::NotFound), "{unknown:?}");

    let done = queue.enqueue("q", b"work".to_vec()).await.unwrap();
    let held = queue.claim("q", LEASE).await.unwrap().unwrap();
    let result = SettlementEffects::default().result(b"came to this".to_vec());
    queue.ack_with(&held, result).await.unwrap();
    let WaitOutcome::Done(job) = within("done", queue.wait_for_completion(&done)).await.unwrap()
    else {
        panic!("it is done")
    };
    assert_eq!((job.payload.as_slice(), job.status), (&b"work"[..], JobStatus::Done));
    assert_eq!(job.result.as_deref(), Some(&b"came to this"[..]));

    let dead = queue.enqueue("q", Vec::new()).await.unwrap();
    let held = queue.claim("q", LEASE).await.unwrap().unwrap();
    queue.dead_letter(&held, "no").await.unwrap();
    let WaitOutcome::Dead(job) = within("dead", queue.wait_for_completion(&dead)).await.unwrap()
    else {
        panic!("it is dead")
    };
    assert_eq!(job.last_error.as_deref(), Some("no"));
}

#[tokio::test]
async fn a_wait_for_completion_sleeps_through_all_that_is_no_end() {
    let (queue, clock) = open().await;
    let soon = UNIX_EPOCH + Duration::from_millis(T0 + 10);
    let id = queue.enqueue_with("q", Vec::new(), none().run_at(soon)).await.unwrap();
    let mut waiter = Box::pin(queue.wait_for_completion(&id));
    let mut sleeps = async |after: &str| {
        for _ in 0..100 {
            assert!(waiter.as_mut().now_or_never().is_none(), "woken by {after}");
            tokio::task::yield_now().await;
        }
    };
    sleeps("nothing").await;
    clock.advance(Duration::from_millis(10));
    queue.promote_scheduled_now().await.unwrap();
    sleeps("its promotion").await;
    let held = queue.claim("q", LEASE).await.unwrap().unwrap();
    assert_eq!(queue.cancel(&id).await.unwrap(), CancelOutcome::Requested);
    sleeps("a cancel request").await;
    queue.nack(&held, "no").await.unwrap();
    sleeps("a retry").await;
    queue.claim("q", LEASE).await.unwrap().unwrap();
    clock.advance(LEASE);
    queue.reap_now().await.unwrap();
    sleeps("a lease that ran out").await;
    let held = queue.claim("q", LEASE).await.unwrap().unwrap();
    queue.ack(&held).await.unwrap();
    let end = within("its end", waiter).await.unwrap();
    assert!(matches!(end, WaitOutcome::Done(_)), "{end:?}");
}

fn keys(page: &KvPage) -> Vec<&[u8]> {
    page.entries.iter().map(|(key, _)| key.as_slice()).collect()
}

#[tokio::test]
async fn scans_take_any_bounds_and_show_none_of_our_rows() {
    let (queue, _clock) = open().await;
    // Rows of ours, of every kind that comes easily, under letters that a caller may use too.
    let keep = none().dedup_key("k").header("a", "b");
    queue.enqueue_with("q", vec![1; 1_000], keep).await.unwrap();
    queue.send_signal("q", "s", b"x".to_vec()).await.unwrap();
    for key in ["", "M", "Mformat", "a/1", "a/2", "a/3", "b", "\u{ff}"] {
        queue.kv_put(key.as_bytes(), key.as_bytes()).await.unwrap();
    }
    let view = queue.view();
    assert_eq!(view.kv_get(b"").await.unwrap().as_deref(), Some(&b""[..]), "an empty key");
    let all = view.kv_scan(b"", .., 100).await.unwrap();
    let expected: [&[u8]; 8] =
        [b"", b"M", b"Mformat", b"a/1", b"a/2", b"a/3", b"b", "\u{ff}".as_bytes()];
    assert_eq!(keys(&all), expected, "the caller's rows and no other");
    assert!(all.entries.iter().all(|(key, value)| key.as_slice() == value.as_ref()));

    let outside = view.kv_scan(b"a/", b"A".to_vec()..b"z".to_vec(), 100).await.unwrap();
    assert_eq!(keys(&outside), [b"a/1", b"a/2", b"a/3"], "bounds outside the prefix");
    let from = view.kv_scan(b"a/", b"a/2".to_vec().., 100).await.unwrap();
    assert_eq!(keys(&from), [b"a/2", b"a/3"]);
    let to = view.kv_scan(b"a/", ..=b"a/2".to_vec(), 1).await.unwrap();
    assert_eq!((keys(&to), to.more), (vec![&b"a/1"[..]], true));
    let next = (Bound::Excluded(b"a/1".to_vec()), Bound::Included(b"a/2".to_vec()));
    let next = view.kv_scan(b"a/", next, 1).await.unwrap();
    assert_eq!((keys(&next), next.more), (vec![&b"a/2"[..]], false));

    let reversed = view.kv_scan(b"a/", b"a/3".to_vec()..b"a/1".to_vec(), 100).await.unwrap();
    let same = view.kv_scan(b"a/", b"a/1".to_vec()..b"a/1".to_vec(), 100).await.unwrap();
    let apart = view.kv_scan(b"a/", b"b".to_vec().., 100).await.unwrap();
    let nothing = view.kv_scan(b"", .., 0).await.unwrap();
    for page in [reversed, same, apart, nothing] {
        assert_eq!((keys(&page).len(), page.more), (0, false));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compared_writes_lose_no_update_under_contention() {
    let (queue, _clock) = open().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let queue = Arc::clone(&queue);
        tasks.spawn(async move {
            for _ in 0..25 {
                loop {
                    let seen = queue.view().kv_get(b"count").await.unwrap();
                    let count: u64 = seen
                        .as_ref()
                        .map_or(0, |seen| std::str::from_utf8(seen).unwrap().parse().unwrap());
                    let next = (count + 1).to_string();
                    let seen = seen.as_deref();
                    if queue.kv_compare_put(b"count", seen, next.as_bytes()).await.unwrap() {
                        break;
                    }
                }
            }
        });
    }
    within("all updates", tasks.join_all()).await;
    assert_eq!(queue.view().kv_get(b"count").await.unwrap().as_deref(), Some(&b"200"[..]));
    assert!(!queue.kv_compare_delete(b"count", b"199").await.unwrap());
    assert!(queue.kv_compare_delete(b"count", b"200").await.unwrap());
    assert!(queue.kv_compare_put(b"count", None, b"1").await.unwrap(), "it is absent");
}

#[tokio::test]
async fn an_open_with_a_configuration_of_an_impossible_name_fails_and_changes_nothing() {
    let bytes = Arc::new(InMemory::new());
    let owner = Queue::open(bytes.clone(), "corners").await.unwrap();
    let name = "n".repeat(256);
    let options = OpenOptions::default().queue_config(name, QueueConfig::default());
    let refused = Queue::open_with_options(bytes, "corners", options).await;
    assert!(matches!(refused, Err(Error::InvalidQueueName { .. })), "{refused:?}");
    owner.enqueue("q", Vec::new()).await.expect("it was not fenced");
}

#[tokio::test]
async fn an_enqueue_with_effects_does_all_or_nothing() {
    let (queue, _clock) = open().await;
    let effects = |value: usize| {
        let request =
            EnqueueRequest { queue: "out".into(), payload: b"e".to_vec(), options: none() };
        SettlementEffects::default().enqueue(request).kv_put("k", vec![0; value])
    };
    let enqueue = async |options: EnqueueOptions, effects| {
        queue.enqueue_with_effects("q", Vec::new(), options, effects).await
    };
    let untouched = async |why: &str| {
        assert_eq!(queue.view().kv_get(b"k").await.unwrap(), None, "{why}");
        assert_eq!(queue.view().stats("out").await.unwrap().pending, 0, "{why}");
    };
    queue.enqueue_with("q", Vec::new(), none().id_override("a")).await.unwrap();
    let taken = enqueue(none().id_override("a"), effects(1)).await;
    assert!(matches!(taken, Err(Error::DuplicateJobId { .. })), "{taken:?}");
    untouched("its id is taken").await;

    let held = queue.enqueue_with("q", Vec::new(), none().dedup_key("k")).await.unwrap();
    let hit = enqueue(none().dedup_key("k"), effects(1)).await.unwrap();
    assert_eq!(hit, (EnqueueResult::AlreadyEnqueued(held), Vec::new()));
    untouched("a dedup hit").await;

    let large = enqueue(none().id_override("b"), effects(MAX_KV_VALUE_SIZE + 1)).await;
    assert!(matches!(large, Err(Error::KvValueTooLarge { .. })), "{large:?}");
    untouched("an oversized value").await;
    assert!(queue.view().get_job("b").await.unwrap().is_none());

    let (job, out) = enqueue(none().id_override("b"), effects(MAX_KV_VALUE_SIZE)).await.unwrap();
    assert_eq!((job.id(), out.len()), ("b", 1));
    assert_eq!(queue.view().kv_get(b"k").await.unwrap().unwrap().len(), MAX_KV_VALUE_SIZE);
    assert_eq!(queue.view().stats("out").await.unwrap().pending, 1);
}

#[tokio::test]
async fn a_mock_clock_drives_every_time_and_ids_rise_while_it_stands() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(T0));
    let kept = QueueConfig::default().keep_done_jobs(Duration::from_secs(5));
    let options = options(&clock).default_queue_config(kept);
    let queue = Queue::open_with_options(bytes, "corners", options).await.unwrap();
    let mut ids: Vec<String> = (0..100).map(|_| queue.next_job_id()).collect();
    ids.push(queue.enqueue("q", Vec::new()).await.unwrap());
    clock.advance(Duration::from_millis(1));
    ids.push(queue.next_job_id());
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let times: Vec<u64> =
        ids.iter().map(|id| ulid::Ulid::from_string(id).unwrap().timestamp_ms()).collect();
    assert_eq!((times[0], times[100], times[101]), (T0, T0, T0 + 1));

    let id = ids[100].clone();
    let held = queue.claim("q", Duration::from_millis(10)).await.unwrap().unwrap();
    assert_eq!((held.id.as_str(), held.claimed_at), (id.as_str(), Some(T0 + 1)));
    assert_eq!(queue.lease_expiry("q", &id), Some(T0 + 11));
    clock.advance(Duration::from_millis(10));
    queue.reap_now().await.unwrap();
    assert_eq!(queue.view().stats("q").await.unwrap().pending, 1, "its lease");
    let soon = UNIX_EPOCH + Duration::from_millis(T0 + 111);
    queue.enqueue_with("later", Vec::new(), none().run_at(soon)).await.unwrap();
    clock.advance(Duration::from_millis(99));
    queue.promote_scheduled_now().await.unwrap();
    assert_eq!(queue.view().stats("later").await.unwrap().scheduled, 1);
    clock.advance(Duration::from_millis(1));
    queue.promote_scheduled_now().await.unwrap();
    assert_eq!(queue.view().stats("later").await.unwrap().pending, 1, "its run_at");
    let held = queue.claim("q", LEASE).await.unwrap().unwrap();
    queue.ack(&held).await.unwrap();
    clock.advance(Duration::from_millis(4_999));
    queue.reap_now().await.unwrap();
    assert!(queue.view().get_job(&id).await.unwrap().is_some());
    clock.advance(Duration::from_millis(1));
    queue.reap_now().await.unwrap();
    assert!(queue.view().get_job(&id).await.unwrap().is_none(), "its retention");
}
