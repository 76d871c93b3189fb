//! Random commands to the real queue and to a naive one, everything that the two show compared after each. Between
//! commands the process crashes, closes, or loses its store to another opener.

use std::collections::BTreeSet;
use std::sync::Arc;

use taquba::object_store::memory::InMemory;
use taquba::{CloseReason, Error, JobStatus, Knobs, Queue};

use crate::support::gen_ops::{Commands, QUEUES, naive};
use crate::support::naive::Naive;
use crate::support::op::{Answer, Op};
use crate::support::real::{PATH, Real, options};
use crate::support::rng::{Rng, seeds};
use crate::support::{audit::audit, within};

/// How the process ends between two commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Crash,
    Close,
    Takeover,
}

#[tokio::test]
async fn the_queue_does_what_a_naive_one_does_command_by_command() {
    for seed in seeds(8) {
        run(seed, 200, 1_500, Some(1_000), Knobs::default()).await;
    }
}

/// Windows so small that they are trimmed and refilled all the time.
#[tokio::test]
async fn the_queue_does_what_a_naive_one_does_through_small_windows() {
    for seed in seeds(8) {
        let mut rng = Rng::new(seed);
        let knobs = Knobs {
            page_jobs: Some(1 + rng.index(6)),
            band_bytes: Some(500 + rng.index(3_000)),
            timer_bytes: Some(500 + rng.index(3_000)),
            memtable_bytes: rng.chance(50).then(|| 1_000 + rng.index(20_000)),
            refill_yields: rng.index(20),
            ..Knobs::default()
        };
        run(1_000 + seed, 200, 1_500, Some(1_000), knobs).await;
    }
}

/// The same commands with every payload in an object of its own, sweeps of orphans in between.
#[tokio::test]
async fn the_queue_does_what_a_naive_one_does_with_payloads_in_objects() {
    for seed in seeds(4) {
        run(3_000 + seed, 200, 1_500, Some(0), Knobs::default()).await;
    }
}

/// Payloads so large that real windows are trimmed and pages end by their bytes.
#[tokio::test]
async fn the_queue_does_what_a_naive_one_does_with_large_payloads() {
    for seed in seeds(3) {
        run(2_000 + seed, 120, 900_000, None, Knobs::default()).await;
    }
}

async fn run(
    seed: u64,
    commands: u64,
    payload_max: u64,
    offload_above: Option<usize>,
    knobs: Knobs,
) {
    let mut world = World::new(seed, payload_max);
    world.real.knobs = knobs;
    world.real.heartbeat = world.rng.chance(50).then(|| std::time::Duration::from_millis(20));
    world.naive.offload_above = offload_above;
    let on_failure = SayOnPanic(seed, world.trace.clone());
    world.real.open(&world.naive).await.unwrap();
    for _ in 0..commands {
        world.step().await;
    }
    world.drain().await;
    world.sweep().await;
    world.end(End::Close).await;
    let orphans = audit(&world.store, PATH, Some(true)).await;
    assert_eq!(orphans, BTreeSet::new(), "after a sweep");
    drop(on_failure);
}

/// Debug text with byte strings as text, and not more of it than one can read.
fn brief(what: &impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for (index, part) in format!("{what:?}").split('[').enumerate() {
        let (bytes, rest) = part.split_once(']').unwrap_or(("", part));
        let numbers: Option<Vec<u8>> = bytes.split(", ").map(|n| n.parse().ok()).collect();
        match numbers {
            Some(bytes) => {
                let head = String::from_utf8_lossy(&bytes[..bytes.len().min(9)]).into_owned();
                text.push_str(&format!("{head:?}({})", bytes.len()));
                text.push_str(rest);
            }
            None => {
                text.push_str(if index > 0 { "[" } else { "" });
                text.push_str(part);
            }
        }
    }
    text.truncate(1_500);
    text
}

/// The commands of a run, shared with whoever reports its failure.
type Trace = Arc<std::sync::Mutex<Vec<String>>>;

/// Says which seed failed, and its last commands.
struct SayOnPanic(u64, Trace);

