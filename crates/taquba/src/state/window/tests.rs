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
            rules: Default::default(),
        }),
        attempts: 0,
        epoch: 1,
        last_error: None,
        dedup: None,
        cancel_requested: false,
        signal_key: None,
        woken: None,
        result: None,
        history: 0,
        state: State::Pending,
    })
}

fn entry(order: u64) -> Entry {
    Entry { job: job(order), ready_round: 0 }
}

/// A small generator, so that a failure names its seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn a_window_gives_out_the_lowest_row_whatever_happens_during_its_scans() {
    for seed in 0..300 {
        let mut walk = Walk::new(seed);
        for _ in 0..400 {
            walk.step();
        }
    }
}

/// Room for a handful of entries.
const CAP: usize = 320 * 6;

struct Walk {
    seed: u64,
    rng: Rng,
    /// The store: every live row, claimed ones too.
    rows: BTreeMap<u64, ()>,
    claimed: BTreeMap<u64, ()>,
    next: u64,
    window: Window<u64>,
    /// A scan in flight: where it is, and the rows it has read so far, each from the store as it was then.
    scan: Option<(u64, Vec<u64>)>,
}

impl Walk {
    /// The window starts out knowing none of the rows.
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let rows = (0..rng.below(40)).map(|n| (n * 2, ())).collect();
        Self {
            seed,
            rng,
            rows,
            claimed: BTreeMap::new(),
            next: 100,
            window: Window::unloaded(0),
            scan: None,
        }
    }

    fn step(&mut self) {
        match self.rng.below(6) {
            0 => {
                self.rows.insert(self.next, ());
                self.window.insert(self.next, entry(self.next), CAP);
                self.next += 1;
            }
            1 => {
                // A job comes back to where it was.
                if let Some((order, ())) = self.claimed.pop_first() {
                    self.window.insert(order, entry(order), CAP);
                }
            }
            2 => self.cancel_anywhere(),
            3 => {
                if self.scan.is_none()
                    && let Some(from) = self.window.begin_scan(CAP)
                {
                    self.scan = Some((from, Vec::new()));
                }
            }
            4 => self.read_on(),
            _ => self.hand_out(),
        }
        let (seed, low) = (self.seed, self.window.low());
        if let Some(first) = self.first_pending() {
            assert!(
                low.is_some_and(|low| low <= first),
                "seed {seed}: {low:?} is past row {first}"
            );
        }
    }

    fn first_pending(&self) -> Option<u64> {
        self.rows.keys().find(|order| !self.claimed.contains_key(order)).copied()
    }

    fn cancel_anywhere(&mut self) {
        let at = self.rng.below(self.next);
        if let Some((&order, ())) = self.rows.range(at..).next()
            && !self.claimed.contains_key(&order)
        {
            self.rows.remove(&order);
            self.window.remove(order);
        }
    }

    /// The scan reads one more row, or reaches its end or its page's end.
    fn read_on(&mut self) {
        let Some((at, mut read)) = self.scan.take() else { return };
        let found = self.rows.range(at..).next().map(|(order, ())| *order);
        match found {
            Some(order) if read.len() < 4 => {
                read.push(order);
                self.scan = Some((order + 1, read));
            }
            _ => {
                let page = read.into_iter().map(|order| (order, entry(order))).collect();
                let claimed = &self.claimed;
                self.window.merge(page, found.map(|_| at), |order| !claimed.contains_key(&order));
            }
        }
    }

    fn hand_out(&mut self) {
        let (seed, first) = (self.seed, self.first_pending());
        match self.window.first_ready(0).map(|job| job.body.order) {
            Some(order) => {
                assert_eq!(Some(order), first, "seed {seed}: handed out of order");
                self.claimed.insert(order, ());
                self.window.remove(order);
            }
            None if self.window.is_complete() => {
                assert_eq!(None, first, "seed {seed}: concluded empty");
            }
            None => {}
        }
    }
}
