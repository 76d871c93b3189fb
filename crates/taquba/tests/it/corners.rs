//! The corners that callers rely on: where each is proved. The tests here are of jobs: how they come in, how a claim ends,
//! cancels, dedup keys; `corners_store.rs` has the others.
//!
//! | what callers rely on | test |
//! |---|---|
//! | a `run_at` that is past or now means pending, without a `run_at` | [`a_run_at_that_is_past_or_now_is_pending_without_one`] |
//! | a signal key needs a `run_at` that is to come | [`a_signal_key_without_a_time_to_come_is_refused`] |
//! | every way out of scheduled ends the wait for the signal | [`every_way_out_of_scheduled_ends_the_wait_for_the_signal`], `races.rs`: `a_signal_that_meets_the_timeout_is_delivered_or_kept` and its two siblings |
//! | a retried waiter keeps its signal and takes no other | [`a_retried_waiter_keeps_its_signal_and_takes_no_other`], `edges.rs`: `a_wake_that_carries_nothing_keeps_what_a_signal_brought` |
//! | a payload of exactly the threshold stays inline, a larger one goes out | `payloads.rs`: `exactly_the_threshold_stays_inline_and_one_byte_more_goes_out_on_every_road` |
//! | a failed upload writes no record; a batch removes what it wrote | `payloads.rs`: `a_failed_upload_writes_no_record_and_a_batch_removes_what_it_wrote` |
//! | a failing deletion never fails an ack | `payloads.rs`: `a_failing_delete_never_fails_an_ack_and_a_sweep_takes_what_it_left` |
//! | a dead letter keeps its object, requeue reuses it, a kept record keeps it | `payloads.rs`: `a_dead_letter_keeps_its_object_a_requeue_reuses_it_and_a_kept_record_keeps_it` |
//! | a settlement on a lease that is over counts until the expiry was seen, and then nothing of it does | [`a_lease_that_is_over_settles_until_its_end_was_seen_and_then_no_more`] |
//! | a claim held across a requeue and another claim is lost for ever | [`a_claim_held_across_a_requeue_and_another_claim_is_lost_for_ever`], `model.rs`: `an_old_claim_settles_nothing_in_a_later_opening` |
//! | nack keeps priority, headers, `enqueued_at` | [`a_failed_attempt_keeps_priority_headers_and_time_of_enqueue`] |
//! | bringing a dead job back keeps `enqueued_at` and history | [`a_job_brought_back_keeps_its_time_of_enqueue_and_its_history`] |
//! | done counts acks with and without a kept record and never falls | [`done_counts_acks_kept_or_not_and_never_falls`], `retention.rs`: `kept_jobs_go_at_their_very_millisecond_and_done_counts_on` |
//! | cancel: asked again it says the same, survives each end of an attempt, and only a requeue clears it | [`a_cancel_request_lasts_until_the_job_is_brought_back`] |
//! | a cancel frees the dedup key | [`a_cancel_frees_the_dedup_key`] |
//! | dedup: the first id while it waits, a new job after its claim, and a retry of the first leaves the second's key alone | [`a_dedup_key_is_the_first_jobs_until_its_claim_and_then_the_seconds`] |
//! | `claim_with_wait` waits for all its time, whatever wakes it | `corners_store.rs`: `a_wait_for_a_claim_lasts_its_whole_time_whatever_wakes_it` |
//! | one job wakes one waiter, a batch as many as it has jobs | `corners_store.rs`: `one_job_goes_to_one_waiter_and_a_batch_to_many` |
//! | who does not take a wake-up passes it on | `hazards`: `hazard_08_a_granted_claim_that_is_dropped_wakes_the_next_waiter` |
//! | `wait_for_completion`: unknown, done and dead at once | `corners_store.rs`: `a_wait_for_a_job_that_is_over_answers_at_once` |
//! | it is not woken by a cancel request, a retry, an expiry or a promotion | `corners_store.rs`: `a_wait_for_completion_sleeps_through_all_that_is_no_end` |
//! | it delivers a payload that was in an object | `payloads.rs`: `a_waiter_gets_the_payload_of_a_job_that_is_gone` |
//! | a removal that races its first look is reported | `races.rs`: `a_wait_that_meets_the_end_of_its_job_hears_of_it` |
//! | KV scans: bounds outside the prefix, reversed and empty ranges, no row of ours, an empty key | `corners_store.rs`: `scans_take_any_bounds_and_show_none_of_our_rows` |
//! | `kv_compare_put` loses no update under contention | `corners_store.rs`: `compared_writes_lose_no_update_under_contention`, `races.rs`: `a_compare_never_overwrites_what_a_decision_wrote_meanwhile` |
//! | a configuration of an impossible queue name fails the open | `corners_store.rs`: `an_open_with_a_configuration_of_an_impossible_name_fails_and_changes_nothing` |
//! | a clean close leaves its note, a crash does not | `support/audit.rs` (asked with the one or the other all over), `hazards`: `hazard_02_…` for what the note is for |
//! | a claimed job that cannot be decoded at open harms nobody: it is put aside with its bytes, the others come back | `quarantine.rs`: `a_bad_record_in_each_state_is_put_aside_and_the_rest_goes_on` |
//! | a claim without attempts left at open is dead, with the reason; so is one whose lease ran out | [`a_last_attempt_that_was_interrupted_or_ran_out_of_lease_is_dead_and_says_why`] |
//! | `enqueue_with_effects`: taken id, dedup hit, oversize: nothing at all | `corners_store.rs`: `an_enqueue_with_effects_does_all_or_nothing` |
//! | of two opens the second never fails, the first hears at its next durable call | `fencing.rs`: `from_the_first_call_that_fails_a_fenced_handle_answers_nothing_else`, `of_racing_opens_one_owner_is_left_and_nothing_confirmed_is_lost` |
//! | the heartbeat's count goes on across openings; a clean close says so | `takeover.rs`: `an_owner_beats_from_its_open_to_its_close_and_the_count_goes_on` |
//! | a mock clock drives leases, `run_at`, retention and the times in ids, and ids rise while it stands | `corners_store.rs`: `a_mock_clock_drives_every_time_and_ids_rise_while_it_stands` |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use taquba::object_store::memory::InMemory;
use taquba::{
    AttemptOutcome, CancelOutcome, Claim, Clock, EnqueueOptions, Error, JobStatus, MockClock,
    NackOutcome, OpenOptions, Queue, QueueConfig, SettlementEffects, SignalDelivery, WakeOutcome,
};

