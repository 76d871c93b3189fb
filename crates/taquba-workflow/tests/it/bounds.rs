//! Sizes: what is too large fails its own call or its own step with a reason, and never leaves a run stuck.

use taquba::MAX_KV_VALUE_SIZE;
use taquba_workflow::{Error, NoopTerminalHook, RunOptions, RunSpec, StepOutcome, TerminalStatus};

use crate::world::{Script, World, next, run_id, spec, succeed, wait_for, within};

const MIB: usize = 1_024 * 1_024;

#[tokio::test]
async fn a_submission_that_is_too_large_is_refused_whole() {
    let world = World::new();
    let queue = world.open().await;
    let runtime = world.runtime(&queue, Script::unused(), NoopTerminalHook);
    let headers = |count: usize, len: usize| RunOptions {
        headers: (0..count).map(|i| (format!("h{i}"), "x".repeat(len))).collect(),
        ..Default::default()
    };
    for (what, too_large) in [
        ("input", RunSpec { input: vec![0; MIB + 1], ..spec("r", "") }),
        ("headers", RunSpec { options: headers(16, 4_096), ..spec("r", "") }),
        ("header", RunSpec { options: headers(1, 8_192), ..spec("r", "") }),
    ] {
        let error = runtime.submit(too_large).await.unwrap_err();
        let is_refused = match &error {
            Error::Queue(taquba::Error::HeaderTooLarge { header, .. }) => header == "h0",
            Error::Queue(taquba::Error::TooLarge { .. }) => what != "header",
            _ => false,
        };
        assert!(is_refused, "{what}: {error:?}");
    }
    let effects = taquba::SettlementEffects::default().kv_put("k", vec![0; MAX_KV_VALUE_SIZE + 1]);
    let error = runtime.submit(RunSpec { effects, ..spec("r", "") }).await.unwrap_err();
    assert!(matches!(error, Error::Queue(taquba::Error::KvValueTooLarge { .. })), "{error:?}");
    assert_eq!(runtime.status(&run_id("r")).await.unwrap(), None);
}

#[tokio::test]
async fn the_largest_of_everything_at_once_is_accepted_and_settles() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| {
        // 7 rows of 256 KiB, and as many small ones as the set still takes.
        for i in 0..7 {
            step.effects.put(format!("large/{i}"), vec![1; MAX_KV_VALUE_SIZE])?;
        }
        let mut small = 0;
        while step.effects.put(format!("small/{small}"), vec![1; 200]).is_ok() {
            small += 1;
        }
        assert!(small > 900, "{small}");
        match step.step_number {
            0 => Ok(StepOutcome::continue_now(vec![2; MIB])),
            1 => {
                let key = "k".repeat(256);
                Ok(StepOutcome::continue_on_signal(vec![2; MIB], key, crate::world::MINUTE))
            }
            2 => Ok(StepOutcome::Fail { reason: "x".repeat(20_000) }),
            _ => unreachable!(),
        }
    });
    let told = crate::world::Told::new();
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    let headers = (0..7).map(|i| (format!("h{i}"), "x".repeat(8_000))).collect();
    let options = RunOptions { headers, ..Default::default() };
    let id = "r".repeat(128);
    runtime.submit(RunSpec { input: vec![2; MIB], options, ..spec(&id, "") }).await.unwrap();
    crate::world::scheduled(&queue, &id).await;
    runtime.signal(&"k".repeat(256), vec![3; MIB]).await.unwrap();
    let end = within(runtime.wait(&run_id(&id))).await.unwrap();
    assert_eq!(end.termination.final_step, 2);
    assert_eq!(end.termination.error.unwrap(), "x".repeat(8_192));
    assert_eq!(told.outcomes.reach(1).await[0].headers.len(), 7);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_largest_inline_result_with_the_largest_headers_settles() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|_| succeed(&vec![1; 128 * 1_024]));
    let told = crate::world::Told::new();
    let runtime = world.runtime(&queue, script, told.clone());
    let worker = runtime.spawn(std::future::pending());
    let headers = (0..7).map(|i| (format!("h{i}"), "x".repeat(8_100))).collect();
    let options = RunOptions { headers, ..Default::default() };
    runtime.submit(RunSpec { options, ..spec("r", "") }).await.unwrap();
    let end = within(runtime.wait(&run_id("r"))).await.unwrap();
    assert_eq!(end.outcome.unwrap().result.unwrap().len(), 128 * 1_024);
    told.outcomes.reach(1).await;
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_step_that_stages_too_much_can_say_so_and_a_payload_too_large_fails_its_run() {
    let world = World::new();
    let queue = world.open().await;
    let script = Script::pure(|step| match step.run_id.as_str() {
        "payload" => Ok(StepOutcome::continue_now(vec![0; MIB + 1])),
        "value" => {
            step.effects.put("k", vec![0; MAX_KV_VALUE_SIZE + 1])?;
            next("")
        }
        "reserved" => {
            step.effects.put("workflow/mine", "")?;
            next("")
        }
        _ => wait_for("k"),
    });
    let runtime = world.runtime(&queue, script, NoopTerminalHook);
    let worker = runtime.spawn(std::future::pending());
    for (id, says) in [("payload", "1048577"), ("value", "262145"), ("reserved", "reserved")] {
        runtime.submit(spec(id, "")).await.unwrap();
        let end = within(runtime.wait(&run_id(id))).await.unwrap();
        assert_eq!(end.termination.status, TerminalStatus::Failed);
        let error = end.termination.error.unwrap();
        assert!(error.contains(says), "{id}: {error}");
    }
    worker.shutdown().await.unwrap();
}

#[tokio::test]
#[should_panic(expected = "max_concurrent_steps must be at least 1")]
async fn a_runtime_that_may_run_no_step_is_refused() {
    let world = World::new();
    let queue = world.open().await;
    drop(world.builder(&queue, Script::unused(), NoopTerminalHook).max_concurrent_steps(0));
}
