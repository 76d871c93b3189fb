//! The bucket dies at every call of a scripted scenario, from the first open on. Whatever was acknowledged is there
//! afterwards, everything ends, and nothing has happened twice.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taquba::object_store::{ObjectStore, memory::InMemory};
use taquba::{EnqueueRequest, JobStatus, MockClock, Queue};
use taquba_workflow::{RunEnd, StepOutcome, TerminalStatus, WorkflowRuntime};

use crate::kill_store::{Kill, KillStore};
use crate::world::{
    MINUTE, STEPS, Script, Told, World, jobs, next, quiet, run_id, spec, succeed, wait_for, within,
};

const RESULT: usize = 150 * 1_024;

/// What the process was told before it died.
#[derive(Debug, Default)]
struct Acknowledged {
    submitted: bool,
    doomed: bool,
    signalled: bool,
    ended: Option<RunEnd>,
    cancelled: bool,
}

/// Three steps with a memo, a signal and a large result; the other run waits for ever.
fn script() -> Script {
    Script::new(|step| async move {
        if step.run_id == "doomed" {
            return Ok(StepOutcome::continue_on_signal(vec![], "never", MINUTE * 60));
        }
        let number = step.step_number;
        step.effects.put(format!("done/{number}"), "yes")?;
        match number {
            0 => {
                let work = async { Ok::<_, taquba_workflow::Error>("computed".to_owned()) };
                next(&step.run_memo.memoized("work", work).await?)
            }
            1 => wait_for("k"),
            _ => {
                let mut result = step.signal.clone().unwrap_or_else(|| b"no signal".to_vec());
                result.resize(RESULT, 0);
                succeed(&result)
            }
        }
    })
}

/// Sends one mail per end.
fn hook() -> Told {
    Told::answering(|_, effects| {
        let queue = "mail".to_owned();
        Ok(effects.enqueue(EnqueueRequest { queue, ..Default::default() })?)
    })
}

type Runtime = WorkflowRuntime<Script, Told>;

async fn open(
    bucket: Arc<dyn ObjectStore>,
    clock: &MockClock,
) -> taquba::Result<(Arc<Queue>, Runtime)> {
    let world = World { bucket, clock: clock.clone() };
    let queue = world.try_open().await?;
    let runtime = world.runtime(&queue, script(), hook());
    Ok((queue, runtime))
}

async fn scenario(
    bucket: Arc<dyn ObjectStore>,
    clock: MockClock,
    told: Arc<Mutex<Acknowledged>>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (_queue, runtime) = open(bucket, &clock).await?;
    let worker = runtime.spawn(std::future::pending());
    runtime.submit(spec("r", "in")).await?;
    told.lock().unwrap().submitted = true;
    runtime.submit(spec("doomed", "")).await?;
    told.lock().unwrap().doomed = true;
    runtime.signal("k", b"hi".to_vec()).await?;
    told.lock().unwrap().signalled = true;
    let end = runtime.wait(&run_id("r")).await?;
    told.lock().unwrap().ended = Some(end);
    runtime.cancel(&run_id("doomed")).await?;
    told.lock().unwrap().cancelled = true;
    worker.shutdown().await?;
    Ok(())
}

/// Runs the scenario in a process of its own, until it is through or the bucket has died under it.
async fn run_and_die(store: &KillStore, clock: &MockClock) -> Acknowledged {
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let told = Arc::new(Mutex::new(Acknowledged::default()));
    let process = tokio.spawn(scenario(Arc::new(store.clone()), clock.clone(), Arc::clone(&told)));
    let ended = within(process).await.unwrap();
    assert!(ended.is_ok() || store.is_dead(), "{ended:?}");
    let stop = move || tokio.shutdown_timeout(Duration::from_secs(10));
    tokio::task::spawn_blocking(stop).await.unwrap();
    std::mem::take(&mut *told.lock().unwrap())
}

/// Goes on with what the bucket holds, as whoever was told `told` would.
async fn recover(bucket: Arc<InMemory>, clock: &MockClock, told: Acknowledged) {
    let (queue, runtime) = open(bucket, clock).await.unwrap();
    for (run, input, acknowledged) in [("r", "in", told.submitted), ("doomed", "", told.doomed)] {
        let known = runtime.status(&run_id(run)).await.unwrap().is_some();
        assert!(known || !acknowledged, "{run} is lost");
        if !known {
            runtime.submit(spec(run, input)).await.unwrap();
        }
    }
    let worker = runtime.spawn(std::future::pending());
    if !told.signalled {
        runtime.signal("k", b"hi".to_vec()).await.unwrap();
    }
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Succeeded);
    let result = end.outcome.as_ref().unwrap().result.as_ref().unwrap();
    assert!(result.starts_with(b"hi\0") && result.len() == RESULT);
    assert!(told.ended.is_none_or(|before| before == end), "it ended a second time");

    let active = runtime.cancel(&run_id("doomed")).await.unwrap();
    assert!(!(active && told.cancelled), "the cancel is lost");
    let end = within(runtime.wait(&run_id("doomed"))).await.unwrap();
    assert_eq!(end.termination.status, TerminalStatus::Cancelled);

    quiet(&queue).await;
    assert_eq!(queue.view().stats("mail").await.unwrap().pending, 2, "one mail per end");
    assert!(jobs(&queue, JobStatus::Dead).await.is_empty());
    for number in 0..3 {
        assert!(queue.view().kv_get(format!("done/{number}").as_bytes()).await.unwrap().is_some());
    }
    // A signal that was not acknowledged was sent twice, and may be there twice.
    assert!(!runtime.clear_signal("k").await.unwrap() || !told.signalled);
    assert_eq!(queue.view().stats(STEPS).await.unwrap().dead, 0);
    worker.shutdown().await.unwrap();
}

async fn kill_at_every_call(kind: fn(u64) -> Kill) {
    for call in 0.. {
        let (bucket, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000_000));
        let store = KillStore::new(Arc::clone(&bucket), kind(call));
        let told = run_and_die(&store, &clock).await;
        let died = store.is_dead();
        let context = format!("{:?}, {told:?}", kind(call));
        let recovered = tokio::spawn(async move { recover(bucket, &clock, told).await });
        recovered.await.unwrap_or_else(|e| panic!("after {context}: {e}"));
        if !died {
            assert!(call > 10, "the scenario makes only {call} calls");
            return;
        }
    }
}

#[tokio::test]
async fn the_bucket_dies_before_every_call() {
    kill_at_every_call(Kill::At).await;
}

#[tokio::test]
async fn the_bucket_dies_after_every_call_took_effect() {
    kill_at_every_call(Kill::AfterEffect).await;
}
