//! When a job runs: at its time, in the order of priorities, once for each key, and not after it is of no use any more.
//!
//! ```text
//! cargo run -p taquba --example scheduled
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "an application has real time; only the library must not ask for it by itself"
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use taquba::object_store::memory::InMemory;
use taquba::{
    EnqueueOptions, PRIORITY_HIGH, PRIORITY_LOW, Queue, QueueConfig, SettlementEffects, WaitOutcome,
};

const QUEUE: &str = "reports";
const LEASE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    match story().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scheduled: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn story() -> Result<(), taquba::Error> {
    let config = QueueConfig::default().keep_done_jobs(Duration::from_secs(60));
    let options = taquba::OpenOptions::default().queue_config(QUEUE, config);
    let queue = Queue::open_with_options(Arc::new(InMemory::new()), "shop", options).await?;
    let soon = |ms| SystemTime::now() + Duration::from_millis(ms);
    let began = Instant::now();
    let enqueue = async |name: &str, options| {
        queue.enqueue_with(QUEUE, name.as_bytes().to_vec(), options).await
    };
    let none = EnqueueOptions::default;

    // The same report, asked for by two who do not know of each other: one job.
    let first = enqueue("for the board", none().dedup_key("board").run_at(soon(600))).await?;
    let again = enqueue("for the board", none().dedup_key("board").run_at(soon(600))).await?;
    println!("asked for twice, there is one report for the board: {}", first == again);

    enqueue("when there is time", none().priority(PRIORITY_LOW)).await?;
    enqueue("as usual", none()).await?;
    enqueue("at once", none().priority(PRIORITY_HIGH)).await?;
    enqueue("in 300 ms", none().run_at(soon(300)).priority(PRIORITY_HIGH)).await?;
    // Of use until it has expired, and a worker that comes later finds it dead.
    let stale = none().run_at(soon(400)).expire_at(soon(200));
    let stale = enqueue("the weather of this minute", stale).await?;

    let stats = queue.view().stats(QUEUE).await?;
    println!("{} are ready, {} wait for their time", stats.pending, stats.scheduled);
    // It waits for jobs, it does not poll: the fourth and fifth come at their very time.
    let patience = Duration::from_millis(1_000);
    while let Some(claim) = queue.claim_with_wait(QUEUE, LEASE, patience).await? {
        let name = String::from_utf8_lossy(&claim.payload);
        println!("  {:>4} ms: {name}", began.elapsed().as_millis());
        let result = SettlementEffects::default().result("printed");
        queue.ack_with(&claim, result).await?;
    }
    if let WaitOutcome::Dead(job) = queue.wait_for_completion(&stale).await? {
        let name = String::from_utf8_lossy(&job.payload);
        println!("{name}: {}", job.last_error.unwrap_or_default());
    }
    if let WaitOutcome::Done(job) = queue.wait_for_completion(&first).await? {
        let result = job.result.unwrap_or_default();
        println!("the board's report, kept for a minute: {}", String::from_utf8_lossy(&result));
    }
    queue.close().await?;
    println!("\ntry next: examples/read_live_store.rs, a look at a store from another process");
    Ok(())
}
