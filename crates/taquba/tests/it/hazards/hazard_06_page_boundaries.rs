//! Hazard 6: inserts, requeues, cancels and claims at every page boundary of a refill. Windows and pages hold a handful
//! of jobs, pages arrive late, the store is reopened now and then so that nothing is loaded, and a naive list says which
//! job comes next: none is lost, doubled or out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::{BoxFuture, FutureExt, join_all};
use taquba::{
    CancelOutcome, Claim, Clock, EnqueueOptions, MockClock, OpenOptions, PRIORITY_HIGH,
    PRIORITY_NORMAL, Queue, QueueConfig, WakeOutcome,
};

use super::{Bucket, open, until, within};
use crate::support::rng::{Rng, seeds};

const LEASE: Duration = Duration::from_secs(1_000_000);
const LIMIT: Duration = Duration::from_secs(20);
const BURSTS: usize = 120;

/// A place in line, as the test counts it: priority, then how many were enqueued before.
type Place = (u32, u32);

/// One of the calls that are made at the same time.
#[derive(Debug, Clone, Copy)]
enum Call {
    Enqueue(u32, u32),
    Schedule(u32, u32, u64),
    Claim,
    Ack(Place),
    Nack(Place),
    Kill(Place),
    Requeue(Place),
    Cancel(Place),
    Wake(Place),
    Advance(u64),
}

enum Answer {
    Id(String),
    Claimed(Box<Option<Claim>>),
    Cancelled(CancelOutcome),
    Done,
}

struct Line {
    bucket: Arc<Bucket>,
    clock: MockClock,
    options: fn(&mut Rng, &MockClock) -> OpenOptions,
    queue: Arc<Queue>,
    rng: Rng,
    enqueued: u32,
    ids: BTreeMap<Place, String>,
    pending: BTreeSet<Place>,
    held: BTreeMap<Place, Arc<Claim>>,
    scheduled: BTreeSet<(u64, Place)>,
    dead: BTreeSet<Place>,
}

/// Everything is small: three to eight jobs in a window, one to four in a page.
fn tiny(rng: &mut Rng, clock: &MockClock) -> OpenOptions {
    let config = QueueConfig::default().max_attempts(u32::MAX).retry_backoff_base(Duration::ZERO);
    let mut options = OpenOptions::default()
        .default_queue_config(config)
        .clock(Arc::new(clock.clone()) as Arc<dyn Clock>);
    options.knobs.band_bytes = Some(330 * (3 + rng.index(6)));
    options.knobs.timer_bytes = Some(330 * (3 + rng.index(6)));
    options.knobs.page_jobs = Some(1 + rng.index(4));
    options.knobs.refill_yields = rng.index(60);
    options
}

fn place_of(claim: &Claim) -> Place {
    (claim.priority, u32::from_be_bytes(claim.payload.as_slice().try_into().unwrap()))
}

impl Line {
    async fn new(seed: u64, options: fn(&mut Rng, &MockClock) -> OpenOptions) -> Self {
        let (mut rng, clock, bucket) = (Rng::new(seed), MockClock::new(1_000_000), Bucket::new());
        let queue = open(&bucket, options(&mut rng, &clock)).await;
        Self {
            bucket,
            clock,
            options,
            queue,
            rng,
            enqueued: 0,
            ids: BTreeMap::new(),
            pending: BTreeSet::new(),
            held: BTreeMap::new(),
            scheduled: BTreeSet::new(),
            dead: BTreeSet::new(),
        }
    }

