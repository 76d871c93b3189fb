//! The story a newcomer needs: submit a run, let it step, wait for a signal through a crash, resume, end, be told.

use taquba_workflow::{RunState, SignalOutcome, TerminalStatus};

use crate::world::{
    Process, Script, Told, World, make_durable, next, run_id, scheduled, spec, succeed, wait_for,
    within,
};

#[tokio::test]
async fn a_run_steps_waits_through_a_crash_is_signalled_and_ends() {
    let world = World::new();
    let told = Told::new();
    // An order is priced, waits for somebody's approval, and ships with what the approval said.
    let script = Script::pure(|step| match step.step_number {
        0 => next("priced"),
        1 => wait_for("approval:order-7"),
        _ => {
            step.effects.put("shipped/order-7", "yes")?;
            succeed(step.signal.as_deref().unwrap_or(b"nobody approved"))
        }
    });

    // One process submits the run and takes it to its wait. Submitting again changes nothing.
    let (process, queue, runtime) = Process::start(&world, script.clone(), told.clone()).await;
    let first = runtime.submit(spec("order-7", "order 7")).await.unwrap();
    assert!(first.newly_submitted);
    let job = scheduled(&queue, "order-7").await;
    let again = runtime.submit(spec("order-7", "order 7")).await.unwrap();
    assert!(!again.newly_submitted);
    assert_eq!(again.job_id, job.id);
    let status = runtime.status(&run_id("order-7")).await.unwrap().unwrap();
    assert_eq!((status.state, status.current_step), (RunState::Pending, 2));
    make_durable(&queue).await;

    // It dies. Nobody holds anything meanwhile.
    process.kill().await;

    // Another process takes the bucket over, and the approval comes.
    let (_process, queue, runtime) = Process::start(&world, script, told.clone()).await;
    let sent = runtime.signal("approval:order-7", b"approved by Ada".to_vec()).await.unwrap();
    assert_eq!(sent, SignalOutcome::Delivered);
    let end = within(runtime.wait(&run_id("order-7"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    assert_eq!(end.termination.final_step, 2);
    let outcome = end.outcome.unwrap();
    assert_eq!(outcome.result.as_deref(), Some(&b"approved by Ada"[..]));

    // What the last step staged is there, and the hook has been told the same.
    let shipped = queue.view().kv_get(b"shipped/order-7").await.unwrap().unwrap();
    assert_eq!(shipped.as_ref(), b"yes");
    assert_eq!(told.outcomes.reach(1).await, [outcome]);
}
