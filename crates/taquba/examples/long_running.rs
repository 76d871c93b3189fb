//! A handler that takes longer than its lease: the loop keeps the lease while the handler lives, the handler says how far
//! it is, and stops when somebody asks it to.
//!
//! ```text
//! cargo run -p taquba --example long_running
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "an application has real time; only the library must not sleep by itself"
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::memory::InMemory;
use taquba::{
    JobRecord, LeaseHandle, OpenOptions, PermanentFailure, Queue, QueueConfig, WaitOutcome, Worker,
    WorkerError, WorkerHandle, run_worker_concurrent,
};

const QUEUE: &str = "videos";
const LEASE: Duration = Duration::from_millis(500);
const PARTS: u8 = 20;
const PART: Duration = Duration::from_millis(100);

struct Encoder;

impl Worker for Encoder {
    async fn process(&self, job: &JobRecord, lease: &LeaseHandle) -> Result<(), WorkerError> {
        let film = String::from_utf8_lossy(&job.payload);
        for part in 1..=PARTS {
            tokio::select! {
                () = tokio::time::sleep(PART) => {}
                // Asked to stop, or the store has a new owner: either way nobody wants this work any more.
                () = lease.cancel_token().cancelled() => {
                    println!("  {film}: told to stop at part {part}; tidies up");
                    return Err(PermanentFailure::new("stopped on request").into());
                }
            }
            // As often as you like: it is stored once a second at most, and in no PUT of its own where others are made.
            let percent = u8::try_from(u32::from(part) * 100 / u32::from(PARTS))?;
            lease.report_progress(percent, &format!("part {part} of {PARTS}"))?;
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match story().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("long_running: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn story() -> Result<(), taquba::Error> {
    let config = QueueConfig::default().lease_duration(LEASE);
    let options = OpenOptions::default().queue_config(QUEUE, config);
    let bucket = Arc::new(InMemory::new());
    let queue = Arc::new(Queue::open_with_options(bucket, "shop", options).await?);
    let worker = WorkerHandle::spawn(std::future::pending(), {
        let queue = Arc::clone(&queue);
        move |stop| async move {
            let stopped = stop.cancelled_owned();
            let encoder = Arc::new(Encoder);
            run_worker_concurrent(&queue, QUEUE, encoder, 2, Duration::ZERO, stopped).await
        }
    });

    println!("a lease lasts {LEASE:?}, a film takes {:?}", PART * u32::from(PARTS));
    let long = queue.enqueue(QUEUE, b"the long one".to_vec()).await?;
    let regretted = queue.enqueue(QUEUE, b"the regretted one".to_vec()).await?;
    for look in 1..=3 {
        tokio::time::sleep(LEASE).await;
        if let Some(job) = queue.view().get_job(&long).await? {
            let said = job.progress.map_or("nothing yet".to_owned(), |said| {
                format!("{:>3} %, {}", said.percent, said.note)
            });
            println!("the long one, attempt {}: {said}", job.attempts);
        }
        if look == 2 {
            println!("cancelling the regretted one: {:?}", queue.cancel(&regretted).await?);
        }
    }
    for (name, id) in [("the regretted one", regretted), ("the long one", long)] {
        match queue.wait_for_completion(&id).await? {
            WaitOutcome::Dead(job) => {
                println!("{name}: dead: {}", job.last_error.unwrap_or_default());
            }
            // Its record is gone with its acknowledgement, unless the queue keeps done jobs.
            WaitOutcome::Done(_) | WaitOutcome::NotFound => {
                println!("{name}: done, in one attempt")
            }
            WaitOutcome::Cancelled => println!("{name}: cancelled before it began"),
        }
    }
    worker.shutdown().await?;
    queue.close().await?;
    println!("\ntry next: examples/atomic_settlement.rs, what commits together with a job's end");
    Ok(())
}
