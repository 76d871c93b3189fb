//! A second process gives the owner of a store work to do, through plain objects and with no claim on the store.
//!
//! ```text
//! cargo run -p taquba --example inbox
//! ```
//!
//! opens a store in a folder, and starts a sender as a process of its own that knows the inbox's folder and nothing else.
//! To send to a store of yours (its owner must take entries for the queue):
//!
//! ```text
//! cargo run -p taquba --example inbox -- send s3://bucket/path/to/store-inbox mail
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "an application has real time; only the library must not sleep by itself"
)]

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use taquba::{
    CancelEntry, EnqueueEntry, EnqueueOptions, InboxOptions, InboxSender, OpenOptions, Queue,
    SignalEntry, default_inbox_path,
};

type AnyError = Box<dyn Error + Send + Sync>;

const QUEUE: &str = "mail";
/// What the sender sends, by the ids that it gives to its entries.
const SENT: [&str; 6] = ["order-7", "order-8", "waits", "doomed", "never-mind", "approved"];

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => story().await,
        [role, url, queue] if role == "send" => send(url, queue).await,
        _ => Err("usage: inbox [send URL QUEUE]".into()),
    }
}

/// The other process. It needs the right to put objects under the inbox's path.
async fn send(url: &str, queue: &str) -> Result<(), AnyError> {
    let (bucket, path) = taquba::open_url(url, std::env::vars())?;
    let sender = InboxSender::new(bucket, path.as_ref());
    let say = |what: &str| println!("  sender {}: {what}", std::process::id());

    say("order-7, twice, as after a lost answer");
    for _ in 0..2 {
        let order = EnqueueEntry::new("order 7 has shipped");
        sender.send_with_id(queue, "order-7", order).await?;
    }
    say("order-8, ahead of others");
    let ahead = EnqueueOptions::default().priority(taquba::PRIORITY_HIGH);
    let order = EnqueueEntry::new("order 8 is lost").options(ahead);
    sender.send_with_id(queue, "order-8", order).await?;

    say("a job that waits for a signal, and one for tomorrow that is cancelled at once");
    let tomorrow = || SystemTime::now() + Duration::from_secs(24 * 3_600);
    let waits = EnqueueOptions::default().run_at(tomorrow()).signal_key("approval");
    let refund = EnqueueEntry::new("refund for order 8").options(waits);
    sender.send_with_id(queue, "waits", refund).await?;
    let later = EnqueueOptions::default().run_at(tomorrow()).id_override("newsletter");
    let newsletter = EnqueueEntry::new("our newsletter").options(later);
    sender.send_with_id(queue, "doomed", newsletter).await?;
    sender.send_with_id(queue, "never-mind", CancelEntry::new("newsletter")).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;

    say("the signal");
    sender.send_with_id(queue, "approved", SignalEntry::new("approval", "by Ann")).await?;
    Ok(())
}

/// The owner: works, and looks into its inbox.
async fn story() -> Result<(), AnyError> {
    let folder = std::env::temp_dir().join(format!("taquba-inbox-{}", std::process::id()));
    let url = |name: &str| format!("file://{}/{name}", folder.display());
    let (bucket, path) = taquba::open_url(&url(""), std::env::vars())?;
    let store = path.join("store");
    let inbox = InboxOptions::new([QUEUE]).touch_poll_interval(Duration::from_millis(200));
    let options = OpenOptions::default().inbox(inbox);
    let queue = Queue::open_with_options(bucket, store.as_ref(), options).await?;
    let at = url(&default_inbox_path(store.as_ref()));
    println!("the owner {} works on {}; its inbox is {at}", std::process::id(), url("store"));

    let mut sender = Command::new(std::env::current_exe()?);
    let mut sender = sender.args(["send", &at, QUEUE]).stdin(Stdio::null()).spawn()?;
    let mut sent = 0;
    while sent < 3 {
        let wait = Duration::from_secs(5);
        let claim = queue.claim_with_wait(QUEUE, Duration::from_secs(30), wait).await?;
        let Some(claim) = claim else { return Err("nothing came within five seconds".into()) };
        let text = String::from_utf8_lossy(&claim.payload);
        match &claim.wake_payload {
            Some(by) => println!("  owner: {text}, approved {}", String::from_utf8_lossy(by)),
            None => println!("  owner: {text}"),
        }
        queue.ack(&claim).await?;
        sent += 1;
    }
    if !sender.wait()?.success() {
        return Err("the sender failed".into());
    }

    println!("what became of each entry, as the store remembers it for a week:");
    for id in SENT {
        let record = queue.view().inbox_record(QUEUE, id).await?.ok_or("nothing is remembered")?;
        println!("  {id:<10} {:?}", record.outcome);
    }
    queue.close().await?;
    std::fs::remove_dir_all(&folder)?;
    println!(
        "try next: this example with `-- send URL-OF-AN-INBOX QUEUE` on a store of yours whose"
    );
    println!("owner is stopped: what was sent is applied when it opens again, before it works;");
    println!("and examples/read_live_store.rs, where a second process only reads");
    Ok(())
}
