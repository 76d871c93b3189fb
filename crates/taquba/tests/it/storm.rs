//! Eight tasks of random commands at once, life after life on the same bytes. When all have come to rest, everything
//! that was confirmed adds up: counters and listings agree, each job was settled once or is still there, nothing that
//! was settled or cancelled comes back, each effect is there with its settlement, no update of a row was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use taquba::object_store::memory::InMemory;
use taquba::{
    CancelOutcome, Changes, Claim, Clock, EnqueueOptions, EnqueueRequest, EnqueueResult, Error,
    Facts, JobStatus, Knobs, MockClock, NackOutcome, OpenOptions, PRIORITY_HIGH, PRIORITY_LOW,
    Queue, QueueConfig, Reads, SettlementEffects, SignalDelivery,
};

use crate::support::audit::audit;
use crate::support::real::{STATES, list};
use crate::support::rng::{Rng, seeds};
use crate::support::within;

const QUEUES: [&str; 2] = ["north", "south"];
const LEASE: Duration = Duration::from_secs(5);

/// What was confirmed to anybody.
#[derive(Default)]
struct Ledger {
    /// Every job, with how it ended.
    jobs: BTreeMap<String, Vec<&'static str>>,
    /// Rows that settlements wrote.
    effects: BTreeSet<Vec<u8>>,
    signals_delivered: u64,
    /// Successful increments of each shared row.
    increments: BTreeMap<&'static str, u64>,
}

struct Storm {
    bytes: Arc<InMemory>,
    clock: MockClock,
    ledger: Mutex<Ledger>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_tasks_at_once_lose_nothing_and_settle_nothing_twice() {
    for seed in seeds(4) {
        let said = SayOnPanic(seed);
        run(seed).await;
        drop(said);
    }
}

struct SayOnPanic(u64);

impl Drop for SayOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {} (tasks race: run it several times)", self.0);
        }
    }
}

async fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let storm = Arc::new(Storm {
        bytes: Arc::new(InMemory::new()),
        clock: MockClock::new(1_000_000),
        ledger: Mutex::default(),
    });
    for life in 0..6 {
        let queue = Arc::new(storm.open(&mut rng).await);
        let tasks = (0..8).map(|_| {
            let task = Task {
                storm: storm.clone(),
                queue: queue.clone(),
                rng: Rng::new(rng.next()),
                held: Vec::new(),
            };
            tokio::spawn(task.run(60))
        });
        let tasks: Vec<_> = tasks.collect();
        for task in tasks {
            within("a task", task).await.unwrap();
        }
        within("a rest", queue.reap_now()).await.unwrap();
        storm.check(&queue).await;
        let queue = Arc::into_inner(queue).unwrap();
        if life % 2 == 0 {
            within("close", queue.close()).await.unwrap();
            audit(&storm.bytes, "store", Some(true)).await;
        } else {
            let closed = queue.closed();
            drop(queue);
            within("the end", closed).await;
        }
    }
    let queue = storm.open(&mut rng).await;
    storm.drain(&queue).await;
    storm.check(&queue).await;
    within("close", queue.close()).await.unwrap();
    audit(&storm.bytes, "store", Some(true)).await;
}

impl Storm {
    async fn open(&self, rng: &mut Rng) -> Queue {
        let knobs = Knobs {
            page_jobs: Some(1 + rng.index(8)),
            band_bytes: Some(1_000 + rng.index(4_000)),
            timer_bytes: Some(1_000 + rng.index(4_000)),
            memtable_bytes: rng.chance(50).then(|| 1_000 + rng.index(20_000)),
            refill_yields: rng.index(12),
            ..Knobs::default()
        };
        let config = QueueConfig::default().max_attempts(4_u32);
        let config = config.retry_backoff_base(Duration::from_millis(rng.below(3) * 500));
        let options = OpenOptions {
            clock: Arc::new(self.clock.clone()),
            default_queue_config: config,
            deferred_flush_max: Duration::from_millis(rng.below(40)),
            knobs,
            ..OpenOptions::default()
        };
        let open = Queue::open_with_options(self.bytes.clone(), "store", options);
        within("open", open).await.unwrap()
    }