impl Drop for SayOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let trace = self.1.lock().unwrap();
            let from = trace.len().saturating_sub(30);
            eprintln!("seed {} failed at command {}; the last ones:", self.0, trace.len());
            trace[from..].iter().for_each(|line| eprintln!("  {line}"));
        }
    }
}

struct World {
    rng: Rng,
    store: Arc<InMemory>,
    real: Real,
    naive: Naive,
    commands: Commands,
    last_id: String,
    trace: Trace,
}

impl World {
    fn new(seed: u64, payload_max: u64) -> Self {
        let mut rng = Rng::new(seed);
        let store = Arc::new(InMemory::new());
        let naive = naive(1_000_000);
        Self {
            commands: Commands::new(Rng::new(rng.next()), payload_max),
            real: Real::new(store.clone(), naive.now),
            rng,
            store,
            naive,
            last_id: String::new(),
            trace: Trace::default(),
        }
    }

    fn note(&self, what: &impl std::fmt::Debug) {
        self.trace.lock().unwrap().push(brief(what));
    }

    async fn step(&mut self) {
        match self.rng.below(100) {
            0..3 => self.end_and_reopen(End::Crash).await,
            3..5 => self.end_and_reopen(End::Close).await,
            5..6 => self.end_and_reopen(End::Takeover).await,
            6..8 => self.sweep().await,
            _ => {
                let op = self.commands.next(&self.naive);
                self.note(&op);
                self.both(&op).await;
            }
        }
        self.compare().await;
    }

    async fn sweep(&mut self) {
        self.note(&"sweep");
        let swept = within("a sweep", self.real.queue().sweep_orphans_now()).await.unwrap();
        assert_eq!((swept.failed, swept.foreign, swept.open), (0, 0, 0), "{swept:?}");
    }

    async fn both(&mut self, op: &Op) {
        let answer = self.real.apply(op).await.unwrap_or_else(|error| panic!("{op:?}: {error}"));
        let ids = answer.new_ids();
        self.commands.ids.extend(ids.iter().cloned());
        let drawn = match op {
            Op::Enqueue(request) => request.options.id_override.is_none(),
            Op::Batch(..) => true,
            _ => false,
        };
        // Ids rise, whatever the clock does and however often the store is opened.
        for id in ids.iter().filter(|_| drawn) {
            assert!(*id > self.last_id, "{id} comes after {}", self.last_id);
            self.last_id.clone_from(id);
        }
        let op = match (op, &answer) {
            // A batch ends early where a window does, but not empty.
            (Op::Claim { queue, lease_ms, .. }, Answer::Claims(claims))
                if self.real.knobs != Knobs::default() && !claims.is_empty() =>
            {
                &Op::Claim { queue: queue.clone(), max: claims.len(), lease_ms: *lease_ms }
            }
            (op, _) => op,
        };
        let expected = self.naive.apply(op, ids);
        if answer != expected {
            panic!("the answer:\n shown    {}\n expected {}", brief(&answer), brief(&expected));
        }
    }

    async fn compare(&mut self) {
        let known: BTreeSet<String> = self.known();
        let known: Vec<String> = known.into_iter().collect();
        self.real.compare(&self.naive, &known, &mut self.rng).await;
    }

    /// Some of the ids that there ever were, the latest above all.
    fn known(&mut self) -> BTreeSet<String> {
        let ids = &self.commands.ids;
        let latest = ids.iter().rev().take(4).cloned();
        let some = (0..12).map(|_| self.rng.pick(ids).clone());
        latest.chain(some).collect()
    }

    /// The process ends, however, and the store is rested.
    async fn end(&mut self, end: End) {
        match end {
            End::Close => {
                let queue = self.real.queue.take().unwrap();
                within("close", queue.close()).await.unwrap();
                self.naive.closed();
                if self.rng.chance(50) {
                    let known: Vec<String> = self.known().into_iter().collect();
                    self.real.compare_reader(&self.naive, &known).await;
                }
            }
            End::Crash => self.real.crash().await,
            End::Takeover => {}
        }
        if end != End::Takeover && self.rng.chance(30) {
            audit(&self.store, PATH, Some(end == End::Close)).await;
        }
    }

