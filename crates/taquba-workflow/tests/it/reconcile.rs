//! Runs whose step the queue itself gave up: each ends, once, and only if it still stands at that step.

use std::time::Duration;

use taquba::JobStatus;
use taquba_workflow::{
    NoopTerminalHook, RunOptions, RunSpec, RunState, StepErrorKind, TerminalStatus,
};

use crate::world::{
    Log, Process, STEPS, Script, Told, World, eventually, jobs, make_durable, quiet, run_id, spec,
    succeed, within,
};

fn one_attempt(id: &str) -> RunSpec {
    let options = RunOptions { max_attempts_per_step: Some(1), ..Default::default() };
    RunSpec { options, ..spec(id, "") }
}

/// Claims the queue's next job as a worker would that then disappears, and lets its lease run out.
async fn lose_a_worker(world: &World, queue: &taquba::Queue) {
    let lease = Duration::from_secs(30);
    let claim = queue.claim(STEPS, lease).await.unwrap().unwrap();
    world.clock.advance(lease + Duration::from_secs(1));
    let id = claim.id.clone();
    eventually(|| async {
        let job = queue.view().get_job(&id).await.unwrap().unwrap();
        (job.status == JobStatus::Dead).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_step_that_died_before_the_runtime_started_ends_its_run() {
    let world = World::new();
    let queue = world.open().await;
    let told = Told::new();
    let runtime = world.runtime(&queue, Script::unused(), told.clone());
    runtime.submit(one_attempt("r")).await.unwrap();
    lose_a_worker(&world, &queue).await;
    let worker = runtime.spawn(std::future::pending());
    let outcomes = told.outcomes.reach(1).await;
    assert_eq!(outcomes[0].status, TerminalStatus::Failed);
    assert_eq!(outcomes[0].error.as_deref(), Some("lease expired"));
    let status = runtime.status(&run_id("r")).await.unwrap().unwrap();
    let RunState::Terminated(end) = status.state else { panic!("{status:?}") };
    assert_eq!(end.error_kind, Some(StepErrorKind::Transient));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_step_that_dies_while_the_runtime_runs_ends_its_run() {
    let world = World::new();
    let queue = world.open().await;
    let told = Told::new();
    let runtime = world.runtime(&queue, Script::pure(|_| succeed(b"")), told.clone());
    runtime.submit(one_attempt("r")).await.unwrap();
    let claim = queue.claim(STEPS, Duration::from_secs(30)).await.unwrap().unwrap();
    let worker = runtime.spawn(std::future::pending());
    // Another run, so that the first pass over dead jobs is certainly done.
    runtime.submit(spec("other", "")).await.unwrap();
    within(runtime.wait(&run_id("other"))).await.unwrap();
    world.clock.advance(Duration::from_secs(31));
    let outcomes = told.outcomes.reach(2).await;
    assert_eq!(outcomes[1].run_id, "r");
    assert_eq!(outcomes[1].error.as_deref(), Some("lease expired"));
    drop(claim);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn whoever_waits_for_or_cancels_such_a_run_ends_it_without_a_worker() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    runtime.submit(one_attempt("waited")).await.unwrap();
    lose_a_worker(&world, &queue).await;
    let end = within(runtime.wait(&run_id("waited"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Failed);

    runtime.submit(one_attempt("cancelled")).await.unwrap();
    lose_a_worker(&world, &queue).await;
    assert!(!runtime.cancel(&run_id("cancelled")).await.unwrap());
    let status = runtime.status(&run_id("cancelled")).await.unwrap().unwrap();
    let RunState::Terminated(end) = status.state else { panic!("{status:?}") };
    assert_eq!(end.status, TerminalStatus::Failed);
}

#[tokio::test]
async fn a_cancel_that_was_accepted_counts_even_if_the_step_then_dies() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    runtime.submit(one_attempt("r")).await.unwrap();
    let _claim = queue.claim(STEPS, Duration::from_secs(30)).await.unwrap().unwrap();
    assert!(runtime.cancel(&run_id("r")).await.unwrap());
    world.clock.advance(Duration::from_secs(31));
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Cancelled);
}

#[tokio::test]
async fn a_process_that_dies_in_the_last_attempt_fails_the_run_once() {
    let world = World::new();
    let started = Log::new();
    let log = started.clone();
    let stuck = Script::new(move |_| {
        log.push(());
        std::future::pending()
    });
    let (process, queue, runtime) = Process::start(&world, stuck, NoopTerminalHook).await;
    runtime.submit(one_attempt("r")).await.unwrap();
    started.reach(1).await;
    make_durable(&queue).await;
    process.kill().await;

    let told = Told::new();
    let (process, queue, runtime) = Process::start(&world, Script::unused(), told.clone()).await;
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Failed);
    let error = end.termination.error.unwrap();
    assert!(error.contains("interrupted by process exit"), "{error}");
    assert_eq!(told.outcomes.reach(1).await.len(), 1);
    quiet(&queue).await;
    make_durable(&queue).await;
    process.kill().await;

    // The dead job is still there at the next start, and is nobody's any more.
    let (_process, queue, runtime) =
        Process::start(&world, Script::pure(|_| succeed(b"")), told.clone()).await;
    runtime.submit(spec("r", "again")).await.unwrap();
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    told.outcomes.reach(2).await;
    quiet(&queue).await;
    assert_eq!(told.outcomes.all().len(), 2);
    assert_eq!(jobs(&queue, JobStatus::Dead).await.len(), 1);
}

#[tokio::test]
async fn the_dead_job_of_an_earlier_run_does_not_end_a_later_one_of_the_same_id() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    runtime.submit(one_attempt("r")).await.unwrap();
    lose_a_worker(&world, &queue).await;
    within(runtime.wait(&run_id("r"))).await.unwrap();
    runtime.submit(spec("r", "later")).await.unwrap();

    // A runtime that starts now sees the dead job first, and then works on the later run.
    let runtime = world.runtime(&queue, Script::pure(|_| succeed(b"")), NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn many_runs_that_die_at_once_all_end() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    let ids: Vec<_> = (0..300).map(|i| format!("r{i}")).collect();
    let submitted = ids.iter().map(|id| runtime.submit(one_attempt(id)));
    for outcome in futures_util::future::join_all(submitted).await {
        outcome.unwrap();
    }
    let lease = Duration::from_secs(30);
    let mut claims = Vec::new();
    while claims.len() < ids.len() {
        claims.extend(queue.claim_batch(STEPS, 100, lease).await.unwrap());
    }
    world.clock.advance(Duration::from_secs(31));
    let worker = runtime.spawn(std::future::pending());
    let ids: Vec<_> = ids.iter().map(|id| run_id(id)).collect();
    let ends = futures_util::future::join_all(ids.iter().map(|id| runtime.wait(id)));
    for end in within(ends).await {
        assert_eq!(end.unwrap().termination.error.as_deref(), Some("lease expired"));
    }
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_damaged_row_harms_its_own_run_only() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::pure(|_| succeed(b"")), NoopTerminalHook);
    let damaged = runtime.submit(spec("damaged", "")).await.unwrap().job_id;
    queue.kv_put(b"workflow/workflow-steps/runs/damaged", b"\xc1").await.unwrap();
    runtime.submit(spec("healthy", "")).await.unwrap();
    let worker = runtime.spawn(std::future::pending());
    let end = within(runtime.wait(&run_id("healthy"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    quiet(&queue).await;
    let job = queue.view().get_job(&damaged).await.unwrap().unwrap();
    assert_eq!(job.status, JobStatus::Dead);
    assert!(job.last_error.unwrap().contains("decode"));
    for error in [
        runtime.status(&run_id("damaged")).await.unwrap_err(),
        runtime.cancel(&run_id("damaged")).await.unwrap_err(),
        runtime.wait(&run_id("damaged")).await.unwrap_err(),
        runtime.submit(spec("damaged", "")).await.unwrap_err(),
    ] {
        assert!(matches!(error, taquba_workflow::Error::Deserialization(_)), "{error:?}");
    }
    worker.shutdown().await.unwrap();
}
