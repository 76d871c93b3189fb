//! Hazard 1: an answer that reports what a crash takes back. The log's PUTs are held, so nothing becomes durable; no
//! call may answer, refusals, no-ops and news for others included.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::{
    CancelOutcome, Clock, EnqueueOptions, MockClock, OpenOptions, Queue, Reads, SettlementEffects,
    SignalDelivery, WaitOutcome, WakeOutcome,
};
use tokio::task::JoinHandle;

use super::{Bucket, WAL_PUT, open, step_back, within};

const LEASE: Duration = Duration::from_secs(60);

/// Calls on their way: what each is, its answer in words, and what the answer must be.
struct Calls {
    queue: Arc<Queue>,
    under_way: Vec<(&'static str, JoinHandle<String>, String)>,
}

impl Calls {
    /// Starts a call, and lets the engine decide it before the next one starts.
    async fn start<T: Debug, F: Future<Output = T> + Send>(
        &mut self,
        what: &'static str,
        answer: &str,
        call: impl FnOnce(Arc<Queue>) -> F + Send + 'static,
    ) {
        let queue = Arc::clone(&self.queue);
        let call = async move { format!("{:?}", call(queue).await) };
        let task = tokio::spawn(call);
        self.under_way.push((what, task, answer.to_owned()));
        step_back().await;
    }
}

fn far() -> EnqueueOptions {
    EnqueueOptions::default().run_at(UNIX_EPOCH + Duration::from_secs(10_000))
}

fn outcome(done: taquba::Result<WaitOutcome>) -> &'static str {
    match done.unwrap() {
        WaitOutcome::Done(_) => "done",
        WaitOutcome::Dead(_) => "dead",
        WaitOutcome::Cancelled => "cancelled",
        WaitOutcome::NotFound => "not found",
    }
}

