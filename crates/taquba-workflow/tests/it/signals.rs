//! Signals and waits, in every order they can meet.

use std::time::Duration;

use taquba::{JobStatus, QueueConfig};
use taquba_workflow::{
    NoopTerminalHook, RunState, SignalOutcome, StepError, StepErrorKind, StepOutcome,
    TerminalStatus, WorkflowRuntime,
};

use crate::world::{
    Gate, Log, MINUTE, Process, Script, World, eventually, jobs, make_durable, quiet, run_id,
    scheduled, spec, state, succeed, wait_for, within,
};

/// Step 0 waits for `k`; step 1 succeeds with the signal, or says that none came.
fn one_wait() -> Script {
    Script::pure(|step| match step.step_number {
        0 => wait_for("k"),
        _ => succeed(step.signal.as_deref().unwrap_or(b"none")),
    })
}

async fn result<H>(runtime: &WorkflowRuntime<Script, H>, run: &str) -> String
where
    H: taquba_workflow::TerminalHook,
{
    let end = within(runtime.wait(&run_id(run))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded, "{end:?}");
    String::from_utf8(end.outcome.unwrap().result.unwrap()).unwrap()
}

#[tokio::test]
async fn a_signal_during_the_wait_wakes_the_run() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, one_wait(), NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    let job = scheduled(&queue, "r").await;
    assert_eq!(job.headers["workflow.signal_wait"], "k");
    assert_eq!(job.run_at, Some(1_060_000));
    let stats = queue.view().stats("workflow-steps").await.unwrap();
    assert_eq!((stats.claimed, stats.scheduled), (0, 1));
    assert_eq!(runtime.signal("k", b"hi".to_vec()).await.unwrap(), SignalOutcome::Delivered);
    assert_eq!(result(&runtime, "r").await, "hi");
    assert!(!runtime.clear_signal("k").await.unwrap());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_signal_before_the_wait_is_kept_and_taken_at_once() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, one_wait(), NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    assert_eq!(runtime.signal("k", b"early".to_vec()).await.unwrap(), SignalOutcome::Buffered);
    runtime.submit(spec("r", "")).await.unwrap();
    assert_eq!(result(&runtime, "r").await, "early");
    assert!(!runtime.clear_signal("k").await.unwrap(), "it was taken, not copied");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_second_signal_before_the_wait_replaces_the_first_and_clearing_forgets_it() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, one_wait(), NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.signal("k", b"one".to_vec()).await.unwrap();
    runtime.signal("k", b"two".to_vec()).await.unwrap();
    runtime.submit(spec("a", "")).await.unwrap();
    assert_eq!(result(&runtime, "a").await, "two");

    runtime.signal("k", b"three".to_vec()).await.unwrap();
    assert!(runtime.clear_signal("k").await.unwrap());
    assert!(!runtime.clear_signal("k").await.unwrap());
    runtime.submit(spec("b", "")).await.unwrap();
    scheduled(&queue, "b").await;
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_second_signal_after_the_first_was_delivered_is_kept_for_the_next_wait() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.step_number {
        0 | 1 => {
            let heard = [step.payload.clone(), step.signal.clone().unwrap_or_default()].concat();
            Ok(StepOutcome::continue_on_signal(heard, "k", MINUTE))
        }
        _ => succeed(&[step.payload.clone(), step.signal.clone().unwrap_or_default()].concat()),
    });
    let gate = Gate::closed();
    let at = gate.clone();
    let script = Script::new(move |step| {
        let (gate, script) = (at.clone(), script.clone());
        async move {
            gate.pass().await;
            taquba_workflow::StepRunner::run_step(&script, &step).await
        }
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    gate.let_one_pass();
    scheduled(&queue, "r").await;
    assert_eq!(runtime.signal("k", b"a".to_vec()).await.unwrap(), SignalOutcome::Delivered);
    assert_eq!(runtime.signal("k", b"b".to_vec()).await.unwrap(), SignalOutcome::Buffered);
    gate.let_one_pass();
    gate.let_one_pass();
    assert_eq!(result(&runtime, "r").await, "ab");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_timeout_goes_on_without_a_signal_and_a_later_one_is_kept() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, one_wait(), NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    scheduled(&queue, "r").await;
    world.clock.advance(MINUTE);
    assert_eq!(result(&runtime, "r").await, "none");
    assert_eq!(runtime.signal("k", b"late".to_vec()).await.unwrap(), SignalOutcome::Buffered);
    assert!(runtime.clear_signal("k").await.unwrap());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_wait_without_patience_takes_a_kept_signal_or_goes_on() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.step_number {
        0 => Ok(StepOutcome::continue_on_signal(vec![], "k", Duration::ZERO)),
        _ => succeed(step.signal.as_deref().unwrap_or(b"none")),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.signal("k", b"kept".to_vec()).await.unwrap();
    runtime.submit(spec("a", "")).await.unwrap();
    assert_eq!(result(&runtime, "a").await, "kept");
    runtime.submit(spec("b", "")).await.unwrap();
    scheduled(&queue, "b").await;
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(result(&runtime, "b").await, "none");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_signal_while_a_timed_out_step_backs_off_does_not_reach_it() {
    let world = World::new();
    let backoff = QueueConfig::default().retry_backoff_base(Duration::from_secs(10));
    let queue = world.open_with(backoff).await.unwrap();
    let script = Script::pure(|step| match (step.step_number, step.attempts) {
        (0, _) => wait_for("k"),
        (_, 1) => Err(StepError::transient("again")),
        _ => succeed(step.signal.as_deref().unwrap_or(b"none")),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    scheduled(&queue, "r").await;
    world.clock.advance(MINUTE);
    eventually(|| async {
        jobs(&queue, JobStatus::Scheduled).await.pop().filter(|job| job.attempts == 1)
    })
    .await;
    // Scheduled again, but not waiting: every attempt must see the same.
    assert_eq!(runtime.signal("k", b"late".to_vec()).await.unwrap(), SignalOutcome::Buffered);
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(result(&runtime, "r").await, "none");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_second_waiter_for_a_key_fails_at_once_and_the_first_keeps_its_wait() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.step_number {
        0 => {
            step.effects.put(format!("staged/{}", step.run_id), "yes")?;
            wait_for("k")
        }
        _ => succeed(step.signal.as_deref().unwrap_or(b"none")),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("first", "")).await.unwrap();
    scheduled(&queue, "first").await;
    let job_id = runtime.submit(spec("second", "")).await.unwrap().job_id;
    let end = within(runtime.wait(&run_id("second"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Failed);
    assert_eq!(end.termination.error_kind, Some(StepErrorKind::Permanent));
    let error = end.termination.error.unwrap();
    assert!(error.contains("a waiter is already registered"), "{error}");
    let job = queue.view().get_job(&job_id).await.unwrap().unwrap();
    assert_eq!((job.status, job.attempts), (JobStatus::Dead, 1));
    assert!(queue.view().kv_get(b"staged/first").await.unwrap().is_some());
    assert!(queue.view().kv_get(b"staged/second").await.unwrap().is_none());
    assert_eq!(runtime.signal("k", b"hi".to_vec()).await.unwrap(), SignalOutcome::Delivered);
    assert_eq!(result(&runtime, "first").await, "hi");
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_waits_registered_at_the_same_moment_exactly_one_succeeds() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.step_number {
        0 => wait_for("k"),
        _ => succeed(b"woken"),
    });
    let runtime = world.builder(&queue, script, NoopTerminalHook).max_concurrent_steps(32).build();
    let ids: Vec<_> = (0..32).map(|i| format!("r{i}")).collect();
    for id in &ids {
        runtime.submit(spec(id, "")).await.unwrap();
    }
    let worker = runtime.spawn(std::future::pending());
    eventually(|| async {
        let stats = queue.view().stats("workflow-steps").await.unwrap();
        (stats.scheduled == 1 && stats.dead == 31).then_some(())
    })
    .await;
    assert_eq!(runtime.signal("k", vec![]).await.unwrap(), SignalOutcome::Delivered);
    quiet(&queue).await;
    let mut woken = 0;
    for id in &ids {
        let end = within(runtime.wait(&run_id(id))).await.unwrap();
        woken += u32::from(end.termination.status == TerminalStatus::Succeeded);
    }
    assert_eq!(woken, 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_meets_its_waits_registration_is_delivered_exactly_once() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, one_wait(), NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    let mut seen = [0_u32; 2];
    for round in 0..80_u32 {
        let id = format!("r{round}");
        runtime.submit(spec(&id, "")).await.unwrap();
        for _ in 0..round % 40 {
            tokio::task::yield_now().await;
        }
        let sent = runtime.signal("k", id.clone().into_bytes()).await.unwrap();
        seen[usize::from(sent == SignalOutcome::Delivered)] += 1;
        assert_eq!(result(&runtime, &id).await, id);
        assert!(!runtime.clear_signal("k").await.unwrap(), "round {round}: kept too ({sent:?})");
    }
    assert!(seen[0] > 0, "no signal came before its wait: {seen:?}");
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_meets_the_timeout_is_delivered_or_kept_never_both_never_neither() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, one_wait(), NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    for round in 0..40_u32 {
        let id = format!("r{round}");
        runtime.submit(spec(&id, "")).await.unwrap();
        scheduled(&queue, &id).await;
        world.clock.advance(MINUTE);
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        let sent = runtime.signal("k", b"hi".to_vec()).await.unwrap();
        let heard = result(&runtime, &id).await;
        let kept = runtime.clear_signal("k").await.unwrap();
        match sent {
            SignalOutcome::Delivered => assert_eq!((heard.as_str(), kept), ("hi", false)),
            SignalOutcome::Buffered => assert_eq!((heard.as_str(), kept), ("none", true)),
        }
    }
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_wait_and_its_signal_survive_crashes_on_either_side() {
    let world = World::new();
    let gate = Gate::closed();
    let entered = Log::new();
    let script = |gate: &Gate, entered: &Log<u32>| {
        let (gate, entered) = (gate.clone(), entered.clone());
        Script::new(move |step| {
            let (gate, entered) = (gate.clone(), entered.clone());
            async move {
                entered.push(step.step_number);
                match step.step_number {
                    0 => wait_for("k"),
                    _ => {
                        gate.pass().await;
                        succeed(step.signal.as_deref().unwrap_or(b"none"))
                    }
                }
            }
        })
    };

    // Crash while the run waits.
    let (process, queue, runtime) =
        Process::start(&world, script(&gate, &entered), NoopTerminalHook).await;
    runtime.submit(spec("r", "")).await.unwrap();
    scheduled(&queue, "r").await;
    make_durable(&queue).await;
    process.kill().await;

    // Crash after the signal was delivered, while the woken step runs.
    let (process, _, runtime) =
        Process::start(&world, script(&gate, &entered), NoopTerminalHook).await;
    assert_eq!(runtime.signal("k", b"hi".to_vec()).await.unwrap(), SignalOutcome::Delivered);
    assert_eq!(entered.reach(2).await, [0, 1]);
    process.kill().await;

    // The step runs again with the same signal; a kept signal survives as well.
    let (process, _, runtime) =
        Process::start(&world, script(&gate, &entered), NoopTerminalHook).await;
    assert_eq!(runtime.signal("other", b"kept".to_vec()).await.unwrap(), SignalOutcome::Buffered);
    entered.reach(3).await;
    process.kill().await;

    let (_process, _, runtime) =
        Process::start(&world, script(&gate, &entered), NoopTerminalHook).await;
    gate.let_one_pass();
    assert_eq!(result(&runtime, "r").await, "hi");
    assert!(runtime.clear_signal("other").await.unwrap());
}

#[tokio::test]
async fn a_wait_that_timed_out_while_no_process_lived_goes_on_at_the_next_start() {
    let world = World::new();
    let (process, queue, runtime) = Process::start(&world, one_wait(), NoopTerminalHook).await;
    runtime.submit(spec("r", "")).await.unwrap();
    scheduled(&queue, "r").await;
    make_durable(&queue).await;
    process.kill().await;
    world.clock.advance(MINUTE * 2);
    let (_process, _, runtime) = Process::start(&world, one_wait(), NoopTerminalHook).await;
    assert_eq!(result(&runtime, "r").await, "none");
}

#[tokio::test]
async fn a_signal_for_a_key_that_is_too_long_is_refused_and_such_a_wait_fails_its_run() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|_| wait_for(&"k".repeat(257)));
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let refused = runtime.signal(&"k".repeat(257), vec![]).await.unwrap_err();
    assert!(refused.is_permanent(), "{refused}");
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    state(&runtime, "r", |state| matches!(state, RunState::Terminated(_))).await;
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert!(end.termination.error.unwrap().contains("257 bytes"));
    worker.shutdown().await.unwrap();
}