    async fn end_and_reopen(&mut self, end: End) {
        self.note(&end);
        self.end(end).await;
        if end != End::Takeover && self.rng.chance(30) {
            // Time passes while nobody is there. What is due then shows after the next look.
            self.note(&"time passes");
            let by = self.rng.below(60_000);
            self.real.clock.advance(std::time::Duration::from_millis(by));
            self.naive.now += by;
        }
        let before = self.real.queue.take();
        self.real.open(&self.naive).await.unwrap();
        self.real.follow(&mut self.naive).await.unwrap();
        if let Some(first) = before {
            self.expect_fenced(first).await;
        }
        // Scheduled jobs that fell due meanwhile are made ready by a look at the time.
        self.both(&Op::Advance(0)).await;
    }

    /// A handle that lost its store must not confirm anything, nor hand anything out.
    async fn expect_fenced(&mut self, first: Queue) {
        let answer = within("a fenced put", first.kv_put(b"fenced", b"must not be")).await;
        assert!(matches!(answer, Err(Error::Closed(CloseReason::Fenced))), "{answer:?}");
        for queue in QUEUES {
            let claim = within("a fenced claim", first.claim_next(queue)).await;
            assert!(matches!(claim, Err(Error::Closed(CloseReason::Fenced))), "{claim:?}");
        }
        assert_eq!(within("closed()", first.closed()).await, CloseReason::Fenced);
        let close = within("close of a fenced handle", first.close()).await;
        assert!(matches!(close, Err(Error::Closed(CloseReason::Fenced))), "{close:?}");
    }

    /// Works everything off: jobs come in line, and nothing is left that nobody can reach.
    async fn drain(&mut self) {
        for queue in QUEUES {
            self.both(&Op::Pause(queue.to_owned(), false)).await;
        }
        for _ in 0..200 {
            let open = self
                .naive
                .jobs
                .iter()
                .any(|job| !matches!(job.record.status, JobStatus::Done | JobStatus::Dead));
            if !open {
                break;
            }
            self.both(&Op::Advance(60_000)).await;
            for queue in QUEUES {
                let claims = self.naive.claims;
                let claim = Op::Claim { queue: queue.to_owned(), max: 7, lease_ms: 30_000 };
                self.note(&claim);
                self.both(&claim).await;
                for number in claims..self.naive.claims {
                    self.both(&Op::Ack(number, Default::default())).await;
                }
            }
        }
        for queue in QUEUES {
            let claim = Op::Claim { queue: queue.to_owned(), max: 1, lease_ms: 1 };
            let answer = self.real.apply(&claim).await.unwrap();
            assert_eq!(answer, Answer::Claims(Vec::new()), "{queue} is drained");
            let stats = self.real.queue().view().stats(queue).await.unwrap();
            assert_eq!((stats.pending, stats.claimed, stats.scheduled), (0, 0, 0), "{queue}");
        }
        self.compare().await;
    }
}

/// The options of a world without one.
#[tokio::test]
async fn an_old_claim_settles_nothing_in_a_later_opening() {
    let store = Arc::new(InMemory::new());
    let naive = naive(1_000);
    let clock = taquba::MockClock::new(naive.now);
    let open = || Queue::open_with_options(store.clone(), PATH, options(&naive, &clock));
    let queue = open().await.unwrap();
    queue.enqueue("alpha", b"one".to_vec()).await.unwrap();
    queue.enqueue("alpha", b"two".to_vec()).await.unwrap();
    let old = queue.claim_next("alpha").await.unwrap().unwrap();
    queue.close().await.unwrap();

    let queue = open().await.unwrap();
    let two = queue.claim_batch("alpha", 2, std::time::Duration::from_secs(9)).await.unwrap();
    assert_eq!(two.len(), 2);
    assert!(matches!(queue.ack(&old).await, Err(Error::ClaimLost)));
    assert!(matches!(queue.renew_lease(&old, std::time::Duration::ZERO), Err(Error::ClaimLost)));
    assert_eq!(queue.view().stats("alpha").await.unwrap().claimed, 2);
}
