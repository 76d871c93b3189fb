//! A window against the plain truth: a sorted map of all live rows, with inserts, removals and claims at every point
//! of every scan.

use super::*;
use crate::lifecycle::job::{Body, Payload, State};
use crate::name::QueueName;

fn job(order: u64) -> Arc<Job> {
    Arc::new(Job {
        body: Arc::new(Body {
            id: order.to_string().into(),
            queue: QueueName::new("q").unwrap(),
            priority: 1,
            order,
            enqueued_at: 0,
            max_attempts: 1,
            headers: bytes::Bytes::new(),
            payload: Payload::Inline(bytes::Bytes::new()),
        }),
        attempts: 0,
        epoch: 1,
        last_error: None,
        dedup: None,
        cancel_requested: false,
        signal_key: None,
        woken: None,
        state: State::Pending,
    })
}

fn entry(order: u64) -> Entry {
    Entry {
        job: job(order),
        ready_round: 0,
    }
}

/// A small generator, so that a failure names its seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn a_window_gives_out_the_lowest_row_whatever_happens_during_its_scans() {
    for seed in 0..300 {
        walk(seed);
    }
}

fn walk(seed: u64) {
    let mut rng = Rng(seed);
    // The store: every live row. The window starts out knowing none of them.
    let mut rows: BTreeMap<u64, ()> = (0..rng.below(40)).map(|n| (n * 2, ())).collect();
    let mut claimed: BTreeMap<u64, ()> = BTreeMap::new();
    let mut next = 100_u64;
    let mut window = Window::unloaded(0_u64);
    // A scan in flight: the rows it has read so far, from the store as it was at each of its reads.
    let mut scan: Option<(u64, Vec<u64>)> = None;
    let cap = 320 * 6;
    for _ in 0..400 {
        match rng.below(6) {
            0 => {
                rows.insert(next, ());
                window.insert(next, entry(next), cap);
                next += 1;
            }
            1 => {
                // A job comes back to where it was.
                if let Some((&order, ())) = claimed.iter().next() {
                    claimed.remove(&order);
                    window.insert(order, entry(order), cap);
                }
            }
            2 => {
                // Someone cancels a row anywhere.
                let at = rng.below(next);
                if let Some((&order, ())) = rows.range(at..).next()
                    && !claimed.contains_key(&order)
                {
                    rows.remove(&order);
                    window.remove(order);
                }
            }
            3 => {
                if scan.is_none()
                    && let Some(from) = window.begin_scan(cap)
                {
                    scan = Some((from, Vec::new()));
                }
            }
            4 => {
                // The scan reads one more row, or reaches its end or its page's end.
                if let Some((at, mut read)) = scan.take() {
                    let found = rows.range(at..).next().map(|(order, ())| *order);
                    match found {
                        Some(order) if read.len() < 4 => {
                            read.push(order);
                            scan = Some((order + 1, read));
                        }
                        _ => {
                            let end = found.map(|_| at);
                            let page = read
                                .into_iter()
                                .map(|order| (order, entry(order)))
                                .collect();
                            window.merge(page, end, |order| !claimed.contains_key(&order));
                        }
                    }
                }
            }
            _ => {
                let first = rows
                    .keys()
                    .find(|order| !claimed.contains_key(order))
                    .copied();
                match window.first_ready(0).map(|job| job.body.order) {
                    Some(order) => {
                        assert_eq!(Some(order), first, "seed {seed}: handed out of order");
                        claimed.insert(order, ());
                        window.remove(order);
                    }
                    None if !window.awaits_store() => {
                        assert_eq!(None, first, "seed {seed}: concluded empty");
                    }
                    None => {}
                }
            }
        }
        let low = rows
            .keys()
            .find(|order| !claimed.contains_key(order))
            .copied();
        assert!(
            low.is_none_or(|low| window.low().is_some_and(|l| l <= low)),
            "seed {seed}: the low end {:?} is past the live row {low:?}",
            window.low()
        );
    }
}