    /// A few calls that are made in one breath. No two of them are on the same job, but for claims.
    fn draw(&mut self) -> Vec<Call> {
        let mut used = BTreeSet::new();
        let mut calls = Vec::new();
        for _ in 0..1 + self.rng.index(6) {
            let mut any = |of: Vec<Place>, rng: &mut Rng| {
                let place = *rng.pick_any(&of)?;
                used.insert(place).then_some(place)
            };
            let (held, pending, dead, asleep): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = (
                self.held.keys().copied().collect(),
                self.pending.iter().copied().collect(),
                self.dead.iter().copied().collect(),
                self.scheduled.iter().map(|(_, place)| *place).collect(),
            );
            // A crowded line is worked off, an empty one filled.
            let busy = if self.pending.len() > 40 { 40 } else { 0 };
            let priority = *self.rng.pick(&[PRIORITY_HIGH, PRIORITY_NORMAL]);
            calls.extend(match busy + self.rng.below(100 - busy) {
                0..30 => {
                    self.enqueued += 1;
                    Some(Call::Enqueue(priority, self.enqueued))
                }
                30..40 => {
                    self.enqueued += 1;
                    let at = self.clock.now_ms() + 1 + self.rng.below(3_000);
                    Some(Call::Schedule(priority, self.enqueued, at))
                }
                40..65 => Some(Call::Claim),
                65..73 => any(held, &mut self.rng).map(Call::Ack),
                73..83 => any(held, &mut self.rng).map(Call::Nack),
                83..85 => any(asleep.clone(), &mut self.rng).map(Call::Wake),
                85..87 => Some(Call::Advance(self.rng.below(1_500))),
                87..90 => any(held, &mut self.rng).map(Call::Kill),
                90..93 => any(dead, &mut self.rng).map(Call::Requeue),
                _ => {
                    let waiting = [pending, asleep].concat();
                    any(waiting, &mut self.rng).map(Call::Cancel)
                }
            });
        }
        calls
    }

