//! Submitting: duplicates, mismatches, effects, ids and queues.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, UNIX_EPOCH};

use taquba::{EnqueueRequest, JobStatus, SettlementEffects};
use taquba_workflow::{Error, NoopTerminalHook, RunOptions, RunSpec, RunState, TerminalStatus};

use crate::world::{
    Gate, Log, Process, STEPS, Script, World, jobs, next, quiet, run_id, scheduled, spec, succeed,
    wait_for, within,
};

#[tokio::test]
async fn resubmitting_the_same_input_answers_the_current_steps_job_also_after_a_restart() {
    let world = World::new();
    let script = Script::pure(|step| match step.step_number {
        0 => wait_for("k"),
        _ => succeed(b""),
    });
    let (process, queue, runtime) = Process::start(&world, script.clone(), NoopTerminalHook).await;
    let first = runtime.submit(spec("r", "in")).await.unwrap();
    assert_eq!((first.newly_submitted, first.run_id.as_str()), (true, "r"));
    let current = scheduled(&queue, "r").await.id;
    assert_ne!(current, first.job_id);
    let again = runtime.submit(spec("r", "in")).await.unwrap();
    assert_eq!((again.newly_submitted, &again.job_id), (false, &current));
    process.kill().await;

    let (_process, _, runtime) = Process::start(&world, script, NoopTerminalHook).await;
    let after = runtime.submit(spec("r", "in")).await.unwrap();
    assert_eq!((after.newly_submitted, after.job_id), (false, current));
}

#[tokio::test]
async fn another_input_under_an_active_id_is_refused_and_changes_nothing() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    let first = runtime.submit(spec("r", "one")).await.unwrap();
    let other =
        RunSpec { effects: SettlementEffects::default().kv_put("effect", "x"), ..spec("r", "two") };
    let refused = runtime.submit(other).await.unwrap_err();
    assert!(matches!(&refused, Error::InputMismatch(id) if *id == "r"), "{refused:?}");
    assert!(refused.is_permanent());
    assert_eq!(queue.view().kv_get(b"effect").await.unwrap(), None);
    let pending = jobs(&queue, JobStatus::Pending).await;
    assert_eq!(pending.len(), 1);
    assert_eq!((&pending[0].id, pending[0].payload.as_slice()), (&first.job_id, &b"one"[..]));
}

#[tokio::test]
async fn effects_commit_with_a_new_run_and_are_dropped_with_a_duplicate() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    let with_effect = |value: &str| RunSpec {
        effects: SettlementEffects::default()
            .kv_put("effect", value)
            .enqueue(EnqueueRequest { queue: "mail".into(), ..Default::default() }),
        ..spec("r", "in")
    };
    runtime.submit(with_effect("first")).await.unwrap();
    runtime.submit(with_effect("second")).await.unwrap();
    let kept = queue.view().kv_get(b"effect").await.unwrap().unwrap();
    assert_eq!(kept.as_ref(), b"first");
    assert_eq!(queue.view().stats("mail").await.unwrap().pending, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_submissions_start_exactly_one_run() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    let submissions = (0..64).map(|_| {
        let runtime = runtime.clone();
        tokio::spawn(async move { runtime.submit(spec("r", "in")).await.unwrap() })
    });
    let outcomes = futures_util::future::join_all(submissions).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes.iter().filter(|o| o.newly_submitted).count(), 1);
    assert_eq!(outcomes.iter().map(|o| &o.job_id).collect::<HashSet<_>>().len(), 1);
    assert_eq!(queue.view().stats(STEPS).await.unwrap().pending, 1);
}

