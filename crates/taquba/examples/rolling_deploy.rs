//! Three replicas of one service share a store: one owns it and works, the others wait for it to fall silent.
//!
//! ```text
//! cargo run -p taquba --example rolling_deploy
//! ```
//!
//! tells the story by itself: it starts three replicas as processes of their own on a folder, kills the owner (`kill -9`),
//! closes the next one as a deploy would, and counts what is left. Nothing coordinates the replicas but the bucket.
//!
//! To play it by hand, start as many of these as you like, in terminals of their own, and kill whichever you like; end
//! their input (`ctrl-d`) to close one cleanly:
//!
//! ```text
//! cargo run -p taquba --example rolling_deploy -- file:///tmp/deploy-demo ada
//! ```
//!
//! An optional third argument says for how many milliseconds an owner must be silent (1500 by default; on a bucket far
//! away take some seconds).

#![expect(
    clippy::disallowed_methods,
    reason = "an application has real time; only the library must not sleep by itself"
)]

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use taquba::{EnqueueOptions, EnqueueRequest, OpenOptions, Queue, SettlementEffects, Takeover};
use tokio::sync::watch;

type AnyError = Box<dyn Error + Send + Sync>;

const QUEUE: &str = "orders";
const LEASE: Duration = Duration::from_secs(30);
const ORDER_EVERY: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => story().await,
        [url, name, rest @ ..] => {
            let silence = rest.first().map_or(Ok(1_500), |ms| ms.parse())?;
            replica(url, name, Duration::from_millis(silence)).await
        }
        _ => Err("usage: rolling_deploy [URL NAME [SILENCE_MS]]".into()),
    }
}

// ---- A replica: wait, own, work; fenced, wait again.

async fn replica(url: &str, name: &str, silence: Duration) -> Result<(), AnyError> {
    let (bucket, path) = taquba::open_url(url, std::env::vars())?;
    let path = path.join("jobs");
    let mut stop = input_ends();
    loop {
        println!("[{name}] waits for its turn");
        let options = OpenOptions::default().takeover(Takeover::WhenSilent(silence));
        let queue = tokio::select! {
            queue = Queue::open_with_options(bucket.clone(), path.as_ref(), options) => queue?,
            _ = stop.changed() => return Ok(()),
        };
        let beat = queue.view().writer_heartbeat().await?;
        let takeover = beat.map_or(0, |beat| beat.writer_epoch);
        println!("[{name}] owns the store, takeover {takeover}");
        let working =
            async { tokio::try_join!(take_orders(&queue, name), ship(&queue, name, takeover)) };
        tokio::select! {
            // It was fenced: another took the store while this one was cut off or frozen. It never fences back.
            ended = working => if let Err(error) = ended { println!("[{name}] stops: {error}") },
            _ = stop.changed() => {
                queue.close().await?;
                println!("[{name}] has closed the store");
                return Ok(());
            }
        }
    }
}

/// Takes one order after the other. The order and the count of orders are one commit.
async fn take_orders(queue: &Queue, name: &str) -> Result<(), AnyError> {
    let count = queue.view().kv_get(b"orders").await?;
    let mut number: u64 = match count {
        Some(count) => std::str::from_utf8(&count)?.parse()?,
        None => 0,
    };
    loop {
        let order = format!("order-{number:06}");
        let request = EnqueueRequest {
            queue: QUEUE.to_owned(),
            payload: b"three chairs".to_vec(),
            options: EnqueueOptions::default().id_override(order.as_str()),
        };
        number += 1;
        let both =
            SettlementEffects::default().enqueue(request).kv_put("orders", number.to_string());
        queue.commit_effects(both).await?;
        println!("[{name}] took {order}");
        tokio::time::sleep(ORDER_EVERY).await;
    }
}

