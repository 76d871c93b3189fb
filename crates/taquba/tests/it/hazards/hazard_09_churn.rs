//! Hazard 9: the trail that jobs leave. High and normal priorities and retries are mixed over many churned jobs (with
//! `TAQUBA_CHURN=1000000`: over a million); what a claim must walk over stays the same, also after a crash. A job that is
//! done leaves a tombstone, so what counts is how many order numbers lie between a low-water mark and the first live
//! job behind it: each may be one. The store's own rows say it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use taquba::object_store::ObjectStore;
use taquba::{
    Clock, EnqueueOptions, EnqueueRequest, MockClock, OpenOptions, PRIORITY_HIGH, PRIORITY_LOW,
    PRIORITY_NORMAL, Queue, QueueConfig, SettlementEffects,
};

use super::{Bucket, open, within};
use crate::support::rng::Rng;

const LEASE: Duration = Duration::from_secs(1_000_000);
const LIMIT: Duration = Duration::from_secs(60);
/// How far a low-water mark may trail: its slack, and what one round adds.
const TRAIL_MAX: u64 = 3 * 1_024;
/// How far the mark of scheduled jobs may trail.
const TRAIL_MAX_MS: u64 = 20_000;
/// Jobs that come and go at a time.
const WAVE: usize = 500;

fn churned() -> usize {
    let wanted = std::env::var("TAQUBA_CHURN").ok().and_then(|n| n.parse().ok());
    wanted.unwrap_or(6_000)
}

fn options(clock: &MockClock) -> OpenOptions {
    let config = QueueConfig::default()
        .max_attempts(u32::MAX)
        .retry_backoff_base(Duration::from_secs(1))
        .retry_backoff_max(Duration::from_secs(4));
    let at_once = config.clone().retry_backoff_base(Duration::ZERO);
    OpenOptions::default()
        .default_queue_config(config)
        // Every claim is written.
        .deferred_flush_max(Duration::ZERO)
        .queue_config("at-once", at_once)
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
}