#[tokio::test]
async fn hazard_01_an_answer_never_reports_undurable_state() {
    let bucket = Bucket::new();
    let clock = MockClock::new(1_000_000);
    let options = OpenOptions::default().clock(Arc::new(clock.clone()) as Arc<dyn Clock>);
    let queue = open(&bucket, options).await;

    // What is durable before.
    let own = |id: &str| EnqueueOptions::default().id_override(id);
    for id in ["ack", "nack", "die", "stop", "leased"] {
        let last = if id == "leased" { 1_u32 } else { 3 };
        let options = own(id).max_attempts(last);
        queue.enqueue_with(id, vec![], options).await.unwrap();
    }
    for id in ["gone", "dead"] {
        queue.enqueue_with(id, vec![], own(id)).await.unwrap();
    }
    for id in ["asleep", "signalled"] {
        let options = EnqueueOptions { id_override: Some(id.to_owned()), ..far() };
        let options = options.signal_key((id == "signalled").then(|| "key".to_owned()));
        queue.enqueue_with(id, vec![], options).await.unwrap();
    }
    let claim = queue.claim_next("dead").await.unwrap().unwrap();
    queue.dead_letter(&claim, "to be brought back").await.unwrap();
    let mut claims = Vec::new();
    for id in ["ack", "nack", "die", "stop"] {
        claims.push(Arc::new(queue.claim(id, LEASE).await.unwrap().unwrap()));
    }
    let short = Duration::from_secs(1);
    let _leased = queue.claim("leased", short).await.unwrap().unwrap();
    let mut deaths = queue.engine_deaths("leased");
    // Claims are durable too, so that what is held from here on is only what follows.
    queue.kv_put(b"there", b"1").await.unwrap();
    let [ack, nack, die, stop] = claims.try_into().unwrap();

    bucket.hold(WAL_PUT);
    let mut calls = Calls { queue: Arc::clone(&queue), under_way: Vec::new() };
    let watch = async |calls: &mut Calls, id: &'static str, answer: &str| {
        calls
            .start("wait_for_completion", answer, move |q| async move {
                outcome(q.wait_for_completion(id).await)
            })
            .await;
    };
    for (id, answer) in [
        ("gone", "\"cancelled\""),
        ("ack", "\"done\""),
        ("die", "\"dead\""),
        ("leased", "\"dead\""),
    ] {
        watch(&mut calls, id, answer).await;
    }

    calls.start("enqueue", "true", |q| async move { q.enqueue("new", vec![]).await.is_ok() }).await;
    let keyed = |id: &str| EnqueueOptions::default().id_override(id).dedup_key("k");
    for what in ["enqueue with a free dedup key", "enqueue with a held dedup key"] {
        let options = keyed(if what.contains("free") { "first" } else { "second" });
        calls
            .start(what, "Ok(\"first\")", |q| async move {
                q.enqueue_with("keyed", vec![], options).await
            })
            .await;
    }
    calls
        .start("enqueue of a taken id", "Err(DuplicateJobId { id: \"first\" })", |q| async move {
            q.enqueue_with("keyed", vec![], EnqueueOptions::default().id_override("first")).await
        })
        .await;
    calls
        .start("enqueue with effects, voided", "true", |q| async move {
            let effects = SettlementEffects::default().kv_put(b"never", b"");
            let options = EnqueueOptions::default().dedup_key("k");
            let done = q.enqueue_with_effects("keyed", vec![], options, effects).await;
            done.unwrap().1.is_empty()
        })
        .await;
    calls.start("kv_put", "Ok(())", |q| async move { q.kv_put(b"row", b"1").await }).await;
    calls
        .start("kv_compare_put, false", "Ok(false)", |q| async move {
            q.kv_compare_put(b"row", None, b"2").await
        })
        .await;
    calls
        .start("kv_compare_put, true", "Ok(true)", |q| async move {
            q.kv_compare_put(b"row", Some(b"1"), b"2").await
        })
        .await;
    calls
        .start("kv_compare_delete, false", "Ok(false)", |q| async move {
            q.kv_compare_delete(b"row", b"1").await
        })
        .await;
    calls
        .start("a decision that only reads", "Ok(Some(b\"2\"))", |q| async move {
            let reads = Reads { kv: vec![b"row".to_vec()], ..Reads::default() };
            q.decide(reads, |facts, _| facts.kv(b"row").cloned()).await
        })
        .await;
    for answer in [CancelOutcome::Removed, CancelOutcome::NotFound] {
        let answer = format!("Ok({answer:?})");
        calls
            .start("cancel of what waits", &answer, |q| async move { q.cancel("gone").await })
            .await;
    }
    watch(&mut calls, "gone", "\"not found\"").await;
    calls
        .start(
            "cancel of what is claimed",
            &format!("Ok({:?})", CancelOutcome::Requested),
            |q| async move { q.cancel("stop").await },
        )
        .await;
    for answer in ["Ok(())", "Err(ClaimLost)"] {
        let ack = Arc::clone(&ack);
        calls.start("ack", answer, |q| async move { q.ack(&ack).await }).await;
    }
    watch(&mut calls, "ack", "\"not found\"").await;
    calls.start("nack", "Ok(())", |q| async move { q.nack(&nack, "no").await }).await;
    calls.start("dead_letter", "Ok(())", |q| async move { q.dead_letter(&die, "no").await }).await;
    calls
        .start("requeue_dead_job", "Ok(())", |q| async move { q.requeue_dead_job("dead").await })
        .await;
    calls
        .start("requeue_dead_job, refused", "true", |q| async move {
            matches!(q.requeue_dead_job("dead").await, Err(taquba::Error::InvalidState { .. }))
        })
        .await;
    for answer in [WakeOutcome::Woken, WakeOutcome::NotScheduled] {
        let answer = format!("Ok({answer:?})");
        calls
            .start(
                "wake_scheduled",
                &answer,
                |q| async move { q.wake_scheduled("asleep", None).await },
            )
            .await;
    }
    for answer in [SignalDelivery::Delivered, SignalDelivery::Buffered] {
        let answer = format!("Ok({answer:?})");
        calls
            .start("send_signal", &answer, |q| async move {
                q.send_signal("signalled", "key", vec![]).await
            })
            .await;
    }
    for answer in ["Ok(true)", "Ok(false)"] {
        calls
            .start(
                "clear_signal",
                answer,
                |q| async move { q.clear_signal("signalled", "key").await },
            )
            .await;
    }
    clock.advance(Duration::from_secs(2));
    calls.start("reap_now", "Ok(())", |q| async move { q.reap_now().await }).await;

    // All of it has been decided: readers of memory see it.
    let now = |id: &'static str| {
        let queue = Arc::clone(&queue);
        async move { queue.view().get_job(id).await.unwrap().map(|job| job.status) }
    };
    assert_eq!(now("ack").await, None);
    assert_eq!(now("leased").await, Some(taquba::JobStatus::Dead));
    assert_eq!(now("asleep").await, Some(taquba::JobStatus::Pending));
    // What is not durable is not ready.
    for name in ["new", "keyed", "asleep", "signalled", "dead"] {
        assert!(queue.claim_next(name).await.unwrap().is_none(), "{name} handed out");
    }

    for _ in 0..10 {
        taquba::time::sleep(Duration::from_millis(5)).await;
        for (what, task, _) in &calls.under_way {
            assert!(!task.is_finished(), "{what} answered before the log was written");
        }
        assert!(deaths.try_recv().is_err(), "a death was told before the log was written");
        assert!(!stop.cancel_token().is_cancelled(), "a cancel request was told too early");
    }
    assert!(bucket.held_now() > 0);

    bucket.release();
    for (what, task, expected) in calls.under_way {
        let answer = within(Duration::from_secs(10), what, task).await.unwrap();
        assert_eq!(answer, expected, "{what}");
    }
    assert_eq!(deaths.recv().await.as_deref(), Some("leased"));
    assert!(stop.cancel_token().is_cancelled());
    for name in ["new", "keyed", "asleep", "signalled", "dead"] {
        assert!(queue.claim_next(name).await.unwrap().is_some(), "{name} not ready");
    }
}
