//! The first job: enqueued, claimed, settled, and what it came to handed to whoever waits for it.
//!
//! ```text
//! cargo run -p taquba --example quickstart
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use taquba::object_store::memory::InMemory;
use taquba::{Queue, SettlementEffects, WaitOutcome};

const QUEUE: &str = "sums";

#[tokio::main]
async fn main() -> ExitCode {
    match story().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn story() -> Result<(), taquba::Error> {
    // Any object store will do; this one is gone with the process.
    let queue = Queue::open(Arc::new(InMemory::new()), "shop").await?;

    let id = queue.enqueue(QUEUE, b"1 2 3".to_vec()).await?;
    println!("enqueued {id}: it is in the bucket, whatever happens to this process now");

    let (worker, waiter) = tokio::join!(work(&queue), queue.wait_for_completion(&id));
    worker?;
    match waiter? {
        WaitOutcome::Done(job) => {
            let result = job.result.unwrap_or_default();
            println!("whoever waited for it hears: {}", String::from_utf8_lossy(&result));
        }
        other => println!("it did not complete: {other:?}"),
    }

    let stats = queue.view().stats(QUEUE).await?;
    println!("pending {}, claimed {}, done {}", stats.pending, stats.claimed, stats.done);
    queue.close().await?;
    println!("\ntry next: examples/worker.rs, a loop that claims, retries and gives up");
    println!("          examples/local_disk.rs, the same on a disk, killed and started again");
    Ok(())
}

/// Works on one job, as a worker loop does on many.
async fn work(queue: &Queue) -> Result<(), taquba::Error> {
    let Some(claim) = queue.claim_next(QUEUE).await? else { return Ok(()) };
    println!("claimed it, attempt {} of {}", claim.attempts, claim.max_attempts);
    let text = String::from_utf8_lossy(&claim.payload);
    let sum: i64 = text.split(' ').filter_map(|number| number.parse::<i64>().ok()).sum();
    // Done, and what it came to, in one commit. If the process dies before this, another attempt comes.
    queue.ack_with(&claim, SettlementEffects::default().result(sum.to_string())).await?;
    println!("acknowledged it: it is done, once");
    Ok(())
}