/// What the store's rows say, as docs/layout.md shows them.
#[derive(Debug)]
struct Trails {
    /// By queue and priority: order numbers between the mark and the first live row.
    ready: BTreeMap<Vec<u8>, u64>,
    /// The same between the mark and the last live row, without the live ones.
    whole: BTreeMap<Vec<u8>, u64>,
    /// Milliseconds between the mark of scheduled jobs and the first one (or now).
    scheduled: u64,
    /// The claims' rows: how many, and one past the last.
    claims: usize,
    slots_end: u32,
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

/// Opens a copy of what a crash now leaves, and measures.
async fn trails(bucket: &Bucket, now_ms: u64) -> Trails {
    let copy: Arc<dyn ObjectStore> = Arc::new(bucket.fork());
    let db = slatedb::Db::open("hazards", copy).await.unwrap();
    let mut scan = db.scan(..).await.unwrap();
    let (mut rows, mut marks) = (BTreeMap::<_, Vec<u64>>::new(), BTreeMap::new());
    let (mut scheduled, mut scheduled_mark) = (now_ms, 0);
    let (mut claimed, mut slots_end) = (BTreeSet::new(), 0);
    while let Some(row) = scan.next().await.unwrap() {
        match row.key[0] {
            b'C' => {
                // Version, flag, a number of some bytes, then the claimed job's key.
                let time = row.value[2..].iter().position(|byte| byte & 0x80 == 0).unwrap();
                claimed.insert(row.value[3 + time..].to_vec());
                slots_end = 1 + u32::from_be_bytes(row.key[1..5].try_into().unwrap());
            }
            b'P' if !claimed.contains(&row.key[..]) => {
                let (band, order) = row.key.split_at(row.key.len() - 8);
                rows.entry(band[1..].to_vec()).or_default().push(number(order));
            }
            b'S' => scheduled = scheduled.min(number(&row.key[1..9])),
            b'L' => drop(marks.insert(row.key[1..].to_vec(), number(&row.value))),
            b'M' if &row.key[..] == b"Mlow-scheduled" => scheduled_mark = number(&row.value),
            _ => {}
        }
    }
    drop(scan);
    db.close().await.unwrap();
    let (mut ready, mut whole) = (BTreeMap::new(), BTreeMap::new());
    for (band, orders) in rows {
        let (first, last) = (orders[0], orders[orders.len() - 1]);
        let mark = marks.get(&band).unwrap_or_else(|| panic!("no mark of band {band:?}"));
        assert!(*mark <= first, "a live job at {first} lies below its mark {mark}");
        ready.insert(band.clone(), first - mark);
        whole.insert(band, last + 1 - mark - orders.len() as u64);
    }
    assert!(scheduled_mark <= scheduled, "a scheduled job lies below its mark");
    Trails { ready, whole, scheduled: scheduled - scheduled_mark, claims: claimed.len(), slots_end }
}

/// Enqueues a wave of jobs over two queues and three priorities, in one commit.
async fn enqueue_wave(queue: &Queue, rng: &mut Rng) {
    let request = |rng: &mut Rng| {
        let priority = *rng.pick(&[PRIORITY_HIGH, PRIORITY_NORMAL, PRIORITY_NORMAL, PRIORITY_LOW]);
        EnqueueRequest {
            queue: (*rng.pick(&["at-once", "backoff"])).to_owned(),
            payload: vec![0; 16],
            options: EnqueueOptions::default().priority(priority),
        }
    };
    let jobs = (0..WAVE).map(|_| request(rng)).collect();
    let effects = SettlementEffects::default().enqueues(jobs);
    queue.commit_effects(effects).await.unwrap();
}

/// Claims and settles until `rest` jobs are left in each queue: most are done, some fail and come back.
async fn work_off(queue: &Queue, rng: &mut Rng, rest: i64, done: &mut usize) {
    for name in ["at-once", "backoff"] {
        let mut pending = queue.view().stats(name).await.unwrap().pending;
        while pending > rest {
            let most = usize::try_from(pending - rest).unwrap().min(100);
            let claims = queue.claim_batch(name, most, LEASE).await.unwrap();
            assert!(!claims.is_empty(), "{name} has {pending}, and nothing to claim");
            let mut settlements = Vec::new();
            for claim in &claims {
                let fails = rng.chance(15);
                settlements.push(async move {
                    match fails {
                        true => queue.nack(claim, "again").await,
                        false => queue.ack(claim).await,
                    }
                });
                *done += usize::from(!fails);
            }
            for settled in within(LIMIT, "settlements", join_all(settlements)).await {
                settled.unwrap();
            }
            pending = queue.view().stats(name).await.unwrap().pending;
        }
    }
}

#[tokio::test]
async fn hazard_09_a_churned_store_keeps_its_claims_flat_also_after_a_crash() {
    let bucket = Bucket::new();
    let clock = MockClock::new(1_000_000_000);
    let mut queue = open(&bucket, options(&clock)).await;
    let mut rng = Rng::new(9);
    // What is there from the start and stays to the end: a queue that is never worked on.
    queue.enqueue("left-alone", vec![]).await.unwrap();

    let (mut done, mut wave) = (0, 0_u64);
    let mut seen = VecDeque::new();
    while done < churned() {
        enqueue_wave(&queue, &mut rng).await;
        // Now shallow, now with a rest of many.
        let rest = if wave % 4 == 3 { 300 } else { 20 };
        work_off(&queue, &mut rng, rest, &mut done).await;
        clock.advance(Duration::from_secs(3));
        queue.promote_scheduled_now().await.unwrap();
        wave += 1;
        if done > (seen.len() + 1) * churned() / 6 {
            let held = queue.claim_batch("at-once", 10, LEASE).await.unwrap();
            // All of it is durable, so that the copy is what the process sees.
            taquba::time::sleep(Duration::from_millis(5)).await;
            queue.kv_put(b"flush", b"").await.unwrap();
            let found = trails(&bucket, clock.now_ms()).await;
            for (band, trail) in &found.ready {
                let name = String::from_utf8_lossy(band);
                assert!(*trail <= TRAIL_MAX, "{done} done: {name:?} walks over {trail} places");
            }
            let behind = found.scheduled;
            assert!(behind <= TRAIL_MAX_MS, "{done} done: the timers' mark trails {behind} ms");
            // Slots are used again: there are no more than were ever held at once.
            assert_eq!(found.claims, held.len());
            assert!(found.slots_end <= 110, "a claim in slot {}", found.slots_end - 1);
            for claim in &held {
                queue.nack(claim, "again").await.unwrap();
            }
            seen.push_back(found);
            // A crash: the next owner starts from the marks.
            if seen.len() % 2 == 0 {
                queue = open(&bucket, options(&clock)).await;
            }
        }
    }
    // A retried job keeps its place, so behind an old one lie the tombstones of all that overtook it. Without one, the
    // first refill after a crash meets next to none at all.
    let mut left = 1;
    while left > 0 {
        work_off(&queue, &mut rng, 0, &mut done).await;
        clock.advance(Duration::from_secs(10));
        queue.promote_scheduled_now().await.unwrap();
        let stats = queue.view().stats("backoff").await.unwrap();
        left = stats.scheduled + stats.pending;
    }
    enqueue_wave(&queue, &mut rng).await;
    let found = trails(&bucket, clock.now_ms()).await;
    for (band, walked) in &found.whole {
        let name = String::from_utf8_lossy(band);
        assert!(*walked <= TRAIL_MAX, "{name:?}: a refill walks over {walked} places");
    }
    assert_eq!(
        found.whole.len(),
        7,
        "two queues of three priorities, and the queue that is left alone"
    );
    assert!(seen.len() >= 5, "measured only {} times", seen.len());
}