    fn make(&self, call: &Call) -> BoxFuture<'static, Answer> {
        let queue = Arc::clone(&self.queue);
        let claim = |place| Arc::clone(&self.held[place]);
        let id = |place| self.ids[place].clone();
        let enqueue = |priority: &u32, number: &u32, at: Option<u64>| {
            let options = EnqueueOptions::default()
                .priority(*priority)
                .run_at(at.map(|at| UNIX_EPOCH + Duration::from_millis(at)));
            (number.to_be_bytes().to_vec(), options)
        };
        match call {
            Call::Enqueue(priority, number) => {
                let (payload, options) = enqueue(priority, number, None);
                async move { Answer::Id(queue.enqueue_with("q", payload, options).await.unwrap()) }
                    .boxed()
            }
            Call::Schedule(priority, number, at) => {
                let (payload, options) = enqueue(priority, number, Some(*at));
                async move { Answer::Id(queue.enqueue_with("q", payload, options).await.unwrap()) }
                    .boxed()
            }
            Call::Claim => {
                async move { Answer::Claimed(Box::new(queue.claim("q", LEASE).await.unwrap())) }
                    .boxed()
            }
            Call::Ack(place) => {
                let claim = claim(place);
                async move {
                    queue.ack(&claim).await.unwrap();
                    Answer::Done
                }
                .boxed()
            }
            Call::Nack(place) => {
                let claim = claim(place);
                async move {
                    queue.nack(&claim, "again").await.unwrap();
                    Answer::Done
                }
                .boxed()
            }
            Call::Kill(place) => {
                let claim = claim(place);
                async move {
                    queue.dead_letter(&claim, "no").await.unwrap();
                    Answer::Done
                }
                .boxed()
            }
            Call::Requeue(place) => {
                let id = id(place);
                async move {
                    queue.requeue_dead_job(&id).await.unwrap();
                    Answer::Done
                }
                .boxed()
            }
            Call::Wake(place) => {
                let id = id(place);
                async move {
                    let woken = queue.wake_scheduled(&id, None).await.unwrap();
                    assert_ne!(woken, WakeOutcome::NotFound);
                    Answer::Done
                }
                .boxed()
            }
            Call::Advance(ms) => {
                let (clock, by) = (self.clock.clone(), Duration::from_millis(*ms));
                async move {
                    clock.advance(by);
                    Answer::Done
                }
                .boxed()
            }
            Call::Cancel(place) => {
                let id = id(place);
                async move { Answer::Cancelled(queue.cancel(&id).await.unwrap()) }.boxed()
            }
        }
    }

    /// Makes calls at once and takes their answers in. What was ready before them is claimed in order; what they make
    /// ready is ready after them.
    async fn burst(&mut self, calls: Vec<Call>, what: &str) {
        let under_way: Vec<_> = calls.iter().map(|call| self.make(call)).collect();
        let answers = within(LIMIT, what, join_all(under_way)).await;
        let mut ready = self.pending.clone();
        let (mut claims, mut cancelled, mut asked) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (call, answer) in calls.iter().zip(answers) {
            match (*call, answer) {
                (Call::Enqueue(priority, number), Answer::Id(id)) => {
                    self.ids.insert((priority, number), id);
                    self.pending.insert((priority, number));
                }
                (Call::Schedule(priority, number, at), Answer::Id(id)) => {
                    self.ids.insert((priority, number), id);
                    self.scheduled.insert((at, (priority, number)));
                }
                (Call::Claim, Answer::Claimed(claim)) => claims.push(*claim),
                (Call::Ack(place), _) => drop(self.held.remove(&place)),
                (Call::Nack(place), _) => {
                    self.held.remove(&place);
                    self.pending.insert(place);
                }
                (Call::Kill(place), _) => {
                    self.held.remove(&place);
                    self.dead.insert(place);
                }
                (Call::Requeue(place), _) => {
                    self.dead.remove(&place);
                    self.pending.insert(place);
                }
                (Call::Wake(place), _) => {
                    self.scheduled.retain(|(_, asleep)| *asleep != place);
                    self.pending.insert(place);
                }
                (Call::Advance(_), _) => self.fall_due(),
                (Call::Cancel(place), Answer::Cancelled(CancelOutcome::Removed)) => {
                    self.pending.remove(&place);
                    self.scheduled.retain(|(_, asleep)| *asleep != place);
                    cancelled.insert(place);
                }
                (Call::Cancel(place), Answer::Cancelled(CancelOutcome::Requested)) => {
                    asked.push(place);
                }
                _ => panic!("{what}: a wrong answer"),
            }
        }
        let claimed: Vec<_> = claims.iter().flatten().map(place_of).collect();
        assert!(
            asked.iter().all(|place| claimed.contains(place)),
            "{what}: cancel of what is not claimed"
        );
        // A job may be scheduled for a time that comes in the same breath.
        self.fall_due();
        self.promoted(what).await;
        let fresh: BTreeSet<_> = self.pending.difference(&ready).copied().collect();
        for claim in claims {
            // A cancelled job may have gone before the claim or after it.
            let first = ready.iter().find(|place| !cancelled.contains(place)).copied();
            let claimed = claim.as_ref().map(place_of);
            // A claim that waited for a page may get what came back meanwhile, if that is before all else.
            let came_back = claimed.is_some_and(|place| {
                fresh.contains(&place) && first.is_none_or(|first| place < first)
            });
            assert!(
                claimed == first || came_back,
                "{what}: {claimed:?} instead of {first:?}: out of order, lost or doubled"
            );
            if let (Some(claim), Some(place)) = (claim, claimed) {
                assert_eq!(claim.id, self.ids[&place], "{what}");
                ready.remove(&place);
                self.pending.remove(&place);
                self.held.insert(place, Arc::new(claim));
            }
        }
    }

    /// Takes in what is due by now.
    fn fall_due(&mut self) {
        let now = self.clock.now_ms();
        while let Some((at, place)) = self.scheduled.first().copied().filter(|(at, _)| *at <= now) {
            self.scheduled.remove(&(at, place));
            self.pending.insert(place);
        }
    }

    /// Waits until what is due is ready.
    async fn promoted(&self, what: &str) {
        let waiting = i64::try_from(self.scheduled.len()).unwrap();
        until(&format!("{what}: what is due is ready"), async || {
            self.queue.promote_scheduled_now().await.unwrap();
            self.queue.view().stats("q").await.unwrap().scheduled == waiting
        })
        .await;
        // And what was promoted is durable.
        self.queue.promote_scheduled_now().await.unwrap();
    }

    /// A crash: what was held is ready again, and nothing is in memory.
    async fn reopen(&mut self) {
        let options = (self.options)(&mut self.rng, &self.clock);
        self.queue = open(&self.bucket, options).await;
        self.pending.extend(std::mem::take(&mut self.held).into_keys());
    }

    /// Claims that are not looked at. What they were given is given back: at once, but for a hand-over that waits for
    /// the log.
    async fn drop_claims(&mut self) {
        for _ in 0..1 + self.rng.index(3) {
            let mut claim = Box::pin(self.queue.claim_batch("q", 3, LEASE));
            assert!(claim.as_mut().now_or_never().is_none());
            for _ in 0..self.rng.index(12) {
                tokio::task::yield_now().await;
            }
        }
        let held = i64::try_from(self.held.len()).unwrap();
        until("they are given back", async || {
            self.queue.view().stats("q").await.unwrap().claimed == held
        })
        .await;
    }

    async fn drain(&mut self, what: &str) {
        self.reopen().await;
        let mut drained = Vec::new();
        while let Some(claim) = self.queue.claim("q", LEASE).await.unwrap() {
            drained.push(place_of(&claim));
        }
        let all: Vec<_> = self.pending.iter().copied().collect();
        assert_eq!(drained, all, "{what}: the rest");
        let stats = self.queue.view().stats("q").await.unwrap();
        assert_eq!(stats.pending, 0, "{what}");
        assert_eq!(stats.dead, i64::try_from(self.dead.len()).unwrap(), "{what}");
    }
}

