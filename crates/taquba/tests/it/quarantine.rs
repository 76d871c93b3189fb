//! One record that cannot be decoded harms itself alone: it is put aside with its bytes and the reason, the rest goes on,
//! and it can be taken back or away. Damaged marks and counters do not keep a store from opening.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::object_store::memory::InMemory;
use taquba::{Clock, EnqueueOptions, Error, JobStatus, MockClock, OpenOptions, Queue, QueueConfig};

use crate::support::real::list;
use crate::support::within;

const PATH: &str = "store";
const LEASE: Duration = Duration::from_secs(60);

async fn open(bytes: &Arc<InMemory>, clock: &MockClock) -> Queue {
    let config = QueueConfig::default().keep_done_jobs(LEASE);
    let options = OpenOptions::default()
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
        .default_queue_config(config);
    within("open", Queue::open_with_options(bytes.clone(), PATH, options)).await.unwrap()
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Changes rows of a store at rest behind the library's back.
async fn tamper(bytes: &Arc<InMemory>, change: impl Fn(&[u8], &[u8]) -> Option<Vec<u8>>) -> Rows {
    let settings = slatedb::Settings {
        compactor_options: None,
        garbage_collector_options: None,
        ..slatedb::Settings::default()
    };
    let db = slatedb::Db::builder(PATH, bytes.clone()).with_settings(settings);
    let db = db.build().await.unwrap();
    let mut scan = db.scan(..).await.unwrap();
    let mut changed = Vec::new();
    while let Some(row) = scan.next().await.unwrap() {
        if let Some(value) = change(&row.key, &row.value) {
            changed.push((row.key.to_vec(), value));
        }
    }
    drop(scan);
    for (key, value) in &changed {
        db.put(key, value).await.unwrap();
    }
    db.close().await.unwrap();
    changed
}

/// The record as a later version would write it: nothing that this one knows.
fn of_a_later_version(value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    value[0] = 9;
    value
}

fn holds(value: &[u8], needle: &[u8]) -> bool {
    value.windows(needle.len()).any(|part| part == needle)
}

#[tokio::test]
async fn a_bad_record_in_each_state_is_put_aside_and_the_rest_goes_on() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    let id = |id: &str| EnqueueOptions::default().id_override(id);
    for kind in ["bad", "good"] {
        let dead = queue.enqueue_with("dead", vec![1], id(&format!("{kind}-dead")));
        dead.await.unwrap();
        let claim = queue.claim_next("dead").await.unwrap().unwrap();
        queue.dead_letter(&claim, "no").await.unwrap();
        queue.enqueue_with("done", vec![1], id(&format!("{kind}-done"))).await.unwrap();
        let claim = queue.claim_next("done").await.unwrap().unwrap();
        queue.ack(&claim).await.unwrap();
        let options = id(&format!("{kind}-claimed")).priority(1);
        queue.enqueue_with("q", vec![1], options).await.unwrap();
        queue.claim("q", LEASE).await.unwrap().unwrap();
        let options = id(&format!("{kind}-pending")).dedup_key(format!("{kind}-key"));
        queue.enqueue_with("q", vec![2; 600], options).await.unwrap();
        let at = UNIX_EPOCH + Duration::from_secs(5);
        let options = id(&format!("{kind}-scheduled")).run_at(Some(at)).signal_key(kind);
        queue.enqueue_with("later", vec![3], options).await.unwrap();
    }
    queue.close().await.unwrap();
    let bad = tamper(&bytes, |key, value| {
        (b"PSDX".contains(&key[0]) && holds(value, b"bad-")).then(|| of_a_later_version(value))
    });
    assert_eq!(bad.await.len(), 5);

    let queue = open(&bytes, &clock).await;
    let claims = within("the good ones", queue.claim_batch("q", 9, LEASE)).await.unwrap();
    let ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
    assert_eq!(ids, ["good-claimed", "good-pending"]);
    assert_eq!(claims[1].payload, vec![2; 600]);
    for claim in &claims {
        queue.ack(claim).await.unwrap();
    }
    clock.advance(Duration::from_secs(61));
    within("the time", queue.reap_now()).await.unwrap();
    let claim = queue.claim_next("later").await.unwrap().unwrap();
    assert_eq!(claim.id, "good-scheduled");
    assert_eq!(
        list(&queue, "done", JobStatus::Done, 9).await.len(),
        0,
        "the good one went in time"
    );
    // Of dead jobs nothing is looked at until their time is over, or somebody lists them.
    let listed = list(&queue, "dead", JobStatus::Dead, 9).await;
    assert_eq!(listed.len(), 1);

    let page = queue.view().quarantine(None, 3).await.unwrap();
    let rest = queue.view().quarantine(page.next_cursor.as_deref(), 9).await.unwrap();
    assert_eq!((page.rows.len(), rest.next_cursor), (3, None));
    let all = [page.rows, rest.rows].concat();
    let known: Vec<_> = all.iter().map(|row| (row.id.as_deref(), row.queue.as_deref())).collect();
    assert_eq!(
        known,
        [
            (Some("bad-done"), Some("done")),
            (Some("bad-claimed"), Some("q")),
            (Some("bad-pending"), Some("q")),
            (Some("bad-scheduled"), Some("later")),
        ]
    );
    assert!(all.iter().all(|row| row.reason.contains("version") && row.value[0] == 9));
    for (name, waiting) in [("q", 0), ("later", 0)] {
        let stats = queue.view().stats(name).await.unwrap();
        assert_eq!((stats.pending, stats.scheduled), (waiting, 0), "{name}");
    }
    // Nothing that it held is held for ever.
    let again = EnqueueOptions::default().dedup_key("bad-key");
    let new = queue.enqueue_with("q", vec![4], again).await.unwrap();
    assert!(!new.starts_with("bad"), "{new}");
    let at = UNIX_EPOCH + Duration::from_secs(500);
    let waits = EnqueueOptions::default().run_at(Some(at)).signal_key("bad");
    queue.enqueue_with("later", vec![4], waits).await.unwrap();
}