/// Ships orders. That one is done, and by whom, is one commit.
async fn ship(queue: &Queue, name: &str, takeover: u64) -> Result<(), AnyError> {
    loop {
        let Some(claim) = queue.claim_with_wait(QUEUE, LEASE, LEASE).await? else { continue };
        tokio::time::sleep(ORDER_EVERY / 4).await;
        let done = SettlementEffects::default()
            .kv_put(format!("shipped/{}", claim.id), takeover.to_string());
        queue.ack_with(&claim, done).await?;
        println!("[{name}] shipped {}", claim.id);
    }
}

/// Fires when the standard input ends: whoever runs this wants it to close.
fn input_ends() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    std::thread::spawn(move || {
        // What is typed does not matter, nor how the input ends.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        sender.send_replace(true);
    });
    receiver
}

// ---- The story: three replicas, killed in turn.

async fn story() -> Result<(), AnyError> {
    let folder = std::env::temp_dir().join(format!("taquba-deploy-{}", std::process::id()));
    let url = format!("file://{}", folder.display());
    println!("three replicas on {url}; an owner that is silent for 1.5 s has lost the store\n");
    let (told, heard) = channel();
    let mut replicas = Vec::new();
    for name in ["ada", "bob", "cleo"] {
        replicas.push((name, start(&url, name, told.clone())?));
    }
    let mut owner = next_owner(&heard)?;
    for end in ["kill -9", "kill -9", "a clean close"] {
        let shipped = shipped(&heard, 40)?;
        println!("{owner} has shipped {shipped} more orders; now {end}");
        let began = Instant::now();
        let Some((_, child)) = replicas.iter_mut().find(|(name, _)| *name == owner) else {
            return Err(format!("{owner} is no replica").into());
        };
        if end == "kill -9" {
            child.kill()?
        } else {
            drop(child.stdin.take())
        }
        child.wait()?;
        // The deploy puts a new one in its place.
        *child = start(&url, &owner, told.clone())?;
        owner = next_owner(&heard)?;
        println!("{owner} owns the store {:.1} s later\n", began.elapsed().as_secs_f64());
    }
    shipped(&heard, 40)?;
    for (_, child) in &mut replicas {
        child.kill()?;
        child.wait()?;
    }
    count(&url).await?;
    std::fs::remove_dir_all(&folder)?;
    println!(
        "\ntry next: start three by hand as the head of this file says, and freeze an owner with kill -STOP"
    );
    Ok(())
}

fn start(url: &str, name: &str, told: Sender<String>) -> Result<Child, AnyError> {
    let mut replica = Command::new(std::env::current_exe()?);
    replica.args([url, name]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = replica.spawn()?;
    let lines = child.stdout.take().ok_or("no output")?;
    std::thread::spawn(move || {
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            // The story may be over.
            drop(told.send(line));
        }
    });
    Ok(child)
}

fn next_owner(heard: &Receiver<String>) -> Result<String, AnyError> {
    loop {
        let line = heard.recv_timeout(LEASE)?;
        if line.contains("owns the store") {
            let name = line.trim_start_matches('[').split(']').next();
            return Ok(name.unwrap_or_default().to_owned());
        }
    }
}

fn shipped(heard: &Receiver<String>, orders: usize) -> Result<usize, AnyError> {
    let mut count = 0;
    while count < orders {
        count += usize::from(heard.recv_timeout(LEASE)?.contains("shipped"));
    }
    Ok(count)
}

/// Counts what is in the bucket when all are dead.
async fn count(url: &str) -> Result<(), AnyError> {
    let (bucket, path) = taquba::open_url(url, std::env::vars())?;
    let queue = Queue::open(bucket, path.join("jobs").as_ref()).await?;
    let view = queue.view();
    let taken = view.kv_get(b"orders").await?.unwrap_or_default();
    let shipped = view.kv_scan(b"shipped/", .., 100_000).await?.entries.len();
    let waiting = view.stats(QUEUE).await?.pending;
    let taken = String::from_utf8_lossy(&taken).into_owned();
    println!(
        "all are dead; {taken} orders were taken: {shipped} are shipped, {waiting} still wait"
    );
    queue.close().await?;
    Ok(())
}
