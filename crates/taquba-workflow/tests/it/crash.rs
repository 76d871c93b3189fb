//! A process that dies at every point of a run, and the next one that goes on.

use taquba_workflow::{Error, StepErrorKind, TerminalStatus};

use crate::world::{
    Gate, Log, Process, Script, Told, World, make_durable, next, run_id, spec, succeed, within,
};

const STEPS: u32 = 5;

/// A run of `STEPS` steps. Each writes down that it computed, once by memo, and passes its gate before it returns.
fn chain(entered: &Log<(u32, u32)>, computed: &Log<u32>, gate: &Gate) -> Script {
    let (entered, computed, gate) = (entered.clone(), computed.clone(), gate.clone());
    Script::new(move |step| {
        let (entered, computed, gate) = (entered.clone(), computed.clone(), gate.clone());
        async move {
            let number = step.step_number;
            let work = || async {
                computed.push(number);
                Ok::<_, Error>(())
            };
            step.memo.memoized("work", work).await?;
            step.effects.put(format!("done/{number}"), step.payload.clone())?;
            entered.push((number, step.attempts));
            gate.pass().await;
            if number + 1 == STEPS { succeed(&step.payload) } else { next(&number.to_string()) }
        }
    })
}

#[tokio::test]
async fn a_run_whose_process_dies_in_every_step_ends_as_if_none_had() {
    let world = World::new();
    let told = Told::new();
    let (entered, computed, gate) = (Log::new(), Log::new(), Gate::closed());
    let mut want = Vec::new();
    for number in 0..STEPS {
        // One process dies inside the step; the next settles it and dies inside the following one.
        let script = chain(&entered, &computed, &gate);
        let (process, queue, runtime) = Process::start(&world, script, told.clone()).await;
        if number == 0 {
            runtime.submit(spec("r", "input")).await.unwrap();
        } else {
            gate.let_one_pass();
            want.push((number - 1, 2));
        }
        want.push((number, 1));
        assert_eq!(entered.reach(want.len()).await, want);
        make_durable(&queue).await;
        process.kill().await;
    }
    let script = chain(&entered, &computed, &gate);
    let (_process, queue, runtime) = Process::start(&world, script, told.clone()).await;
    gate.let_one_pass();
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    assert_eq!(end.termination.final_step, STEPS - 1);
    assert_eq!(
        computed.all(),
        (0..STEPS).collect::<Vec<_>>(),
        "memos spared every second computation"
    );
    for number in 0..STEPS {
        assert!(queue.view().kv_get(format!("done/{number}").as_bytes()).await.unwrap().is_some());
    }
    assert_eq!(told.outcomes.reach(1).await.len(), 1);
}

#[tokio::test]
async fn a_process_that_dies_inside_the_hook_tells_it_again() {
    let world = World::new();
    // The first process's hook never returns.
    let entered = Log::new();
    let stuck = Stuck(entered.clone());
    let script = Script::pure(|_| succeed(b"x"));
    let (process, _, runtime) = Process::start(&world, script.clone(), stuck).await;
    runtime.submit(spec("r", "")).await.unwrap();
    entered.reach(1).await;
    process.kill().await;

    let told = Told::new();
    let (_process, queue, _) = Process::start(&world, script, told.clone()).await;
    let outcomes = told.outcomes.reach(1).await;
    assert_eq!(outcomes[0].result.as_deref(), Some(&b"x"[..]));
    crate::world::quiet(&queue).await;
    assert_eq!(told.outcomes.all().len(), 1);
}

#[derive(Clone)]
struct Stuck(Log<()>);

impl taquba_workflow::TerminalHook for Stuck {
    async fn on_termination(
        &self,
        _: &taquba_workflow::RunOutcome,
        _: &taquba_workflow::TerminalEffects,
    ) -> Result<(), taquba_workflow::StepError> {
        self.0.push(());
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_step_whose_process_dies_in_every_attempt_fails_its_run_in_the_end() {
    let world = World::new();
    let entered = Log::new();
    for attempt in 1..=3_u32 {
        let log = entered.clone();
        let stuck = Script::new(move |step| {
            log.push(step.attempts);
            std::future::pending()
        });
        let (process, queue, runtime) =
            Process::start(&world, stuck, taquba_workflow::NoopTerminalHook).await;
        if attempt == 1 {
            runtime.submit(spec("r", "")).await.unwrap();
        }
        assert_eq!(entered.reach(attempt as usize).await.last(), Some(&attempt));
        make_durable(&queue).await;
        process.kill().await;
    }
    let told = Told::new();
    let (_process, _, runtime) = Process::start(&world, Script::unused(), told.clone()).await;
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Failed);
    assert_eq!(end.termination.error_kind, Some(StepErrorKind::Transient));
    told.outcomes.reach(1).await;
}

#[tokio::test]
async fn everything_that_was_answered_survives_a_crash_right_after() {
    let world = World::new();
    for round in 0..10 {
        let id = format!("r{round}");
        let (process, _, runtime) =
            Process::start(&world, Script::new(|_| std::future::pending()), Told::new()).await;
        let (submitted, sent) =
            tokio::join!(runtime.submit(spec(&id, "")), runtime.signal(&id, b"kept".to_vec()),);
        let (submitted, _) = (submitted.unwrap(), sent.unwrap());
        process.kill().await;

        let queue = world.open().await;
        let runtime = world.runtime(&queue, Script::unused(), Told::new());
        let again = runtime.submit(spec(&id, "")).await.unwrap();
        assert_eq!((again.newly_submitted, again.job_id), (false, submitted.job_id));
        assert!(runtime.cancel(&run_id(&id)).await.unwrap());
        assert!(runtime.clear_signal(&id).await.unwrap());
        drop((runtime, queue));

        let queue = world.open().await;
        let runtime = world.runtime(&queue, Script::unused(), Told::new());
        let end = within(runtime.wait(&run_id(&id))).await.unwrap();
        assert_eq!(end.termination.status, TerminalStatus::Cancelled);
        assert!(!runtime.clear_signal(&id).await.unwrap());
    }
}
