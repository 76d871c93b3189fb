//! Steps and their settlements: what every attempt sees, what an error leaves behind, delays and staging.

use std::collections::HashMap;
use std::time::Duration;

use taquba::{EnqueueOptions, JobStatus, QueueConfig};
use taquba_workflow::{
    EffectsHandle, Error, HEADER_RUN_ID, HEADER_STEP, NoopTerminalHook, RunOptions, RunSpec,
    RunState, StepError, StepErrorKind, StepOutcome, TerminalStatus,
};

use crate::world::{
    Log, STEPS, Script, Told, World, eventually, jobs, next, quiet, run_id, scheduled, spec, state,
    succeed, wait_for, within,
};

#[tokio::test]
async fn every_attempt_of_a_step_sees_the_same_memo_and_the_same_signal() {
    let world = World::new();
    let queue = world.open().await;
    let seen = Log::new();
    let log = seen.clone();
    let script = Script::new(move |step| {
        let log = log.clone();
        async move {
            if step.step_number == 0 {
                return wait_for("k");
            }
            let attempt = step.attempts;
            let memo: u32 = step.memo.memoized("once", async { Ok::<_, Error>(attempt) }).await?;
            log.push((attempt, memo, step.signal.clone()));
            match attempt {
                1 => Err(StepError::transient("not yet")),
                2 => panic!("still not"),
                _ => succeed(b""),
            }
        }
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    scheduled(&queue, "r").await;
    runtime.signal("k", b"once".to_vec()).await.unwrap();
    within(runtime.wait(&run_id("r"))).await.unwrap();
    let signal = Some(b"once".to_vec());
    assert_eq!(seen.all(), [(1, 1, signal.clone()), (2, 1, signal.clone()), (3, 1, signal)]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_callers_headers_reach_every_step_and_the_hook_and_ours_do_not() {
    let world = World::new();
    let queue = world.open().await;
    let seen = Log::new();
    let log = seen.clone();
    let script = Script::pure(move |step| {
        log.push(step.headers.clone());
        match step.step_number {
            0 => next(""),
            1 => Ok(StepOutcome::continue_on_signal(vec![], "k", Duration::ZERO)),
            _ => succeed(b""),
        }
    });
    let told = Told::new();
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    let headers = HashMap::from([("tenant".to_owned(), "t1".to_owned())]);
    let options = RunOptions { headers: headers.clone(), ..Default::default() };
    runtime.submit(RunSpec { options, ..spec("r", "") }).await.unwrap();
    eventually(|| async {
        world.clock.advance(Duration::from_millis(1));
        (!told.outcomes.all().is_empty()).then_some(())
    })
    .await;
    assert_eq!(seen.all(), [headers.clone(), headers.clone(), headers.clone()]);
    assert_eq!(told.outcomes.all()[0].headers, headers);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn priority_and_attempts_carry_over_to_later_steps_and_to_the_notification() {
    let world = World::new();
    let queue = world.open().await;
    let seen = Log::new();
    let log = seen.clone();
    let script = Script::pure(move |step| {
        log.push((step.attempts, step.max_attempts, step.is_last_attempt()));
        match step.step_number {
            0 => wait_for("k"),
            _ => succeed(b""),
        }
    });
    let told = Told::answering(|_, _| Err(StepError::transient("no")));
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    let options =
        RunOptions { priority: Some(7), max_attempts_per_step: Some(2), ..Default::default() };
    runtime.submit(RunSpec { options, ..spec("r", "") }).await.unwrap();
    let waiting = scheduled(&queue, "r").await;
    assert_eq!((waiting.priority, waiting.max_attempts), (7, 2));
    runtime.signal("k", vec![]).await.unwrap();
    within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(seen.all(), [(1, 2, false), (1, 2, false)]);
    let dead = eventually(|| async { jobs(&queue, JobStatus::Dead).await.pop() }).await;
    assert_eq!((dead.priority, dead.max_attempts, dead.attempts), (7, 2, 2));
    assert_eq!(told.outcomes.all().len(), 2);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_retried_error_leaves_the_run_where_it_is() {
    let world = World::new();
    let backoff = QueueConfig::default().retry_backoff_base(Duration::from_secs(10));
    let queue = world.open_with(backoff).await.unwrap();
    let script = Script::pure(|step| {
        step.effects.put("staged", step.attempts.to_string())?;
        match step.attempts {
            1 => Err(StepError::transient("first")),
            _ => succeed(b""),
        }
    });
    let told = Told::new();
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    let job_id = runtime.submit(spec("r", "")).await.unwrap().job_id;
    let retried = scheduled(&queue, "r").await;
    assert_eq!(retried.id, job_id);
    assert_eq!(retried.last_error.as_deref(), Some("first"));
    assert_eq!(runtime.status(&run_id("r")).await.unwrap().unwrap().state, RunState::Pending);
    assert_eq!(runtime.outcome(&run_id("r")).await.unwrap(), None);
    assert_eq!(queue.view().kv_get(b"staged").await.unwrap(), None);
    assert!(told.outcomes.all().is_empty());
    world.clock.advance(Duration::from_secs(10));
    within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(queue.view().kv_get(b"staged").await.unwrap().unwrap().as_ref(), b"2");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn verdicts_of_a_step_acknowledge_with_their_effects_and_leave_no_dead_job() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| {
        step.effects.put(format!("staged/{}", step.run_id), "yes")?;
        let reason = "because".to_owned();
        match step.run_id.as_str() {
            "fail" => Ok(StepOutcome::Fail { reason }),
            _ => Ok(StepOutcome::Cancel { reason }),
        }
    });
    let told = Told::new();
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    for (id, status, kind) in [
        ("fail", TerminalStatus::Failed, Some(StepErrorKind::Permanent)),
        ("cancel", TerminalStatus::Cancelled, None),
    ] {
        runtime.submit(spec(id, "")).await.unwrap();
        let end = within(runtime.wait(&run_id(id))).await.unwrap();
        assert_eq!(end.termination.status, status);
        assert_eq!(end.termination.error.as_deref(), Some("because"));
        assert_eq!(end.termination.error_kind, kind);
        assert_eq!(end.termination.terminated_at_ms, 1_000_000);
        assert_eq!(end.outcome.unwrap().result, None);
        assert!(queue.view().kv_get(format!("staged/{id}").as_bytes()).await.unwrap().is_some());
    }
    assert_eq!(told.outcomes.reach(2).await.len(), 2);
    assert!(jobs(&queue, JobStatus::Dead).await.is_empty());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_final_error_dead_letters_the_step_ends_the_run_and_drops_what_was_staged() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| {
        step.effects.put("staged", "yes")?;
        match step.run_id.as_str() {
            "permanent" => Err(StepError::permanent("permanent")),
            "panic" => panic!("panic"),
            _ => Err(StepError::transient("worn-out")),
        }
    });
    let told = Told::new();
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    for (id, error, kind, attempts) in [
        ("permanent", "permanent", StepErrorKind::Permanent, 1),
        ("worn-out", "worn-out", StepErrorKind::Transient, 3),
        ("panic", "step panicked: panic", StepErrorKind::Transient, 3),
    ] {
        let job_id = runtime.submit(spec(id, "")).await.unwrap().job_id;
        let end = within(runtime.wait(&run_id(id))).await.unwrap();
        assert_eq!(end.termination.status, TerminalStatus::Failed);
        assert_eq!(end.termination.error.as_deref(), Some(error));
        assert_eq!(end.termination.error_kind, Some(kind));
        let dead = queue.view().get_job(&job_id).await.unwrap().unwrap();
        assert_eq!((dead.status, dead.attempts), (JobStatus::Dead, attempts));
        assert_eq!(dead.last_error.as_deref(), Some(error));
    }
    assert_eq!(told.outcomes.reach(3).await.len(), 3);
    quiet(&queue).await;
    assert_eq!(told.outcomes.all().len(), 3);
    assert_eq!(queue.view().kv_get(b"staged").await.unwrap(), None);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_panic_in_the_last_attempt_ends_the_run_though_nobody_waits_for_it() {
    let world = World::new();
    let queue = world.open().await;
    let told = Told::new();
    let runtime = world.runtime(&queue, Script::pure(|_| panic!("out of cheese")), told.clone());
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    let outcome = told.outcomes.reach(1).await.remove(0);
    assert_eq!(outcome.status, TerminalStatus::Failed);
    assert_eq!(outcome.error.as_deref(), Some("step panicked: out of cheese"));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_step_that_panics_once_is_tried_again_at_once() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.attempts {
        1 => panic!("out of cheese"),
        _ => succeed(b""),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn staging_through_a_kept_clone_after_the_step_returned_is_refused() {
    let world = World::new();
    let queue = world.open().await;
    let kept: Log<EffectsHandle> = Log::new();
    let log = kept.clone();
    let script = Script::pure(move |step| {
        log.push(step.effects.clone());
        step.effects.put("in time", "yes")?;
        match step.attempts {
            1 => panic!("a panic seals too"),
            _ => succeed(b""),
        }
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    within(runtime.wait(&run_id("r"))).await.unwrap();
    for effects in kept.all() {
        assert!(matches!(effects.put("late", "x"), Err(Error::EffectsSealed)));
        assert!(matches!(effects.delete("late"), Err(Error::EffectsSealed)));
    }
    assert_eq!(kept.all().len(), 2);
    assert!(queue.view().kv_get(b"in time").await.unwrap().is_some());
    assert!(queue.view().kv_get(b"late").await.unwrap().is_none());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_step_reads_what_is_committed_and_not_what_it_staged() {
    let world = World::new();
    let queue = world.open().await;
    let seen = Log::new();
    let log = seen.clone();
    let script = Script::new(move |step| {
        let log = log.clone();
        async move {
            step.effects.put("key", step.step_number.to_string())?;
            log.push(step.kv.get(b"key").await?.map(|value| value.to_vec()));
            if step.step_number == 0 { next("") } else { succeed(b"") }
        }
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(seen.all(), [None, Some(b"0".to_vec())]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_delayed_step_runs_when_its_time_has_come() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.step_number {
        0 => Ok(StepOutcome::continue_after(b"later".to_vec(), Duration::from_micros(9_000_100))),
        _ => succeed(&step.payload),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    let job = scheduled(&queue, "r").await;
    assert_eq!(job.run_at, Some(1_009_001));
    let status = runtime.status(&run_id("r")).await.unwrap().unwrap();
    assert_eq!((status.state, status.current_step), (RunState::Pending, 1));
    world.clock.advance(Duration::from_millis(9_001));
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.outcome.unwrap().result.as_deref(), Some(&b"later"[..]));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_delay_without_end_is_legal_and_can_be_cancelled() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.run_id.as_str() {
        "delayed" => Ok(StepOutcome::continue_after(vec![], Duration::MAX)),
        _ => Ok(StepOutcome::continue_on_signal(vec![], "k", Duration::MAX)),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    for id in ["delayed", "waiting"] {
        runtime.submit(spec(id, "")).await.unwrap();
        scheduled(&queue, id).await;
        world.clock.advance(Duration::from_secs(1_000_000));
        assert!(runtime.cancel(&run_id(id)).await.unwrap());
        let end = within(runtime.wait(&run_id(id))).await.unwrap();
        assert_eq!(end.termination.final_step, 1);
    }
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_job_that_is_no_step_is_dead_lettered_with_the_reason_and_the_rest_goes_on() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::pure(|_| succeed(b"")), NoopTerminalHook);
    let plain = queue.enqueue(STEPS, vec![]).await.unwrap();
    let forged = |step: &str| {
        EnqueueOptions::default().header(HEADER_RUN_ID, "ghost").header(HEADER_STEP, step)
    };
    let malformed = queue.enqueue_with(STEPS, vec![], forged("one")).await.unwrap();
    let unknown = queue.enqueue_with(STEPS, vec![], forged("0")).await.unwrap();
    let end = EnqueueOptions::default().header("workflow.terminal", "failed");
    let garbled = queue.enqueue_with(STEPS, b"?".to_vec(), end).await.unwrap();
    runtime.submit(spec("r", "")).await.unwrap();
    let worker = runtime.spawn(std::future::pending());
    within(runtime.wait(&run_id("r"))).await.unwrap();
    quiet(&queue).await;
    for (id, says) in [
        (plain, "workflow.run_id"),
        (malformed, "\"one\""),
        (unknown, "run ghost has ended or moved on"),
        (garbled, "notification of a run's end"),
    ] {
        let job = queue.view().get_job(&id).await.unwrap().unwrap();
        assert_eq!((job.status, job.attempts), (JobStatus::Dead, 1));
        let error = job.last_error.unwrap();
        assert!(error.contains(says), "{error}");
    }
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_dead_step_that_is_brought_back_does_not_bring_its_run_back() {
    let world = World::new();
    let queue = world.open().await;
    let ran = Log::new();
    let log = ran.clone();
    let script = Script::pure(move |step| {
        log.push(step.payload.clone());
        match step.payload.as_slice() {
            b"bad" => Err(StepError::permanent("bad")),
            _ => wait_for("k"),
        }
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    let dead = runtime.submit(spec("r", "bad")).await.unwrap().job_id;
    within(runtime.wait(&run_id("r"))).await.unwrap();

    // The run has ended.
    queue.requeue_dead_job(&dead).await.unwrap();
    quiet(&queue).await;
    let job = queue.view().get_job(&dead).await.unwrap().unwrap();
    assert!(job.last_error.unwrap().contains("has ended"));
    let outcome = runtime.outcome(&run_id("r")).await.unwrap().unwrap();
    assert_eq!(outcome.error.as_deref(), Some("bad"));

    // It was submitted again meanwhile.
    runtime.submit(spec("r", "good")).await.unwrap();
    scheduled(&queue, "r").await;
    queue.requeue_dead_job(&dead).await.unwrap();
    eventually(|| async {
        let job = queue.view().get_job(&dead).await.unwrap().unwrap();
        (job.status == JobStatus::Dead).then_some(())
    })
    .await;
    state(&runtime, "r", |state| *state == RunState::Pending).await;
    assert_eq!(ran.all(), [b"bad".to_vec(), b"good".to_vec()]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn wait_follows_a_run_from_step_to_step() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.step_number {
        9 => succeed(b"9"),
        _ => next(""),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let unknown = runtime.wait(&run_id("r")).await;
    assert!(matches!(unknown, Err(Error::RunNotFound(id)) if id == "r"));
    runtime.submit(spec("r", "")).await.unwrap();
    let limit = Duration::from_millis(20);
    assert_eq!(runtime.wait_timeout(&run_id("r"), limit).await.unwrap(), None);
    let waiter = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.wait(&run_id("r")).await }
    });
    let worker = runtime.spawn(std::future::pending());
    let end = within(waiter).await.unwrap().unwrap();
    assert_eq!(end.termination.final_step, 9);
    let again = runtime.wait_timeout(&run_id("r"), limit).await.unwrap();
    assert_eq!(again, Some(end));
    worker.shutdown().await.unwrap();
}
