//! An index of rows by time: due to the millisecond, no read before, each answer of a pass, and what comes in beside it.

use std::sync::Arc;
use std::time::Duration;

use taquba::SettlementEffects;
use taquba::object_store::memory::InMemory;
use taquba::{Clock, EnqueueRequest, Error, Expired, ExpiryIndex, MockClock, OpenOptions, Queue};

use crate::support::kill::{Kill, KillStore};

const KEEP: Duration = Duration::from_millis(50);

async fn open(store: Arc<KillStore>) -> Queue {
    let clock = Arc::new(MockClock::new(1_000)) as Arc<dyn Clock>;
    Queue::open_with_options(store, "store", OpenOptions::default().clock(clock)).await.unwrap()
}

fn store() -> Arc<KillStore> {
    Arc::new(KillStore::new(Arc::new(InMemory::new()), Kill::At(u64::MAX)))
}

async fn add(queue: &Queue, index: &ExpiryIndex, entries: &[(u64, &str)]) {
    let effects = entries.iter().fold(SettlementEffects::default(), |effects, (at, suffix)| {
        effects.expiry_entry(index, *at, suffix.as_bytes())
    });
    queue.commit_effects(effects).await.unwrap();
}

/// One pass that deletes; what it was asked about.
async fn pass(queue: &Queue, index: &ExpiryIndex, now: u64) -> Vec<(u64, String)> {
    let mut asked = Vec::new();
    let gone = index.pass(queue, now, KEEP, |at, suffix| {
        asked.push((at, String::from_utf8(suffix).unwrap()));
        async { Expired::Delete(SettlementEffects::default()) }
    });
    assert_eq!(gone.await.unwrap(), asked.len());
    asked
}

#[tokio::test]
async fn entries_are_due_at_their_very_millisecond_oldest_first() {
    let queue = open(store()).await;
    let index = ExpiryIndex::new("due/");
    let entries = [(300, "c"), (100, "b"), (100, "a"), (301, "d")];
    add(&queue, &index, &entries).await;
    queue.kv_put(b"due0", b"a neighbour").await.unwrap();
    assert_eq!(pass(&queue, &index, 149).await, []);
    let due = |list: &[(u64, &str)]| -> Vec<(u64, String)> {
        list.iter().map(|(at, suffix)| (*at, (*suffix).to_owned())).collect()
    };
    assert_eq!(pass(&queue, &index, 150).await, due(&[(100, "a"), (100, "b")]));
    assert_eq!(pass(&queue, &index, 350).await, due(&[(300, "c")]));
    // Another process's index knows nothing yet, and finds the rest all the same.
    assert_eq!(pass(&queue, &ExpiryIndex::new("due/"), 9_999).await, due(&[(301, "d")]));
    assert!(queue.view().kv_get(b"due0").await.unwrap().is_some());
}

#[tokio::test]
async fn a_pass_reads_nothing_while_nothing_can_be_due() {
    let bucket = store();
    let queue = open(bucket.clone()).await;
    let index = ExpiryIndex::new("due/");
    add(&queue, &index, &[(100, "a")]).await;
    assert_eq!(pass(&queue, &index, 149).await, []);
    // With the store gone, a read would fail.
    queue.close().await.unwrap();
    assert_eq!(pass(&queue, &index, 149).await, []);
    let due = index.pass(&queue, 150, KEEP, |_, _| async { Expired::Keep }).await;
    assert!(matches!(due, Err(Error::Closed(_))), "{due:?}");
}

#[tokio::test]
async fn each_answer_of_a_pass_does_what_it_says() {
    let queue = open(store()).await;
    let index = ExpiryIndex::new("due/");
    add(&queue, &index, &[(1, "keep"), (2, "delete"), (3, "right"), (4, "wrong")]).await;
    queue.kv_put(b"due/odd", b"").await.unwrap();
    queue.kv_put(b"row", b"now").await.unwrap();
    let job = || EnqueueRequest { queue: "q".to_owned(), ..EnqueueRequest::default() };
    let answer = |suffix: &[u8]| match suffix {
        b"keep" => Expired::Keep,
        b"delete" => Expired::Delete(SettlementEffects::default().enqueue(job())),
        other => Expired::DeleteIf {
            key: b"row".to_vec(),
            expected: Some(if other == b"right" { b"now".to_vec() } else { b"then".to_vec() }),
            effects: SettlementEffects::default().enqueue(job()),
        },
    };
    let pass = index.pass(&queue, 1_000, KEEP, |_, suffix| {
        let answer = answer(&suffix);
        async { answer }
    });
    // Two of them, and the row that is no entry.
    assert_eq!(pass.await.unwrap(), 3);
    let rows = queue.view().kv_scan(b"due/", .., 9).await.unwrap();
    let left: Vec<_> = rows.entries.iter().map(|(key, _)| index.parse(key).unwrap().1).collect();
    assert_eq!(left, [&b"keep"[..], b"wrong"]);
    assert_eq!(queue.view().stats("q").await.unwrap().pending, 2);
    let again = index.pass(&queue, 1_000, KEEP, |_, _| async { Expired::Keep });
    assert_eq!(again.await.unwrap(), 0, "what was kept is asked about again");
}

#[tokio::test]
async fn an_entry_that_comes_in_during_a_pass_is_found_by_the_next() {
    let queue = open(store()).await;
    let index = ExpiryIndex::new("due/");
    add(&queue, &index, &[(500, "later")]).await;
    let (late, beside) = (index.clone(), &queue);
    let pass_one = index.pass(&queue, 900, KEEP, |_, _| {
        let late = late.clone();
        async move {
            // Behind where the pass has been.
            add(beside, &late, &[(100, "early")]).await;
            Expired::Delete(SettlementEffects::default())
        }
    });
    assert_eq!(pass_one.await.unwrap(), 1);
    assert_eq!(pass(&queue, &index, 900).await, [(100, "early".to_owned())]);
}

#[tokio::test]
async fn ten_thousand_entries_go_in_a_few_batches() {
    let bucket = store();
    let queue = open(bucket.clone()).await;
    let index = ExpiryIndex::new("due/");
    for batch in 0..20_u64 {
        let effects = (0..500_u64).fold(SettlementEffects::default(), |effects, n| {
            effects.expiry_entry(&index, batch, &n.to_be_bytes())
        });
        queue.commit_effects(effects).await.unwrap();
    }
    let before = bucket.effects();
    let gone = index
        .pass(&queue, 1_000, KEEP, |_, _| async { Expired::Delete(SettlementEffects::default()) });
    assert_eq!(gone.await.unwrap(), 10_000);
    let puts = bucket.effects() - before;
    assert!(puts <= 200, "{puts} writes");
}
