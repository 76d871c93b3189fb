//! Small promises at the edges: what a wake keeps, what a refused settlement leads to.

use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::memory::InMemory;
use taquba::{
    EnqueueOptions, JobRecord, LeaseHandle, OpenOptions, Queue, QueueConfig, SettlementEffects,
    WakeOutcome, Worker, WorkerError, run_worker,
};

async fn open(config: QueueConfig) -> Queue {
    let options = OpenOptions::default().default_queue_config(config);
    Queue::open_with_options(Arc::new(InMemory::new()), "edges", options).await.unwrap()
}

#[tokio::test]
async fn a_wake_that_carries_nothing_keeps_what_a_signal_brought() {
    let queue = open(QueueConfig::default()).await;
    let hour = std::time::UNIX_EPOCH + Duration::from_secs(1 << 40);
    let waits = EnqueueOptions::default().run_at(hour).signal_key("s");
    let id = queue.enqueue_with("q", Vec::new(), waits).await.unwrap();
    queue.send_signal("q", "s", b"yes".to_vec()).await.unwrap();
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    queue.nack(&claim, "not now").await.unwrap();
    assert_eq!(queue.wake_scheduled(&id, None).await.unwrap(), WakeOutcome::Woken);
    let claim = queue.claim_next("q").await.unwrap().unwrap();
    assert_eq!(claim.wake_payload.as_deref(), Some(&b"yes"[..]));
    queue.close().await.unwrap();
}

/// Wants to commit what no store takes.
struct Greedy;

impl Worker for Greedy {
    async fn process_with_effects(
        &self,
        _job: &JobRecord,
        _lease: &LeaseHandle,
    ) -> Result<SettlementEffects, WorkerError> {
        Ok(SettlementEffects::default().kv_put("k", vec![0; taquba::MAX_KV_VALUE_SIZE + 1]))
    }
}

#[tokio::test]
async fn a_refused_settlement_is_a_failed_attempt_and_its_death_is_told() {
    let queue = open(QueueConfig::default().max_attempts(1_u32)).await;
    let mut deaths = queue.engine_deaths("q");
    let id = queue.enqueue("q", Vec::new()).await.unwrap();
    let told = async { assert_eq!(deaths.recv().await.as_deref(), Some(id.as_str())) };
    run_worker(&queue, "q", &Greedy, Duration::ZERO, told).await.unwrap();
    let dead = queue.view().get_job(&id).await.unwrap().unwrap();
    assert!(dead.last_error.unwrap().starts_with("settlement refused: KV value"));
    queue.close().await.unwrap();
}

#[test]
fn a_wrong_store_url_is_refused_for_good_and_says_what_would_be_right() {
    let file = std::env::current_exe().unwrap();
    let cases = [
        (String::new(), "file:///absolute/path"),
        ("/tmp/w".to_owned(), "file:///tmp/w"),
        ("ftp://x/y".to_owned(), "known are file, memory, s3"),
        ("s3:///x".to_owned(), "a bucket is missing"),
        ("file:///".to_owned(), "root of the disk"),
        ("file://host/x".to_owned(), "three slashes"),
        (format!("file://{}", file.display()), "is a file"),
    ];
    for (url, says) in cases {
        let error = taquba::open_url(&url, std::iter::empty::<(String, String)>()).unwrap_err();
        assert!(error.is_permanent(), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn zero_attempts_are_refused() {
    let queue = open(QueueConfig::default()).await;
    let none = EnqueueOptions::default().max_attempts(0_u32);
    let refused = queue.enqueue_with("q", Vec::new(), none).await.unwrap_err();
    assert!(refused.to_string().contains("must be at least 1"), "{refused}");
}