#[tokio::test]
async fn what_was_put_aside_can_be_taken_back_once_it_can_be_decoded_or_away() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    for id in ["one", "two", "three"] {
        let options = EnqueueOptions::default().id_override(id);
        queue.enqueue_with("q", vec![7; 600], options).await.unwrap();
    }
    queue.close().await.unwrap();
    tamper(&bytes, |key, value| (key[0] == b'P').then(|| of_a_later_version(value))).await;

    let queue = open(&bytes, &clock).await;
    assert!(within("nothing", queue.claim_next("q")).await.unwrap().is_none());
    let rows = queue.view().quarantine(None, 9).await.unwrap().rows;
    assert_eq!(rows.len(), 3);
    let still = queue.requeue_quarantined(&rows[0].key).await.unwrap_err();
    assert!(matches!(still, Error::Deserialization(_)), "{still}");
    assert!(queue.discard_quarantined(&rows[2].key).await.unwrap());
    assert!(!queue.discard_quarantined(&rows[2].key).await.unwrap());
    // Somebody else has taken the second one's id meanwhile.
    let options = EnqueueOptions::default().id_override("two");
    queue.enqueue_with("other", b"new".to_vec(), options).await.unwrap();
    queue.close().await.unwrap();

    // "After the upgrade" this version can decode them.
    let repaired = tamper(&bytes, |key, value| {
        let at = value.windows(9).position(|part| part[0] == 9 && part[1] == 0)?;
        (key[0] == b'V').then(|| {
            let mut value = value.to_vec();
            value[at] = 1;
            value
        })
    });
    assert_eq!(repaired.await.len(), 2);
    let queue = open(&bytes, &clock).await;
    queue.requeue_quarantined(&rows[0].key).await.unwrap();
    let gone = queue.requeue_quarantined(&rows[0].key).await.unwrap_err();
    assert!(matches!(gone, Error::JobNotFound(_)), "{gone}");
    let taken = queue.requeue_quarantined(&rows[1].key).await.unwrap_err();
    assert!(matches!(taken, Error::DuplicateJobId { .. }), "{taken}");
    let claim = within("it is back", queue.claim_next("q")).await.unwrap().unwrap();
    assert_eq!((claim.id.as_str(), claim.payload.len()), ("one", 600));
    queue.ack(&claim).await.unwrap();
    let stats = queue.view().stats("q").await.unwrap();
    assert_eq!((stats.pending, stats.claimed, stats.done), (0, 0, 1));
    assert_eq!(queue.view().quarantine(None, 9).await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn damaged_marks_and_counters_cost_a_scan_and_no_job() {
    let (bytes, clock) = (Arc::new(InMemory::new()), MockClock::new(1_000));
    let queue = open(&bytes, &clock).await;
    let at = UNIX_EPOCH + Duration::from_secs(5);
    for n in 0..5 {
        queue.enqueue("q", vec![n]).await.unwrap();
        queue.enqueue("other", vec![n]).await.unwrap();
        let later = EnqueueOptions::default().run_at(Some(at));
        queue.enqueue_with("q", vec![n], later).await.unwrap();
    }
    let claims = queue.claim_batch("q", 2, LEASE).await.unwrap();
    queue.dead_letter(&claims[0], "no").await.unwrap();
    queue.close().await.unwrap();
    let damaged = tamper(&bytes, |key, value| {
        (b"LNR".contains(&key[0]) || key == b"Mlow-scheduled").then(|| value[1..].to_vec())
    });
    assert!(damaged.await.len() >= 5);

    let queue = open(&bytes, &clock).await;
    let stats = queue.view().stats("q").await.unwrap();
    assert_eq!((stats.pending, stats.scheduled, stats.dead), (4, 5, 1), "{stats:?}");
    clock.advance(Duration::from_secs(5));
    queue.reap_now().await.unwrap();
    let claims = within("all of them", queue.claim_batch("q", 99, LEASE)).await.unwrap();
    assert_eq!(claims.len(), 9);
    assert_eq!(queue.claim_batch("other", 99, LEASE).await.unwrap().len(), 5);
}
