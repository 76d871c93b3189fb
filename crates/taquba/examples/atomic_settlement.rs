//! What commits together with a job's end: further jobs and rows of your own, all or nothing, also through a crash.
//!
//! ```text
//! cargo run -p taquba --example atomic_settlement
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use taquba::object_store::ObjectStore;
use taquba::object_store::memory::InMemory;
use taquba::{Claim, EnqueueOptions, EnqueueRequest, Queue, SettlementEffects};

type AnyError = Box<dyn Error + Send + Sync>;

const ORDERS: &str = "orders";
const MAIL: &str = "mail";

#[tokio::main]
async fn main() -> ExitCode {
    match story().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atomic_settlement: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn story() -> Result<(), AnyError> {
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let queue = Queue::open(bucket.clone(), "shop").await?;
    queue.kv_put(b"stock/chairs", b"10").await?;
    queue.enqueue(ORDERS, b"3".to_vec()).await?;

    println!("the process dies in the middle of an order:");
    if let Some(claim) = queue.claim_next(ORDERS).await? {
        let _never_sent = effects(&queue, &claim).await?;
    }
    let over = queue.closed();
    // Dropped without a close: to the store this is a crash.
    drop(queue);
    over.await;
    let queue = Queue::open(bucket, "shop").await?;
    show(&queue).await?;

    println!("the next process takes the order up and finishes it:");
    if let Some(claim) = queue.claim_next(ORDERS).await? {
        // One commit: the order is done, the stock is less, the mail is there.
        queue.ack_with(&claim, effects(&queue, &claim).await?).await?;
    }
    show(&queue).await?;

    println!("without a job, too: two clerks write down the last delivery, by what they saw");
    let delivery = |count: &str| SettlementEffects::default().kv_put("stock/chairs", count);
    for (clerk, count) in [("ada", "17"), ("grace", "12")] {
        // Both saw 7. A comparison and its effects are one commit, so only one of them can be right.
        let written = queue.kv_compare_commit(b"stock/chairs", Some(b"7"), delivery(count)).await?;
        let what = if written.is_some() { "written" } else { "refused: the stock has changed" };
        println!("  {clerk} writes {count}: {what}");
    }
    show(&queue).await?;
    queue.close().await?;
    println!("\ntry next: examples/scheduled.rs, and examples/remote_reply.rs of taquba-workflow");
    Ok(())
}

/// What an order changes besides its own job.
async fn effects(queue: &Queue, order: &Claim) -> Result<SettlementEffects, AnyError> {
    let wanted: u32 = std::str::from_utf8(&order.payload)?.parse()?;
    let mail = EnqueueRequest {
        queue: MAIL.to_owned(),
        payload: format!("{wanted} chairs are on their way").into_bytes(),
        options: EnqueueOptions::default(),
    };
    let left = stock(queue).await?.checked_sub(wanted).ok_or("not so many in stock")?;
    Ok(SettlementEffects::default().enqueue(mail).kv_put("stock/chairs", left.to_string()))
}

async fn stock(queue: &Queue) -> Result<u32, AnyError> {
    let row = queue.view().kv_get(b"stock/chairs").await?.unwrap_or_default();
    Ok(std::str::from_utf8(&row)?.parse()?)
}

async fn show(queue: &Queue) -> Result<(), AnyError> {
    let (orders, mail) = (queue.view().stats(ORDERS).await?, queue.view().stats(MAIL).await?);
    println!(
        "  orders waiting {}, done {}; mails waiting {}; chairs in stock {}",
        orders.pending,
        orders.done,
        mail.pending,
        stock(queue).await?,
    );
    Ok(())
}
