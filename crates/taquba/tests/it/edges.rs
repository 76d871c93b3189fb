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
        (String::new(), "file:///absolute/folder"),
        ("/tmp/w".to_owned(), "file:///absolute/folder"),
        ("ftp://x/y".to_owned(), "known are file, memory, s3"),
        ("s3://bucket/x".to_owned(), "feature `aws`"),
        ("file:///".to_owned(), "root of the disk"),
        ("file://host/x".to_owned(), "another machine"),
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

#[tokio::test]
async fn rows_can_be_read_from_the_end() {
    let queue = Queue::open(Arc::new(InMemory::new()), "store").await.unwrap();
    for key in ["a/1", "a/2", "a/3", "a/4", "b/1"] {
        queue.kv_put(key.as_bytes(), b"v").await.unwrap();
    }
    let view = queue.view();
    let text = |page: &taquba::KvPage| -> Vec<String> {
        let keys = page.entries.iter().map(|(key, _)| key.clone());
        keys.map(|key| String::from_utf8(key).unwrap()).collect()
    };
    let page = view.kv_scan_back(b"a/", .., 3).await.unwrap();
    assert_eq!((text(&page), page.more), (vec!["a/4".into(), "a/3".into(), "a/2".into()], true));
    let page = view.kv_scan_back(b"a/", ..b"a/2", 3).await.unwrap();
    assert_eq!((text(&page), page.more), (vec!["a/1".to_owned()], false));
    let none = view.kv_scan_back(b"a/", b"a/3".as_slice()..b"a/1".as_slice(), 3).await.unwrap();
    assert_eq!(none, taquba::KvPage::default());
}

/// Tables of level 0 pile up where this process is told not to compact, and only there.
#[tokio::test]
async fn who_is_told_not_to_compact_does_not() {
    for compacts in [true, false] {
        let bytes = Arc::new(InMemory::new());
        let knobs = taquba::Knobs { memtable_bytes: Some(1_000), ..taquba::Knobs::default() };
        let options = taquba::OpenOptions { knobs, ..taquba::OpenOptions::default() }
            .in_process_compactor(compacts);
        let queue = Queue::open_with_options(bytes.clone(), "store", options).await.unwrap();
        let tables = async || {
            let admin = slatedb::admin::Admin::builder("store", bytes.clone()).build();
            admin.read_manifest(None).await.unwrap().unwrap().l0().len()
        };
        let (mut most, mut calm) = (0, false);
        for n in 0..2_000 {
            if n < 60 {
                queue.enqueue("q", vec![b'p'; 500]).await.unwrap();
            }
            let now = tables().await;
            most = most.max(now);
            calm = n >= 60 && now <= 1;
            if calm || (!compacts && most >= 20) {
                break;
            }
            taquba::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(calm, compacts, "{most} tables at most");
        assert!(compacts || most >= 20, "{most} tables");
    }
}