    fn ledger<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        change(&mut self.ledger.lock().unwrap())
    }

    fn born(&self, results: &[EnqueueResult]) {
        self.ledger(|ledger| {
            for result in results {
                if let EnqueueResult::New(id) = result {
                    ledger.jobs.entry(id.clone()).or_default();
                }
            }
        });
    }

    fn ended(&self, id: &str, how: &'static str) {
        self.ledger(|ledger| ledger.jobs.entry(id.to_owned()).or_default().push(how));
    }

    /// Nobody is at work: everything must add up.
    async fn check(&self, queue: &Queue) {
        let mut live = BTreeSet::new();
        for name in QUEUES {
            let stats = queue.view().stats(name).await.unwrap();
            for status in STATES {
                let jobs = list(queue, name, status, 7).await;
                let count = i64::try_from(jobs.len()).unwrap();
                let counted = match status {
                    JobStatus::Pending => stats.pending,
                    JobStatus::Scheduled => stats.scheduled,
                    JobStatus::Claimed => stats.claimed,
                    JobStatus::Dead => stats.dead,
                    JobStatus::Done => count,
                };
                assert_eq!(counted, count, "{status:?} jobs of {name}");
                for job in jobs {
                    assert!(live.insert(job.id.clone()), "{} is listed twice", job.id);
                    let found = queue.view().get_job(&job.id).await.unwrap();
                    assert_eq!(found.map(|found| found.status), Some(status), "{}", job.id);
                }
            }
        }
        let (gone, increments, effects) = self.ledger(|ledger| {
            for (id, ends) in &ledger.jobs {
                assert!(ends.len() <= 1, "{id} ended as {ends:?}");
            }
            let ended = |ends: &Vec<&str>| !ends.is_empty();
            let gone: BTreeSet<String> =
                ledger.jobs.iter().filter(|(_, e)| ended(e)).map(|(id, _)| id.clone()).collect();
            let expected = ledger.jobs.keys().filter(|id| !gone.contains(*id)).cloned();
            let expected: BTreeSet<String> = expected.collect();
            let missing: Vec<_> = expected.difference(&live).collect();
            assert!(missing.is_empty(), "lost: {missing:?}");
            (gone, ledger.increments.clone(), ledger.effects.clone())
        });
        let back: Vec<_> = live.intersection(&gone).collect();
        assert!(back.is_empty(), "came back: {back:?}");
        for (row, count) in increments {
            let value = queue.view().kv_get(row.as_bytes()).await.unwrap();
            assert_eq!(number(value.as_deref()), count, "row {row}");
        }
        let rows = queue.view().kv_scan(b"effect/", .., 100_000).await.unwrap();
        let rows: BTreeSet<Vec<u8>> = rows.entries.into_iter().map(|(key, _)| key).collect();
        assert_eq!(rows, effects);
    }

    /// Works everything off.
    async fn drain(&self, queue: &Queue) {
        for _ in 0..4 {
            self.clock.advance(Duration::from_secs(60));
            queue.promote_scheduled_now().await.unwrap();
            for name in QUEUES {
                for dead in queue.view().dead_jobs(name, None, 10_000).await.unwrap() {
                    queue.requeue_dead_job(&dead.id).await.unwrap();
                }
                loop {
                    let claims = queue.claim_batch(name, 10_000, LEASE).await.unwrap();
                    if claims.is_empty() {
                        break;
                    }
                    for claim in claims {
                        queue.ack(&claim).await.unwrap();
                        self.ended(&claim.id, "drained");
                    }
                }
            }
        }
        self.ledger(|ledger| {
            let left: Vec<_> = ledger.jobs.iter().filter(|(_, ends)| ends.is_empty()).collect();
            assert!(left.is_empty(), "nobody could get {left:?}");
        });
    }
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| String::from_utf8_lossy(value).parse().unwrap())
}

struct Task {
    storm: Arc<Storm>,
    queue: Arc<Queue>,
    rng: Rng,
    held: Vec<Claim>,
}

impl Task {
    async fn run(mut self, commands: usize) {
        for _ in 0..commands {
            self.command().await;
        }
    }

