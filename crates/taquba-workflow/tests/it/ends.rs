//! How runs end: results, records, and the hook that is told.

use std::sync::Arc;

use taquba::object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
use taquba::{EnqueueRequest, JobStatus};
use taquba_workflow::{
    Error, MemoStore, NoopTerminalHook, RunOutcome, RunState, StepError, StepOutcome,
    TerminalEffects, TerminalHook, TerminalStatus, WorkflowRuntime, WorkflowView,
};

use crate::world::{
    Gate, STEPS, Script, Told, World, eventually, jobs, quiet, run_id, spec, state, succeed, within,
};

const LARGE: usize = 200 * 1_024;

async fn objects(store: &Arc<dyn ObjectStore>, prefix: &str) -> Vec<Path> {
    use futures_util::TryStreamExt;
    let listed = store.list(Some(&Path::from(prefix))).map_ok(|meta| meta.location);
    listed.try_collect().await.unwrap()
}

#[tokio::test]
async fn a_small_result_rides_in_the_commit_and_a_large_one_in_an_object() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.run_id.as_str() {
        "large" => succeed(&vec![7; LARGE]),
        _ => succeed(&[7; 10]),
    });
    let told = Told::new();
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    for (id, size, in_objects) in [("small", 10, 0), ("large", LARGE, 1)] {
        runtime.submit(spec(id, "")).await.unwrap();
        let end = within(runtime.wait(&run_id(id))).await.unwrap();
        let outcome = end.outcome.unwrap();
        assert_eq!(outcome.result, Some(vec![7; size]));
        assert_eq!(runtime.outcome(&run_id(id)).await.unwrap(), Some(outcome.clone()));
        let kept = objects(&world.bucket, "workflow-steps-memo/results").await;
        assert_eq!(kept.len(), in_objects);
        let told = told.outcomes.reach(in_objects + 1).await;
        assert_eq!(told[in_objects], outcome);
    }
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_result_whose_settlement_did_not_commit_is_not_reported() {
    let world = World::new();
    let queue = world.open().await;
    let gate = Gate::closed();
    let at = gate.clone();
    let script = Script::new(move |_| {
        let gate = at.clone();
        async move {
            gate.pass().await;
            succeed(&vec![1; LARGE])
        }
    });
    let told = Told::new();
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    state(&runtime, "r", |state| *state == RunState::Running).await;
    runtime.cancel(&run_id("r")).await.unwrap();
    gate.let_one_pass();
    // The object was written; the commit that would have named it became another.
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(objects(&world.bucket, "workflow-steps-memo/results").await.len(), 1);
    assert_eq!(end.termination.status, TerminalStatus::Cancelled);
    assert_eq!(end.outcome.unwrap().result, None);
    assert_eq!(told.outcomes.reach(1).await[0].result, None);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_result_object_that_is_gone_is_not_taken_for_an_empty_result() {
    let world = World::new();
    let queue = world.open().await;
    let told = Told::new();
    let script = Script::pure(|_| succeed(&vec![1; LARGE]));
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    within(runtime.wait(&run_id("r"))).await.unwrap();
    told.outcomes.reach(1).await;
    for path in objects(&world.bucket, "workflow-steps-memo/results").await {
        world.bucket.delete(&path).await.unwrap();
    }
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    assert_eq!(end.outcome, None);
    assert_eq!(runtime.outcome(&run_id("r")).await.unwrap(), None);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_hook_is_told_again_after_an_error_and_its_effects_apply_once() {
    let world = World::new();
    let queue = world.open().await;
    let told = Told::answering(|call, effects| {
        effects.put(format!("call/{call}"), "x")?;
        effects.enqueue(EnqueueRequest { queue: "mail".into(), ..Default::default() })?;
        match call {
            0 => Err(StepError::transient("mail is down")),
            1 => panic!("mail is on fire"),
            _ => Ok(()),
        }
    });
    let runtime = world.runtime(&queue, Script::pure(|_| succeed(b"x")), told.clone());
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    let outcomes = told.outcomes.reach(3).await;
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]));
    quiet(&queue).await;
    assert_eq!(queue.view().stats("mail").await.unwrap().pending, 1);
    for (call, applied) in [(0, false), (1, false), (2, true)] {
        let row = queue.view().kv_get(format!("call/{call}").as_bytes()).await.unwrap();
        assert_eq!(row.is_some(), applied, "call {call}");
    }
    assert!(jobs(&queue, JobStatus::Dead).await.is_empty());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_hook_that_gives_up_leaves_a_dead_notification_and_the_run_stays_ended() {
    let world = World::new();
    let queue = world.open().await;
    let told = Told::answering(|_, effects| {
        effects.put("staged", "x")?;
        Err(StepError::permanent("no such address"))
    });
    let runtime = world.runtime(&queue, Script::pure(|_| succeed(b"x")), told.clone());
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    let dead = eventually(|| async { jobs(&queue, JobStatus::Dead).await.pop() }).await;
    assert_eq!(dead.last_error.as_deref(), Some("no such address"));
    assert_eq!(dead.headers["workflow.run_id"], "r");
    assert_eq!(dead.attempts, 1);
    assert_eq!(queue.view().kv_get(b"staged").await.unwrap(), None);
    let outcome = runtime.outcome(&run_id("r")).await.unwrap().unwrap();
    assert_eq!(outcome.status, TerminalStatus::Succeeded);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn without_a_hook_that_observes_there_is_no_notification() {
    let world = World::new();
    let queue = world.open().await;
    let gate = Gate::closed();
    let at = gate.clone();
    let script = Script::new(move |step| {
        let gate = at.clone();
        async move {
            gate.pass().await;
            match step.run_id.as_str() {
                "succeeds" => succeed(b""),
                "fails" => Err(StepError::permanent("")),
                _ => Ok(StepOutcome::Fail { reason: String::new() }),
            }
        }
    });
    let runtime = world.builder(&queue, script, NoopTerminalHook).max_concurrent_steps(1).build();
    for id in ["succeeds", "fails", "cancelled"] {
        runtime.submit(spec(id, "")).await.unwrap();
    }
    runtime.cancel(&run_id("cancelled")).await.unwrap();
    let worker = runtime.spawn(std::future::pending());
    for id in ["succeeds", "fails"] {
        gate.let_one_pass();
        within(runtime.wait(&run_id(id))).await.unwrap();
    }
    worker.shutdown().await.unwrap();
    let stats = queue.view().stats(STEPS).await.unwrap();
    assert_eq!((stats.pending, stats.scheduled, stats.dead), (0, 0, 1));
    assert_eq!(stats.done, 1, "one step acknowledged, and nothing else");
}

/// A hook that wants to know of failures only.
#[derive(Clone)]
struct OnlyFailures(Told);

impl TerminalHook for OnlyFailures {
    async fn on_termination(
        &self,
        outcome: &RunOutcome,
        effects: &TerminalEffects,
    ) -> Result<(), StepError> {
        self.0.on_termination(outcome, effects).await
    }

    fn observes(&self, outcome: &RunOutcome) -> bool {
        assert_ne!(outcome.run_id, "panics", "asked about the wrong run");
        outcome.status == TerminalStatus::Failed
    }
}

#[tokio::test]
async fn a_hook_chooses_what_it_is_told_and_a_panic_of_it_does_not_stop_the_end() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.run_id.as_str() {
        "fails" => Ok(StepOutcome::Fail { reason: "x".into() }),
        _ => succeed(b""),
    });
    let told = Told::new();
    let runtime = world.runtime(&queue, script, OnlyFailures(told.clone()));
    let worker = runtime.spawn(std::future::pending());
    for id in ["succeeds", "panics", "fails"] {
        runtime.submit(spec(id, "")).await.unwrap();
        within(runtime.wait(&run_id(id))).await.unwrap();
    }
    quiet(&queue).await;
    // An end that it panicked about is one that it is told.
    let mut told: Vec<_> =
        told.outcomes.all().iter().map(|outcome| outcome.run_id.to_string()).collect();
    told.sort_unstable();
    assert_eq!(told, ["fails", "panics"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_view_reads_runs_without_a_runtime() {
    let world = World::new();
    let queue = world.open().await;
    let memos: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let runtime = WorkflowRuntime::builder(
        Arc::clone(&queue),
        Arc::clone(&memos),
        Script::pure(|_| succeed(&vec![1; LARGE])),
        NoopTerminalHook,
    )
    .queue_name("mine")
    .memo_prefix("here/memos")
    .build();
    let memos = MemoStore::new(memos, "here/memos");
    let view = WorkflowView::new(queue.view().clone(), memos.clone()).queue_name("mine");
    assert_eq!(view.status(&run_id("r")).await.unwrap(), None);
    runtime.submit(spec("r", "")).await.unwrap();
    let status = view.status(&run_id("r")).await.unwrap().unwrap();
    assert_eq!((status.state, status.current_step), (RunState::Pending, 0));
    let worker = runtime.spawn(std::future::pending());
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(view.outcome(&run_id("r")).await.unwrap(), end.outcome);
    let status = view.status(&run_id("r")).await.unwrap().unwrap();
    assert_eq!(status.state, RunState::Terminated(end.termination));
    let elsewhere = WorkflowView::new(queue.view().clone(), memos);
    assert_eq!(elsewhere.status(&run_id("r")).await.unwrap(), None);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn waits_and_runtimes_end_with_an_error_when_the_store_is_taken_over() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::new(|_| std::future::pending());
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    state(&runtime, "r", |state| *state == RunState::Running).await;
    let waiter = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.wait(&run_id("r")).await }
    });
    tokio::task::yield_now().await;

    let _thief = world.open().await;
    let ended = within(worker.wait()).await.unwrap_err();
    assert!(matches!(ended, Error::Queue(taquba::Error::Closed(_))), "{ended:?}");
    let waited = within(waiter).await.unwrap().unwrap_err();
    assert!(matches!(waited, Error::Queue(taquba::Error::Closed(_))), "{waited:?}");
    let late = runtime.submit(spec("late", "")).await.unwrap_err();
    assert!(matches!(late, Error::Queue(taquba::Error::Closed(_))), "{late:?}");
}

#[tokio::test]
async fn shutdown_lets_running_steps_finish() {
    let world = World::new();
    let queue = world.open().await;
    let gate = Gate::closed();
    let at = gate.clone();
    let script = Script::new(move |_| {
        let gate = at.clone();
        async move {
            gate.pass().await;
            succeed(b"")
        }
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "")).await.unwrap();
    state(&runtime, "r", |state| *state == RunState::Running).await;
    let stopped = tokio::spawn(worker.shutdown());
    tokio::task::yield_now().await;
    gate.let_one_pass();
    within(stopped).await.unwrap().unwrap();
    let status = runtime.status(&run_id("r")).await.unwrap().unwrap();
    assert!(matches!(status.state, RunState::Terminated(_)), "{status:?}");
}