#[tokio::test]
async fn an_ended_run_frees_its_id_and_the_next_one_forgets_its_outcome() {
    let world = World::new();
    let queue = world.open().await;
    let gate = Gate::closed();
    let at = gate.clone();
    let script = Script::new(move |step| {
        let gate = at.clone();
        async move {
            gate.pass().await;
            succeed(&step.payload)
        }
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    gate.let_one_pass();
    runtime.submit(spec("r", "first")).await.unwrap();
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.outcome.unwrap().result.as_deref(), Some(&b"first"[..]));

    let second = runtime.submit(spec("r", "second")).await.unwrap();
    assert!(second.newly_submitted);
    assert_eq!(runtime.outcome(&run_id("r")).await.unwrap(), None);
    gate.let_one_pass();
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.outcome.unwrap().result.as_deref(), Some(&b"second"[..]));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn generated_ids_are_new_and_sort_by_submission() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(runtime.submit(RunSpec::default()).await.unwrap().run_id);
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[tokio::test]
async fn a_run_starts_no_earlier_than_its_time() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::pure(|_| succeed(b"")), NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    let at = UNIX_EPOCH + Duration::from_millis(1_000_000) + Duration::from_secs(5);
    let options = RunOptions { run_at: Some(at), ..Default::default() };
    runtime.submit(RunSpec { options, ..spec("r", "") }).await.unwrap();
    let job = scheduled(&queue, "r").await;
    assert_eq!(job.run_at, Some(1_005_000));
    world.clock.advance(Duration::from_secs(5));
    within(runtime.wait(&run_id("r"))).await.unwrap();
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_belongs_to_the_runtime_is_refused_in_a_submission() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    let submit = async |headers: &[&str], effects| {
        let headers = headers.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        let options = RunOptions { headers, ..Default::default() };
        runtime.submit(RunSpec { options, effects, ..spec("r", "") }).await.unwrap_err()
    };
    let none = SettlementEffects::default;
    let to = |queue: &str, header: &str| {
        let mut request = EnqueueRequest { queue: queue.into(), ..Default::default() };
        request.options.headers = HashMap::from([(header.to_owned(), String::new())]);
        none().enqueue(request)
    };
    let error = submit(&["fine", "workflow.step"], none()).await;
    assert!(matches!(error, Error::ReservedHeaderInSubmit(h) if h == "workflow.step"));
    let error = submit(&[], none().kv_put("workflow/x", "")).await;
    assert!(matches!(error, Error::ReservedKvKey(k) if k == "workflow/x"));
    let error = submit(&[], none().kv_delete("workflow/x")).await;
    assert!(matches!(error, Error::ReservedKvKey(_)));
    let error = submit(&[], to(STEPS, "fine")).await;
    assert!(matches!(error, Error::ReservedQueue(q) if q == STEPS));
    let error = submit(&[], to("mail", "workflow.run_id")).await;
    assert!(matches!(error, Error::ReservedHeaderInSubmit(_)));
    assert_eq!(runtime.status(&run_id("r")).await.unwrap(), None);
    quiet(&queue).await;
}

#[tokio::test]
async fn two_runtimes_of_one_queue_share_their_runs() {
    let world = World::new();
    let queue = world.open().await;
    let ran = Log::new();
    let runtimes = [0, 1].map(|which| {
        let ran = ran.clone();
        let script = Script::pure(move |_| {
            ran.push(which);
            succeed(b"")
        });
        world.runtime(&queue, script, NoopTerminalHook)
    });
    assert!(runtimes[0].submit(spec("r", "in")).await.unwrap().newly_submitted);
    assert!(!runtimes[1].submit(spec("r", "in")).await.unwrap().newly_submitted);
    let worker = runtimes[1].spawn(std::future::pending());
    let end = within(runtimes[0].wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    assert_eq!(ran.all(), [1]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn runtimes_of_two_queues_of_one_store_never_see_each_others_runs() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = |name: &'static str| {
        let script = Script::new(move |step| async move {
            let seen: Result<String, Error> =
                step.run_memo.memoized("who", async { Ok(name.to_owned()) }).await;
            match step.step_number {
                0 => wait_for("one key"),
                _ => succeed(seen?.as_bytes()),
            }
        });
        world.builder(&queue, script, NoopTerminalHook).queue_name(name).build()
    };
    let (a, b) = (runtime("a"), runtime("b"));
    let workers = [a.spawn(std::future::pending()), b.spawn(std::future::pending())];
    assert!(a.submit(spec("r", "of a")).await.unwrap().newly_submitted);
    assert!(b.submit(spec("r", "of b")).await.unwrap().newly_submitted);
    // Signal keys and memos are apart too.
    for runtime in [&a, &b] {
        crate::world::state(runtime, "r", |state| *state == RunState::Pending).await;
    }
    a.signal("one key", vec![]).await.unwrap();
    let end = within(a.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.outcome.unwrap().result.as_deref(), Some(&b"a"[..]));
    let of_b = b.status(&run_id("r")).await.unwrap().unwrap();
    assert!(!matches!(of_b.state, RunState::Terminated(_)), "{of_b:?}");
    assert!(b.cancel(&run_id("r")).await.unwrap());
    assert!(!a.cancel(&run_id("r")).await.unwrap());
    for worker in workers {
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_run_whose_job_was_removed_by_hand_can_be_submitted_again() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::pure(|_| next("")), NoopTerminalHook);
    let lost = runtime.submit(spec("r", "one")).await.unwrap();
    queue.cancel(&lost.job_id).await.unwrap();
    let status = runtime.status(&run_id("r")).await;
    assert!(matches!(status, Err(Error::InconsistentRunState(_))), "{status:?}");
    let waited = within(runtime.wait(&run_id("r"))).await;
    assert!(matches!(waited, Err(Error::InconsistentRunState(_))), "{waited:?}");
    let anew = runtime.submit(spec("r", "two")).await.unwrap();
    assert!(anew.newly_submitted);
    assert_eq!(runtime.status(&run_id("r")).await.unwrap().unwrap().state, RunState::Pending);
}