#[tokio::test]
async fn hazard_06_changes_at_every_page_boundary_lose_double_and_reorder_nothing() {
    for seed in seeds(8) {
        let mut line = Line::new(seed, tiny).await;
        for step in 0..BURSTS {
            let what = format!("seed {seed}, step {step}");
            match line.rng.below(100) {
                0..4 => line.reopen().await,
                4..10 => line.drop_claims().await,
                _ => {
                    let calls = line.draw();
                    line.burst(calls, &what).await;
                }
            }
        }
        line.drain(&format!("seed {seed}")).await;
    }
}

/// A window of three jobs, of which refills bring two at a time, late.
async fn three_in_memory() -> (Arc<Queue>, Vec<Claim>) {
    let config = QueueConfig::default().retry_backoff_base(Duration::ZERO);
    let mut options = OpenOptions::default().default_queue_config(config);
    options.knobs.band_bytes = Some(3 * 330);
    options.knobs.page_jobs = Some(2);
    options.knobs.refill_yields = 500;
    let queue = open(&Bucket::new(), options).await;
    let payloads = (0..6_u8).map(|n| vec![n]).collect();
    queue.enqueue_batch("q", payloads).await.unwrap();
    let mut claims = Vec::new();
    while let Some(claim) = queue.claim("q", LEASE).await.unwrap() {
        claims.push(claim);
    }
    assert_eq!(claims.len(), 6);
    (queue, claims)
}

#[tokio::test]
async fn hazard_06_a_claim_that_ends_while_its_row_is_being_read_does_not_come_back() {
    let (queue, held) = three_in_memory().await;
    // Four come back, of which the last does not fit: from there on the window ends before what is still held.
    for claim in &held[..4] {
        queue.nack(claim, "again").await.unwrap();
    }
    for expected in 0..2 {
        let claim = queue.claim("q", LEASE).await.unwrap().unwrap();
        assert_eq!(claim.payload, [expected]);
    }
    // The refill has read the rows of all, and has not delivered them.
    queue.ack(&held[4]).await.unwrap();
    queue.dead_letter(&held[5], "no").await.unwrap();
    for expected in 2..4 {
        let claim = queue.claim("q", LEASE).await.unwrap().unwrap();
        assert_eq!(claim.payload, [expected]);
    }
    let again = queue.claim("q", LEASE).await.unwrap();
    assert!(again.is_none(), "settled, and handed out again: {again:?}");
}