    fn name(&mut self) -> &'static str {
        QUEUES[self.rng.index(QUEUES.len())]
    }

    fn key(&mut self) -> String {
        format!("key {}", self.rng.below(5))
    }

    fn known_id(&mut self) -> String {
        let n = self.rng.next();
        self.storm.ledger(|ledger| {
            let ids: Vec<&String> = ledger.jobs.keys().collect();
            ids.get(usize::try_from(n % ids.len().max(1) as u64).unwrap())
                .map_or("nobody".to_owned(), |id| (*id).clone())
        })
    }

    fn request(&mut self) -> EnqueueRequest {
        let mut options = EnqueueOptions::default();
        if self.rng.chance(40) {
            options.priority = Some(*self.rng.pick(&[PRIORITY_HIGH, PRIORITY_LOW]));
        }
        if self.rng.chance(30) {
            options.dedup_key = Some(self.key());
        }
        if self.rng.chance(30) {
            let at = self.storm.clock.now_ms() + self.rng.below(6_000);
            options.run_at = Some(UNIX_EPOCH + Duration::from_millis(at));
        }
        if self.rng.chance(20) {
            options.signal_key = Some(self.key());
            let at = self.storm.clock.now_ms() + 60_000;
            options.run_at = Some(UNIX_EPOCH + Duration::from_millis(at));
        }
        let payload = vec![b'x'; self.rng.index(1_200)];
        EnqueueRequest { queue: self.name().into(), payload, options }
    }

    fn effect(&mut self) -> (Vec<u8>, SettlementEffects) {
        let row = format!("effect/{:016x}", self.rng.next()).into_bytes();
        let mut effects = SettlementEffects::default().kv_put(row.clone(), "done");
        if self.rng.chance(30) {
            effects = effects.enqueue(self.request());
        }
        (row, effects)
    }

    async fn command(&mut self) {
        match self.rng.below(100) {
            0..25 => {
                let effects = SettlementEffects::default().enqueue(self.request());
                self.commit(effects).await;
            }
            25..45 => {
                let (name, max) = (self.name(), 1 + self.rng.index(3));
                let claims = self.queue.claim_batch(name, max, LEASE).await.unwrap();
                self.held.extend(claims);
            }
            45..70 => self.settle().await,
            70..75 => {
                let id = self.known_id();
                if self.queue.cancel(&id).await.unwrap() == CancelOutcome::Removed {
                    self.storm.ended(&id, "cancelled");
                }
            }
            75..78 => {
                let id = self.known_id();
                self.queue.wake_scheduled(&id, Some(b"wake".to_vec())).await.unwrap();
            }
            78..83 => {
                let (name, key) = (self.name(), self.key());
                let sent = self.queue.send_signal(name, &key, b"signal".to_vec()).await.unwrap();
                if sent == SignalDelivery::Delivered {
                    self.storm.ledger(|ledger| ledger.signals_delivered += 1);
                }
            }
            83..86 => {
                let id = self.known_id();
                match self.queue.requeue_dead_job(&id).await {
                    Ok(()) | Err(Error::JobNotFound(_) | Error::InvalidState { .. }) => {}
                    Err(error) => panic!("requeue: {error}"),
                }
            }
            86..92 => self.increment_by_compare().await,
            92..96 => self.increment_by_decision().await,
            _ => {
                let by = self.rng.below(3_000);
                self.storm.clock.advance(Duration::from_millis(by));
                tokio::task::yield_now().await;
            }
        }
    }

    async fn commit(&mut self, effects: SettlementEffects) {
        match self.queue.commit_effects(effects).await {
            Ok(results) => self.storm.born(&results),
            Err(Error::SignalKeyTaken { .. }) => {}
            Err(error) => panic!("commit: {error}"),
        }
    }

    async fn settle(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let claim = self.held.swap_remove(self.rng.index(self.held.len()));
        let (row, effects) = self.effect();
        let (applied, end) = match self.rng.below(10) {
            0..6 => (self.queue.ack_with(&claim, effects).await.map(Some), Some("acked")),
            6..9 => {
                let nacked = self.queue.nack_with(&claim, "broken", effects).await;
                let results = nacked.map(|outcome| match outcome {
                    NackOutcome::Retried => None,
                    NackOutcome::DeadLettered(results) => Some(results),
                });
                (results, None)
            }
            _ => (self.queue.dead_letter_with(&claim, "given up", effects).await.map(Some), None),
        };
        match applied {
            Ok(results) => {
                if let Some(end) = end {
                    self.storm.ended(&claim.id, end);
                }
                if let Some(results) = results {
                    self.storm.ledger(|ledger| ledger.effects.insert(row));
                    self.storm.born(&results);
                }
            }
            // Its lease ran out, or what it wanted to commit was refused: the claim goes on.
            Err(Error::ClaimLost) => {}
            Err(Error::SignalKeyTaken { .. }) => self.held.push(claim),
            Err(error) => panic!("settle: {error}"),
        }
    }

    async fn increment_by_compare(&mut self) {
        let row = b"compared";
        let old = self.queue.view().kv_get(row).await.unwrap();
        let new = (number(old.as_deref()) + 1).to_string();
        let done = self.queue.kv_compare_put(row, old.as_deref(), new.as_bytes()).await.unwrap();
        if done {
            self.storm.ledger(|ledger| *ledger.increments.entry("compared").or_default() += 1);
        }
    }

    async fn increment_by_decision(&mut self) {
        let reads = Reads { kv: vec![b"decided".to_vec()], ..Reads::default() };
        let increment = |facts: &Facts, changes: &mut Changes| {
            let old = number(facts.kv(b"decided").map(AsRef::as_ref));
            changes.kv_put(b"decided".as_slice(), (old + 1).to_string());
        };
        self.queue.decide(reads, increment).await.unwrap();
        self.storm.ledger(|ledger| *ledger.increments.entry("decided").or_default() += 1);
    }
}