use crate::support::within;

const T0: u64 = 1_000_000;
const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);

fn options(clock: &MockClock) -> OpenOptions {
    OpenOptions::default()
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
        .default_queue_config(QueueConfig::default().retry_backoff_base(Duration::ZERO))
}

async fn open() -> (Queue, MockClock) {
    let clock = MockClock::new(T0);
    let queue =
        Queue::open_with_options(Arc::new(InMemory::new()), "corners", options(&clock)).await;
    (queue.unwrap(), clock)
}

async fn claim(queue: &Queue) -> Claim {
    within("a claim", queue.claim("q", LEASE)).await.unwrap().expect("a job is waiting")
}

fn at(ms: u64) -> EnqueueOptions {
    EnqueueOptions::default().run_at(UNIX_EPOCH + Duration::from_millis(ms))
}

fn none() -> EnqueueOptions {
    EnqueueOptions::default()
}

#[tokio::test]
async fn a_run_at_that_is_past_or_now_is_pending_without_one() {
    let (queue, _clock) = open().await;
    let before_the_epoch = none().run_at(UNIX_EPOCH - HOUR);
    for options in [at(T0), at(T0 - 1), at(0), before_the_epoch] {
        let id = queue.enqueue_with("q", Vec::new(), options).await.unwrap();
        let job = queue.view().get_job(&id).await.unwrap().unwrap();
        assert_eq!((job.status, job.run_at), (JobStatus::Pending, None));
    }
    let id = queue.enqueue_with("q", Vec::new(), at(T0 + 1)).await.unwrap();
    let job = queue.view().get_job(&id).await.unwrap().unwrap();
    assert_eq!((job.status, job.run_at), (JobStatus::Scheduled, Some(T0 + 1)));
}

#[tokio::test]
async fn a_signal_key_without_a_time_to_come_is_refused() {
    let (queue, _clock) = open().await;
    for options in [none(), at(T0), at(T0 - 1)] {
        let refused = queue.enqueue_with("q", Vec::new(), options.signal_key("s")).await;
        let Err(Error::SignalKeyWithoutTimeout { key }) = refused else { panic!("{refused:?}") };
        assert_eq!(key, "s");
    }
    assert_eq!(queue.view().stats("q").await.unwrap().pending, 0);
    let sent = queue.send_signal("q", "s", b"x".to_vec()).await.unwrap();
    assert_eq!(sent, SignalDelivery::Buffered, "nobody waits");
}

