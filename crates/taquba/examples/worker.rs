//! A worker loop: failed attempts are tried again with a growing, scattered delay; what cannot succeed is dead-lettered
//! with the reason, and brought back once somebody has mended the cause.
//!
//! ```text
//! cargo run -p taquba --example worker
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taquba::object_store::memory::InMemory;
use taquba::{
    BulkAction, JobFilter, JobRecord, JobStatus, LeaseHandle, OpenOptions, PermanentFailure, Queue,
    QueueConfig, RetryPolicy, WaitOutcome, Worker, WorkerError, WorkerHandle,
    run_worker_concurrent,
};

const QUEUE: &str = "mail";

/// Sends mails; its server is slow to wake, and one of its targets is down until somebody mends it.
#[derive(Default)]
struct Mailer {
    mended: AtomicBool,
}

impl Worker for Mailer {
    async fn process(&self, job: &JobRecord, _lease: &LeaseHandle) -> Result<(), WorkerError> {
        let to = String::from_utf8_lossy(&job.payload);
        println!("  attempt {} of {} for {to}", job.attempts, job.max_attempts);
        match to.as_ref() {
            "ada" => Ok(()),
            // An error: the attempt failed, another one comes after a delay.
            "grace" if job.attempts < 3 => Err("the server is busy".into()),
            "down.example" if !self.mended.load(Ordering::SeqCst) => Err("no route".into()),
            // No attempt can mend this one: it is given up at once.
            "nobody" => Err(PermanentFailure::new("there is no such address").into()),
            _ => Ok(()),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match story().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn story() -> Result<(), taquba::Error> {
    // 100 ms, 200 ms, 400 ms, .. at most 2 s, each up to 30 % shorter or longer: jobs that failed together do not come
    // back together.
    let retry =
        RetryPolicy::exponential(Duration::from_millis(100), Duration::from_secs(2)).jitter(30);
    let config = QueueConfig::default().max_attempts(3_u32).retry(retry);
    let options = OpenOptions::default().queue_config(QUEUE, config);
    let bucket = Arc::new(InMemory::new());
    let queue = Arc::new(Queue::open_with_options(bucket, "shop", options).await?);

    let mailer = Arc::new(Mailer::default());
    let worker = WorkerHandle::spawn(std::future::pending(), {
        let (queue, mailer) = (Arc::clone(&queue), Arc::clone(&mailer));
        move |stop| async move {
            let stopped = stop.cancelled_owned();
            run_worker_concurrent(&queue, QUEUE, mailer, 4, Duration::ZERO, stopped).await
        }
    });

    let names = ["ada", "grace", "nobody", "down.example"];
    let mails = names.map(|name| name.as_bytes().to_vec()).to_vec();
    let ids = queue.enqueue_batch(QUEUE, mails).await?;
    for (name, id) in names.iter().zip(&ids) {
        match queue.wait_for_completion(id).await? {
            WaitOutcome::Done(_) => println!("{name}: sent"),
            WaitOutcome::Dead(job) => {
                let why = job.last_error.unwrap_or_default();
                println!("{name}: dead after {} attempts: {why}", job.attempts);
            }
            other => println!("{name}: {other:?}"),
        }
    }

    println!("somebody mends the route, and brings back what failed for the lack of it");
    mailer.mended.store(true, Ordering::SeqCst);
    let meant = JobFilter::new(QUEUE, JobStatus::Dead).error_contains("no route");
    let report = queue.bulk(&meant, BulkAction::Requeue, false).await?;
    println!("{} brought back", report.changed);
    if let [.., last] = ids.as_slice() {
        // Its waiter is told of the next end of its life.
        if let WaitOutcome::NotFound | WaitOutcome::Done(_) =
            queue.wait_for_completion(last).await?
        {
            println!("down.example: sent at last");
        }
    }
    // It finishes what it has begun.
    worker.shutdown().await?;
    queue.close().await?;
    println!("\ntry next: examples/long_running.rs, handlers that take their time");
    Ok(())
}
