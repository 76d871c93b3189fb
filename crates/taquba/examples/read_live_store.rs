//! A second process reads a store while its owner works, with credentials that need only read.
//!
//! ```text
//! cargo run -p taquba --example read_live_store
//! ```
//!
//! starts an owner as a process of its own on a folder, watches it from here, kills it, and shows how its death looks
//! from outside. To read a store of yours (the owner is not disturbed):
//!
//! ```text
//! cargo run -p taquba --example read_live_store -- s3://bucket/path/to/store mail
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "an application has real time; only the library must not sleep by itself"
)]

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

use taquba::{JobStatus, OpenOptions, Queue, QueueReader, ReaderMode, ReaderOptions};

type AnyError = Box<dyn Error + Send + Sync>;

const QUEUE: &str = "mail";
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => story().await,
        [role, url] if role == "owner" => own(url).await,
        [url, queue] => watch(url, queue, 1).await,
        _ => Err("usage: read_live_store [URL QUEUE]".into()),
    }
}

/// The owner: takes mails in and sends them, and beats.
async fn own(url: &str) -> Result<(), AnyError> {
    let (bucket, path) = taquba::open_url(url, std::env::vars())?;
    let options = OpenOptions::default().liveness_heartbeat(LOOK_EVERY);
    let queue = Queue::open_with_options(bucket, path.as_ref(), options).await?;
    let lease = Duration::from_secs(30);
    let mut number = 0_u32;
    loop {
        let mails = (0..3).map(|n| format!("mail {}", number + n).into_bytes()).collect();
        queue.enqueue_batch(QUEUE, mails).await?;
        number += 3;
        for claim in queue.claim_batch(QUEUE, 2, lease).await? {
            tokio::time::sleep(LOOK_EVERY / 2).await;
            queue.ack(&claim).await?;
        }
    }
}

async fn story() -> Result<(), AnyError> {
    let folder = std::env::temp_dir().join(format!("taquba-read-{}", std::process::id()));
    let url = format!("file://{}/store", folder.display());
    println!("an owner works on {url}; this process only reads");
    let mut owner = Command::new(std::env::current_exe()?);
    let mut owner = owner.args(["owner", &url]).stdin(Stdio::null()).spawn()?;
    watch(&url, QUEUE, 6).await?;
    owner.kill()?;
    owner.wait()?;
    println!("\nthe owner is killed; what it confirmed is there, and its beats have stopped:");
    watch(&url, QUEUE, 3).await?;
    std::fs::remove_dir_all(&folder)?;
    println!("\ntry next: examples/rolling_deploy.rs, where others take over when the beats stop");
    Ok(())
}

async fn watch(url: &str, queue: &str, looks: usize) -> Result<(), AnyError> {
    let (bucket, path) = taquba::open_url(url, std::env::vars())?;
    let options = ReaderOptions::default()
        .mode(ReaderMode::FollowLatest)
        .manifest_poll_interval(LOOK_EVERY / 2);
    let reader = loop {
        match QueueReader::open_with_options(bucket.clone(), path.as_ref(), options.clone()).await {
            Err(taquba::Error::StoreNotInitialized { .. }) => {
                println!("there is no store yet; looking again");
                tokio::time::sleep(LOOK_EVERY).await;
            }
            opened => break opened?,
        }
    };
    let view = reader.view();
    for _ in 0..looks {
        let stats = view.stats(queue).await?;
        let beat = match reader.writer_heartbeat().await? {
            Some(beat) => format!("beat {} of takeover {}", beat.counter, beat.writer_epoch),
            None => "no beat".to_owned(),
        };
        println!(
            "{:>4} pending {:>3} claimed {:>4} done | {beat} | commits up to {}",
            stats.pending,
            stats.claimed,
            stats.done,
            reader.last_store_activity().durable_seq,
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let next = view.list_jobs(queue, JobStatus::Pending, None, 2).await?;
    for job in next.jobs {
        println!("     next: {} {:?}", job.id, String::from_utf8_lossy(&job.payload));
    }
    reader.close().await?;
    Ok(())
}