#[tokio::test]
async fn every_way_out_of_scheduled_ends_the_wait_for_the_signal() {
    let (queue, clock) = open().await;
    for way in ["due", "woken", "cancelled", "claimed", "expired"] {
        let mut waits = at(clock.now_ms() + 1_000).signal_key(way);
        if way == "expired" {
            waits = waits.expire_at(UNIX_EPOCH + Duration::from_millis(clock.now_ms() + 500));
        }
        let id = queue.enqueue_with("q", Vec::new(), waits).await.unwrap();
        match way {
            "due" => clock.advance(Duration::from_secs(1)),
            "woken" => {
                assert_eq!(queue.wake_scheduled(&id, None).await.unwrap(), WakeOutcome::Woken);
            }
            "cancelled" => {
                assert_eq!(queue.cancel(&id).await.unwrap(), CancelOutcome::Removed);
            }
            "claimed" => drop(queue.claim_by_id(&id, LEASE).await.unwrap()),
            _ => clock.advance(Duration::from_millis(500)),
        }
        queue.promote_scheduled_now().await.unwrap();
        let job = queue.view().get_job(&id).await.unwrap();
        assert_ne!(job.map(|job| job.status), Some(JobStatus::Scheduled), "{way}");
        let sent = queue.send_signal("q", way, b"late".to_vec()).await.unwrap();
        assert_eq!(sent, SignalDelivery::Buffered, "{way}: a late signal wakes nobody");
    }
}

#[tokio::test]
async fn a_retried_waiter_keeps_its_signal_and_takes_no_other() {
    let (queue, _clock) = open().await;
    let waits = at(T0 + 1_000).signal_key("s").max_attempts(3_u32);
    queue.enqueue_with("q", Vec::new(), waits).await.unwrap();
    let sent = queue.send_signal("q", "s", b"first".to_vec()).await.unwrap();
    assert_eq!(sent, SignalDelivery::Delivered);
    for _ in 0..3 {
        let held = claim(&queue).await;
        assert_eq!(held.wake_payload.as_deref(), Some(&b"first"[..]));
        let sent = queue.send_signal("q", "s", b"second".to_vec()).await.unwrap();
        assert_eq!(sent, SignalDelivery::Buffered);
        queue.nack(&held, "not yet").await.unwrap();
    }
}

/// A clock that nothing is told of, so that what it shows is seen only when somebody looks.
#[derive(Default)]
struct Silent(AtomicU64);

