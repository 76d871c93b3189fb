//! Cancelling from outside, in every state a run can be in.

use taquba::JobStatus;
use taquba_workflow::{
    NoopTerminalHook, RunState, SignalOutcome, StepError, StepOutcome, TerminalStatus,
};

use crate::world::{
    Gate, Log, Process, Script, Told, World, jobs, next, quiet, run_id, scheduled, spec, state,
    succeed, wait_for, within,
};

#[tokio::test]
async fn cancelling_a_pending_run_ends_it_in_one_commit_and_the_hook_is_told_once() {
    let world = World::new();
    let queue = world.open().await;
    let told = Told::new();
    let runtime = world.runtime(&queue, Script::unused(), told.clone());
    runtime.submit(spec("r", "")).await.unwrap();
    assert!(runtime.cancel(&run_id("r")).await.unwrap());

    // All of it is there when the call returns: the end, the job gone, the notification.
    let status = runtime.status(&run_id("r")).await.unwrap().unwrap();
    let RunState::Terminated(end) = status.state else { panic!("{status:?}") };
    assert_eq!((end.status, end.error, end.error_kind), (TerminalStatus::Cancelled, None, None));
    let pending = jobs(&queue, JobStatus::Pending).await;
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].headers["workflow.terminal"], "cancelled");
    assert!(!runtime.cancel(&run_id("r")).await.unwrap());
    assert!(!runtime.cancel(&run_id("unknown")).await.unwrap());

    let worker = runtime.spawn(std::future::pending());
    let outcomes = told.outcomes.reach(1).await;
    assert_eq!((outcomes[0].status, &outcomes[0].error), (TerminalStatus::Cancelled, &None));
    quiet(&queue).await;
    assert_eq!(told.outcomes.all().len(), 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_waiter_leaves_no_wait_behind_and_the_next_signal_is_buffered() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.step_number {
        0 => wait_for("k"),
        _ => succeed(step.signal.as_deref().unwrap()),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("cancelled", "")).await.unwrap();
    scheduled(&queue, "cancelled").await;
    assert!(runtime.cancel(&run_id("cancelled")).await.unwrap());
    assert_eq!(queue.view().stats("workflow-steps").await.unwrap().scheduled, 0);
    let sent = runtime.signal("k", b"late".to_vec()).await.unwrap();
    assert_eq!(sent, SignalOutcome::Buffered);
    // The key is free for the next run, which takes what is kept.
    runtime.submit(spec("next", "")).await.unwrap();
    let end = within(runtime.wait(&run_id("next"))).await.unwrap();
    assert_eq!(end.outcome.unwrap().result.as_deref(), Some(&b"late"[..]));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancel_wins_over_whatever_the_running_step_returns() {
    let world = World::new();
    for answer in ["next", "succeed", "fail", "wait", "transient", "permanent", "panic"] {
        let queue = world.open().await;
        let gate = Gate::closed();
        let at = gate.clone();
        let script = Script::new(move |step| {
            let gate = at.clone();
            async move {
                step.effects.put("staged", "yes")?;
                gate.pass().await;
                assert!(step.cancel_token.is_cancelled());
                match answer {
                    "next" => next(""),
                    "succeed" => succeed(b"done"),
                    "fail" => Ok(StepOutcome::Fail { reason: "bad".into() }),
                    "wait" => wait_for("k"),
                    "transient" => Err(StepError::transient("again")),
                    "permanent" => Err(StepError::permanent("never")),
                    _ => panic!("oh no"),
                }
            }
        });
        let told = Told::new();
        let runtime = world.runtime(&queue, script, told.clone());
        let worker = runtime.spawn(std::future::pending());
        runtime.submit(spec(answer, "")).await.unwrap();
        state(&runtime, answer, |state| *state == RunState::Running).await;
        assert!(runtime.cancel(&run_id(answer)).await.unwrap());
        let status = runtime.status(&run_id(answer)).await.unwrap().unwrap();
        assert_eq!(status.state, RunState::Cancelling);
        assert!(runtime.cancel(&run_id(answer)).await.unwrap());
        gate.let_one_pass();
        let end = within(runtime.wait(&run_id(answer))).await.unwrap();
        assert_eq!(end.termination.status, TerminalStatus::Cancelled, "{answer}");
        assert_eq!((end.termination.error, end.termination.error_kind), (None, None));
        assert_eq!(end.outcome.unwrap().result, None);
        assert_eq!(told.outcomes.reach(1).await[0].status, TerminalStatus::Cancelled);
        assert_eq!(queue.view().kv_get(b"staged").await.unwrap(), None, "{answer}");
        assert!(jobs(&queue, JobStatus::Dead).await.is_empty(), "{answer}");
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_steps_own_cancel_keeps_its_reason_and_effects_beside_one_from_outside() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::new(|step| async move {
        step.effects.put("cleanup", "done")?;
        step.cancel_token.cancelled().await;
        Ok(StepOutcome::Cancel { reason: "asked to stop".into() })
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    state(&runtime, "r", |state| *state == RunState::Running).await;
    assert!(runtime.cancel(&run_id("r")).await.unwrap());
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Cancelled);
    assert_eq!(end.termination.error.as_deref(), Some("asked to stop"));
    assert!(queue.view().kv_get(b"cleanup").await.unwrap().is_some());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_token_that_the_runner_itself_cancels_cancels_nothing() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| {
        step.cancel_token.cancel();
        succeed(b"")
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_meets_a_settlement_is_never_lost_and_never_reaches_a_later_run() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.step_number {
        5 => succeed(b""),
        _ => next(""),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    let mut cancelled = 0;
    for round in 0..60_u32 {
        let id = run_id("r");
        runtime.submit(spec("r", &round.to_string())).await.unwrap();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        let was_active = runtime.cancel(&id).await.unwrap();
        let end = within(runtime.wait(&id)).await.unwrap();
        let want = if was_active { TerminalStatus::Cancelled } else { TerminalStatus::Succeeded };
        assert_eq!(end.termination.status, want, "round {round}");
        cancelled += u32::from(was_active);
    }
    assert!(cancelled > 0, "no cancel came in time");
    runtime.submit(spec("r", "left alone")).await.unwrap();
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancel_requested_before_a_crash_ends_the_run_without_running_its_step_again() {
    let world = World::new();
    let started = Log::new();
    let log = started.clone();
    let stuck = Script::new(move |step| {
        log.push(step.attempts);
        std::future::pending()
    });
    let (process, _, runtime) = Process::start(&world, stuck, NoopTerminalHook).await;
    runtime.submit(spec("r", "")).await.unwrap();
    started.reach(1).await;
    assert!(runtime.cancel(&run_id("r")).await.unwrap());
    process.kill().await;

    let told = Told::new();
    let ran = Log::new();
    let log = ran.clone();
    let script = Script::pure(move |step| {
        log.push(step.attempts);
        succeed(b"")
    });
    let (_process, _, runtime) = Process::start(&world, script, told.clone()).await;
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Cancelled);
    assert!(ran.all().is_empty());
    assert_eq!(told.outcomes.reach(1).await[0].status, TerminalStatus::Cancelled);
}

#[tokio::test]
async fn a_run_whose_job_was_removed_by_hand_can_be_cancelled() {
    let world = World::new();
    let queue = world.open().await;
    let told = Told::new();
    let runtime = world.runtime(&queue, Script::unused(), told.clone());
    let job_id = runtime.submit(spec("r", "")).await.unwrap().job_id;
    queue.cancel(&job_id).await.unwrap();
    assert!(runtime.cancel(&run_id("r")).await.unwrap());
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Cancelled);
    let worker = runtime.spawn(std::future::pending());
    told.outcomes.reach(1).await;
    worker.shutdown().await.unwrap();
}
