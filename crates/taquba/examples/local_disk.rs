//! A queue on a local disk: kill its process at any time and start it again; it goes on where it was.
//!
//! ```text
//! cargo run -p taquba --example local_disk
//! ```
//!
//! tells the story by itself, in a folder of its own. To play it by hand, name a folder, kill it (`ctrl-c`, or `kill -9`
//! from elsewhere) while it works, and start it again with the same folder:
//!
//! ```text
//! cargo run -p taquba --example local_disk -- /tmp/taquba-demo
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "an application has real time; only the library must not sleep by itself"
)]

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use taquba::{Queue, SettlementEffects};

type AnyError = Box<dyn Error + Send + Sync>;

const QUEUE: &str = "photos";
const PHOTOS: usize = 8;
const PHOTO: Duration = Duration::from_millis(250);

#[tokio::main]
async fn main() -> ExitCode {
    let folder = std::env::args_os().nth(1);
    let ended = match &folder {
        Some(folder) => work(Path::new(folder)).await,
        None => story().await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("local_disk: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the folder, brings work if it was never brought, and works it off.
async fn work(folder: &Path) -> Result<(), AnyError> {
    let folder = std::path::absolute(folder)?;
    // With `file:///`, a call that is durable has been synced to the disk: it survives the machine, too.
    let url = format!("file://{}", folder.display());
    let (bucket, path) = taquba::open_url(&url, std::env::vars())?;
    let queue = Queue::open(bucket, path.join("jobs").as_ref()).await?;
    // The row and the jobs are one commit, so whenever it dies there is all the work, or none yet.
    let mut first = SettlementEffects::default().kv_put("brought", "");
    for number in 1..=PHOTOS {
        first = first.enqueue(taquba::EnqueueRequest {
            queue: QUEUE.to_owned(),
            payload: format!("photo {number}").into_bytes(),
            ..Default::default()
        });
    }
    match queue.kv_compare_commit(b"brought", None, first).await? {
        Some(jobs) => println!("a new store in {}: {} photos", folder.display(), jobs.len()),
        None => {
            let stats = queue.view().stats(QUEUE).await?;
            println!("this store was here before: {} done, {} left", stats.done, stats.pending);
        }
    }
    println!("working (kill me, and start me again)");
    while let Some(claim) = queue.claim_next(QUEUE).await? {
        tokio::time::sleep(PHOTO).await;
        queue.ack(&claim).await?;
        let photo = String::from_utf8_lossy(&claim.payload);
        println!("  {photo} is developed, in attempt {}", claim.attempts);
    }
    let done = queue.view().stats(QUEUE).await?.done;
    queue.close().await?;
    println!("all {done} photos are developed, each once; remove {} when done", folder.display());
    Ok(())
}

async fn story() -> Result<(), AnyError> {
    let folder = std::env::temp_dir().join(format!("taquba-disk-{}", std::process::id()));
    let this = std::env::current_exe()?;
    let start = || Command::new(&this).arg(&folder).stdin(Stdio::null()).spawn();
    let mut first = start()?;
    tokio::time::sleep(PHOTO * 4).await;
    first.kill()?;
    first.wait()?;
    println!("-- killed, with kill -9; started again:");
    let ended = start()?.wait()?;
    std::fs::remove_dir_all(&folder)?;
    if !ended.success() {
        return Err("the second process failed".into());
    }
    println!("\ntry next: this example with a folder of yours (see its first lines),");
    println!("          examples/rolling_deploy.rs, where others take over by themselves");
    Ok(())
}