impl Clock for Silent {
    fn now_ms(&self) -> u64 {
        T0 + self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_lease_that_is_over_settles_until_its_end_was_seen_and_then_no_more() {
    let clock = Arc::new(Silent::default());
    let options = OpenOptions::default()
        .clock(Arc::clone(&clock) as Arc<dyn Clock>)
        .reaper_interval(HOUR)
        .scheduler_interval(HOUR);
    let queue = Queue::open_with_options(Arc::new(InMemory::new()), "corners", options).await;
    let queue = queue.unwrap();
    for payload in [b"seen late", b"seen soon"] {
        queue.enqueue("q", payload.to_vec()).await.unwrap();
    }
    let first = claim(&queue).await;
    clock.0.fetch_add(60_000, Ordering::SeqCst);
    queue.ack(&first).await.expect("nobody has seen the end of the lease");

    let second = claim(&queue).await;
    clock.0.fetch_add(60_000, Ordering::SeqCst);
    queue.reap_now().await.unwrap();
    let effects = SettlementEffects::default().kv_put("k", "v");
    for lost in [
        queue.ack_with(&second, effects.clone()).await.map(drop),
        queue.nack_with(&second, "no", effects.clone()).await.map(drop),
        queue.dead_letter_with(&second, "no", effects).await.map(drop),
        queue.renew_lease(&second, LEASE).map(drop),
    ] {
        assert!(matches!(lost, Err(Error::ClaimLost)), "{lost:?}");
    }
    assert_eq!(queue.view().kv_get(b"k").await.unwrap(), None);
    assert_eq!(queue.view().stats("q").await.unwrap().pending, 1);
}

#[tokio::test]
async fn a_claim_held_across_a_requeue_and_another_claim_is_lost_for_ever() {
    let (queue, clock) = open().await;
    queue.enqueue("q", Vec::new()).await.unwrap();
    let old = claim(&queue).await;
    clock.advance(LEASE);
    queue.reap_now().await.unwrap();
    let new = claim(&queue).await;
    assert_eq!(old.id, new.id);
    assert!(matches!(queue.ack(&old).await, Err(Error::ClaimLost)));
    assert!(matches!(queue.renew_lease(&old, LEASE), Err(Error::ClaimLost)));
    queue.dead_letter(&new, "no").await.unwrap();
    queue.requeue_dead_job(&old.id).await.unwrap();
    let newest = claim(&queue).await;
    for lost in [&old, &new] {
        assert!(matches!(queue.nack(lost, "late").await, Err(Error::ClaimLost)));
    }
    queue.ack(&newest).await.unwrap();
    assert!(matches!(queue.ack(&newest).await, Err(Error::ClaimLost)), "settled once");
}

#[tokio::test]
async fn a_failed_attempt_keeps_priority_headers_and_time_of_enqueue() {
    let (queue, clock) = open().await;
    let first = none().priority(7_u32).header("tenant", "acme");
    let id = queue.enqueue_with("q", b"work".to_vec(), first).await.unwrap();
    clock.advance(Duration::from_secs(5));
    let held = claim(&queue).await;
    let led = queue.nack_with(&held, "no", SettlementEffects::default()).await.unwrap();
    assert_eq!(led, NackOutcome::Retried);
    let job = queue.view().get_job(&id).await.unwrap().unwrap();
    assert_eq!((job.priority, job.enqueued_at, job.attempts), (7, T0, 1));
    assert_eq!(job.headers.get("tenant").map(String::as_str), Some("acme"));
    assert_eq!(job.payload, b"work");
    assert_eq!((job.claimed_at, job.last_error.as_deref()), (None, Some("no")));
}

#[tokio::test]
async fn a_job_brought_back_keeps_its_time_of_enqueue_and_its_history() {
    let (queue, clock) = open().await;
    let id = queue.enqueue("q", Vec::new()).await.unwrap();
    clock.advance(Duration::from_secs(5));
    queue.dead_letter(&claim(&queue).await, "no").await.unwrap();
    queue.requeue_dead_job(&id).await.unwrap();
    let job = queue.view().get_job(&id).await.unwrap().unwrap();
    assert_eq!((job.status, job.enqueued_at, job.attempts), (JobStatus::Pending, T0, 0));
    assert_eq!((job.failed_at, job.claimed_at, job.last_error), (None, None, None));
    let history = queue.view().attempt_history(&id).await.unwrap();
    let outcomes: Vec<_> = history.iter().map(|entry| entry.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::DeadLettered, AttemptOutcome::Requeued]);
    let twice = queue.requeue_dead_job(&id).await;
    assert!(matches!(twice, Err(Error::InvalidState { state: "pending", .. })), "{twice:?}");
    let unknown = queue.requeue_dead_job("nobody").await;
    assert!(matches!(unknown, Err(Error::JobNotFound(_))), "{unknown:?}");
}

#[tokio::test]
async fn done_counts_acks_kept_or_not_and_never_falls() {
    let clock = MockClock::new(T0);
    let kept = QueueConfig::default().keep_done_jobs(Duration::from_secs(10));
    let options = options(&clock).queue_config("kept", kept);
    let queue = Queue::open_with_options(Arc::new(InMemory::new()), "corners", options).await;
    let queue = queue.unwrap();
    for (name, listed) in [("kept", 2), ("q", 0)] {
        for done in 1..=2 {
            queue.enqueue(name, Vec::new()).await.unwrap();
            let held = queue.claim(name, LEASE).await.unwrap().unwrap();
            queue.ack(&held).await.unwrap();
            assert_eq!(queue.view().stats(name).await.unwrap().done, done, "{name}");
        }
        let page = queue.view().list_jobs(name, JobStatus::Done, None, 10).await.unwrap();
        assert_eq!(page.jobs.len(), listed, "{name}");
    }
    clock.advance(Duration::from_secs(10));
    queue.reap_now().await.unwrap();
    let page = queue.view().list_jobs("kept", JobStatus::Done, None, 10).await.unwrap();
    assert_eq!(page.jobs.len(), 0);
    assert_eq!(queue.view().stats("kept").await.unwrap().done, 2);
}

#[tokio::test]
async fn a_cancel_request_lasts_until_the_job_is_brought_back() {
    let (queue, clock) = open().await;
    let id = queue.enqueue_with("q", Vec::new(), none().max_attempts(3_u32)).await.unwrap();
    let held = claim(&queue).await;
    assert!(!held.cancel_token().is_cancelled());
    for _ in 0..2 {
        assert_eq!(queue.cancel(&id).await.unwrap(), CancelOutcome::Requested);
    }
    assert!(held.cancel_token().is_cancelled());
    assert!(matches!(queue.renew_lease(&held, LEASE), Err(Error::CancelRequested)));
    queue.nack(&held, "no").await.unwrap();

    let held = claim(&queue).await;
    assert!(held.cancel_token().is_cancelled(), "after a failed attempt");
    assert!(held.cancel_requested);
    clock.advance(LEASE);
    queue.reap_now().await.unwrap();

    let held = claim(&queue).await;
    assert!(held.cancel_token().is_cancelled(), "after a lease that ran out");
    queue.dead_letter(&held, "no").await.unwrap();
    assert!(queue.view().get_job(&id).await.unwrap().unwrap().cancel_requested, "dead");
    assert_eq!(queue.cancel(&id).await.unwrap(), CancelOutcome::NotFound);

    queue.requeue_dead_job(&id).await.unwrap();
    assert!(!queue.view().get_job(&id).await.unwrap().unwrap().cancel_requested);
    assert!(!claim(&queue).await.cancel_token().is_cancelled());
}

#[tokio::test]
async fn a_cancel_frees_the_dedup_key() {
    let (queue, _clock) = open().await;
    for options in [none(), at(T0 + 1_000)] {
        let options = options.dedup_key("k");
        let first = queue.enqueue_with("q", Vec::new(), options.clone()).await.unwrap();
        assert_eq!(queue.enqueue_with("q", Vec::new(), options.clone()).await.unwrap(), first);
        assert_eq!(queue.cancel(&first).await.unwrap(), CancelOutcome::Removed);
        let second = queue.enqueue_with("q", Vec::new(), options).await.unwrap();
        assert_ne!(second, first);
        assert_eq!(queue.cancel(&second).await.unwrap(), CancelOutcome::Removed);
    }
}

#[tokio::test]
async fn a_dedup_key_is_the_first_jobs_until_its_claim_and_then_the_seconds() {
    let (queue, clock) = open().await;
    let keyed = |options: EnqueueOptions| options.dedup_key("k");
    let first = queue.enqueue_with("q", Vec::new(), keyed(at(T0 + 10))).await.unwrap();
    let again = queue.enqueue_with("q", Vec::new(), keyed(none())).await.unwrap();
    assert_eq!(again, first, "while it is scheduled");
    clock.advance(Duration::from_millis(10));
    queue.promote_scheduled_now().await.unwrap();
    let again = queue.enqueue_with("q", Vec::new(), keyed(none())).await.unwrap();
    assert_eq!(again, first, "while it is pending");
    let held = claim(&queue).await;
    assert_eq!((held.id.as_str(), held.dedup_key.as_deref()), (first.as_str(), None));

    let second = queue.enqueue_with("q", Vec::new(), keyed(none())).await.unwrap();
    assert_ne!(second, first, "after its claim");
    queue.nack(&held, "no").await.unwrap();
    let third = queue.enqueue_with("q", Vec::new(), keyed(none())).await.unwrap();
    assert_eq!(third, second, "a retry of the first leaves the second's key alone");
    assert_eq!(queue.cancel(&first).await.unwrap(), CancelOutcome::Removed);
    let third = queue.enqueue_with("q", Vec::new(), keyed(none())).await.unwrap();
    assert_eq!(third, second, "and so does its end");
    let other = queue.enqueue_with("other", Vec::new(), keyed(none())).await.unwrap();
    assert_ne!(other, second, "a key is its queue's");
}

#[tokio::test]
async fn a_last_attempt_that_was_interrupted_or_ran_out_of_lease_is_dead_and_says_why() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(T0));
    let one = || none().max_attempts(1_u32);
    let queue = Queue::open_with_options(bytes.clone(), "corners", options(&clock)).await.unwrap();
    let late = queue.enqueue_with("q", Vec::new(), one()).await.unwrap();
    claim(&queue).await;
    clock.advance(LEASE);
    queue.reap_now().await.unwrap();
    let cut = queue.enqueue_with("q", Vec::new(), one()).await.unwrap();
    claim(&queue).await;
    queue.close().await.unwrap();

    let queue = Queue::open_with_options(bytes, "corners", options(&clock)).await.unwrap();
    for (id, why) in [(late, "lease expired"), (cut, "claim interrupted by process exit")] {
        let job = queue.view().get_job(&id).await.unwrap().unwrap();
        assert_eq!((job.status, job.last_error.as_deref()), (JobStatus::Dead, Some(why)));
        assert_eq!((job.claimed_at, job.attempts), (None, 1));
        let history = queue.view().attempt_history(&id).await.unwrap();
        let last = history.last().unwrap();
        assert_eq!(last.outcome, AttemptOutcome::DeadLettered);
        assert_eq!(last.error.as_deref(), Some(why));
        assert_eq!(Some(last.recorded_at), job.failed_at);
    }
}
