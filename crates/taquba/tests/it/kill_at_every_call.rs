//! The process dies at every call to the object store, one after the other, of a scenario that uses the whole queue and
//! begins with the first open of an empty store. What survives is opened again: everything acknowledged is there,
//! nothing settled comes back, what answered an error is there whole or not at all, and all that is left can be worked
//! off.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::object_store::memory::InMemory;
use taquba::{Clock, EnqueueOptions, EnqueueRequest, Error, Knobs, SettlementEffects};

use crate::support::gen_ops::{QUEUES, naive};
use crate::support::kill::{Kill, KillStore};
use crate::support::naive::Naive;
use crate::support::op::{Answer, Op};
use crate::support::real::{PATH, Real, STATES, list};
use crate::support::rng::Rng;
use crate::support::{audit::audit, within};

/// In virtual time: long enough for what is done in the background.
const REST: Duration = Duration::from_secs(3);

/// One step of the scenario.
enum Step {
    /// A command, from what the naive queue holds.
    Do(fn(&Naive) -> Op),
    /// Nothing is asked for a while.
    Rest,
    /// The process dies here too, and another goes on.
    Crash,
    Close,
}

fn request(queue: &str, payload: &str, options: EnqueueOptions) -> EnqueueRequest {
    EnqueueRequest { queue: queue.into(), payload: payload.into(), options }
}

fn enqueue(queue: &str, payload: &str) -> Op {
    Op::Enqueue(request(queue, payload, EnqueueOptions::default()))
}

fn enqueue_with(queue: &str, payload: &str, options: EnqueueOptions) -> Op {
    Op::Enqueue(request(queue, payload, options))
}

fn opts() -> EnqueueOptions {
    EnqueueOptions::default()
}

fn after(naive: &Naive, ms: u64) -> Option<std::time::SystemTime> {
    Some(UNIX_EPOCH + Duration::from_millis(naive.now + ms))
}

fn claim(queue: &str, max: usize) -> Op {
    Op::Claim { queue: queue.into(), max, lease_ms: 30_000 }
}

/// The id of the job of this payload.
fn id(naive: &Naive, payload: &str) -> String {
    let job = naive.jobs.iter().find(|job| job.record.payload == payload.as_bytes());
    job.map_or("nobody".to_owned(), |job| job.record.id.clone())
}

/// The hand-over that holds the job of this payload; once the store is dead, any.
fn held(naive: &Naive, payload: &str) -> usize {
    let job = naive.jobs.iter().find(|job| job.record.payload == payload.as_bytes());
    job.and_then(|job| job.claim.as_ref()).map_or(0, |held| held.number)
}

/// A payload that has an object of its own.
fn large(fill: char) -> String {
    fill.to_string().repeat(10 * 1_024)
}

fn effects(payload: &str) -> SettlementEffects {
    let key = &payload[..payload.len().min(100)];
    SettlementEffects::default()
        .enqueue(request("b", payload, opts().dedup_key(key)))
        .kv_put(key, "by effect")
}

fn none() -> SettlementEffects {
    SettlementEffects::default()
}

fn scenario() -> Vec<Step> {
    use Step::{Close, Crash, Do, Rest};
    vec![
        Do(|_| enqueue("alpha", "plain")),
        Do(|_| Op::Batch("beta".into(), vec![b"one".into(), b"two".into(), vec![b'3'; 600]])),
        Do(|_| enqueue_with("alpha", "dedup", opts().dedup_key("k"))),
        Do(|_| enqueue_with("alpha", "duplicate", opts().dedup_key("k"))),
        Do(|n| enqueue_with("alpha", "later", opts().run_at(after(n, 5_000)))),
        Do(|_| enqueue_with("alpha", "own", opts().id_override("own-id").header("a", "b"))),
        Do(|_| enqueue("b", &large('L'))),
        Do(|_| Op::Batch("b".into(), vec![large('M').into(), large('N').into(), b"small".into()])),
        Do(|_| Op::KvPut(b"row".into(), b"1".into())),
        Do(|_| Op::EnqueueWith(request("b", "lead", opts()), effects("with lead"))),
        Do(|_| claim("alpha", 2)),
        Do(|n| Op::Ack(held(n, "plain"), effects("with ack"))),
        Do(|n| Op::Nack(held(n, "dedup"), "broken".into(), effects("never"))),
        Do(|_| Op::Advance(1_500)),
        Do(|_| claim("alpha", 1)),
        Do(|n| Op::DeadLetter(held(n, "dedup"), "given up".into(), effects("with death"))),
        Do(|n| enqueue_with("beta", "waits", opts().signal_key("s1").run_at(after(n, 20_000)))),
        Do(|_| Op::Signal("beta".into(), "s1".into(), b"now".into())),
        Do(|_| Op::Signal("beta".into(), "s2".into(), b"early".into())),
        Do(|n| enqueue_with("beta", "is met", opts().signal_key("s2").run_at(after(n, 20_000)))),
        Do(|_| Op::Signal("beta".into(), "s3".into(), b"kept".into())),
        Do(|n| enqueue_with("b", "waits on", opts().signal_key("s1").run_at(after(n, 30_000)))),
        Do(|_| Op::ComparePut(b"row".into(), Some(b"1".into()), b"2".into())),
        Do(|_| Op::ComparePut(b"row".into(), Some(b"1".into()), b"3".into())),
        Do(|n| Op::Cancel(id(n, "later"), effects("with cancel"))),
        Do(|_| claim("beta", 2)),
        Do(|n| Op::Cancel(id(n, "one"), none())),
        Rest,
        Crash,
        Do(|n| Op::Requeue(id(n, "dedup"))),
        Do(|_| claim("b", 1)),
        Do(|n| Op::Ack(held(n, &large('L')), effects(&large('O')))),
        Do(|_| claim("b", 2)),
        Do(|n| Op::Nack(held(n, &large('M')), "broken".into(), effects(&large('P')))),
        Do(|n| Op::DeadLetter(held(n, &large('N')), "given up".into(), effects(&large('O')))),
        Do(|n| Op::Requeue(id(n, &large('N')))),
        Do(|n| Op::Cancel(id(n, &large('O')), none())),
        Do(|_| Op::Signal("b".into(), "s1".into(), b"late".into())),
        Do(|_| claim("beta", 3)),
        Do(|n| Op::Nack(held(n, "two"), "broken again".into(), effects("maybe"))),
        Do(|n| enqueue_with("b", "asleep", opts().run_at(after(n, 90_000)))),
        Do(|n| Op::Wake(id(n, "asleep"), Some(b"hello".into()))),
        Rest,
        Close,
        Do(|_| Op::Commit(effects("committed").kv_delete("row"))),
        Do(|_| claim("alpha", 3)),
        Do(|n| Op::Ack(held(n, "dedup"), none())),
        Do(|_| Op::Advance(31_000)),
        Do(|_| Op::ClearSignal("beta".into(), "s3".into())),
        Do(|_| Op::CompareDelete(b"with ack".into(), b"by effect".into())),
        Do(|_| Op::Signal("alpha".into(), "s9".into(), b"kept".into())),
    ]
}

#[test]
fn a_kill_at_any_call_loses_nothing_and_leaves_nothing_stuck() {
    let unharmed = kill_everywhere(Kill::At, Knobs::default());
    assert!((100..500).contains(&unharmed), "the scenario makes {unharmed} calls");
}

#[test]
fn a_kill_that_takes_the_answer_of_any_change_loses_nothing_and_leaves_nothing_stuck() {
    kill_everywhere(Kill::AfterEffect, Knobs::default());
}

/// Memtables so small that they are written out, compacted and collected all along.
#[test]
fn a_kill_amid_memtables_and_compactions_loses_nothing_and_leaves_nothing_stuck() {
    let knobs = Knobs { memtable_bytes: Some(1_500), ..Knobs::default() };
    kill_everywhere(Kill::AfterEffect, knobs);
}

/// Runs the scenario with a kill at call 0, 1, .. until a run finishes unharmed; answers how many calls it makes.
fn kill_everywhere(kill: fn(u64) -> Kill, knobs: Knobs) -> u64 {
    let mut last_left = None;
    for k in 0..1_000 {
        let on_failure = SayOnPanic(kill(k));
        let bytes = Arc::new(InMemory::new());
        let store = KillStore::new(Arc::clone(&bytes), kill(k));
        let life = runtime().block_on(live(&store, knobs));
        // Everything of the first process is gone with its runtime. What it left is looked at unless it is what the
        // kill before left: most calls only read.
        let harmed = store.is_dead();
        let left = Some((store.effects(), format!("{:?}{:?}", life.unconfirmed, life.closed)));
        if left != last_left {
            runtime().block_on(life.survive(&bytes));
        }
        last_left = left;
        drop(on_failure);
        if !harmed {
            return store.calls();
        }
    }
    panic!("the scenario has no end");
}

/// A process of its own, in virtual time.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

struct SayOnPanic(Kill);

impl Drop for SayOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {:?}", self.0);
        }
    }
}

/// What the first process leaves behind.
struct Life {
    /// Everything that was acknowledged.
    naive: Naive,
    /// The first command that the store did not confirm, if any.
    unconfirmed: Option<Op>,
    /// Whether the store was left closed; `None` when that is for the store to say.
    closed: Option<bool>,
}

/// The first process: goes through the scenario, and goes on when the store is dead.
async fn live(store: &KillStore, knobs: Knobs) -> Life {
    let naive = naive(1_000_000);
    let mut real = Real::new(Arc::new(store.clone()), naive.now);
    real.knobs = knobs;
    let mut life = Life { naive, unconfirmed: None, closed: None };
    for step in [Step::Crash].into_iter().chain(scenario()) {
        if let Step::Do(op) = step {
            let op = op(&life.naive);
            life.step(&mut real, op, store).await;
            continue;
        }
        if matches!(step, Step::Rest) {
            taquba::time::sleep(REST).await;
            continue;
        }
        if matches!(step, Step::Close) {
            let close = within("close", real.queue.take().unwrap().close()).await;
            assert!(close.is_ok() || store.is_dead(), "close: {close:?}");
            life.closed = close.is_ok().then_some(true);
            if close.is_ok() {
                life.naive.closed();
            }
        }
        real.crash().await;
        if store.is_dead() {
            break;
        }
        if let Err(error) = real.open(&life.naive).await {
            assert!(store.is_dead(), "open fails on a healthy store: {error}");
            life.closed = None;
            break;
        }
        life.closed = Some(false);
        if let Err(error) = real.follow(&mut life.naive).await {
            assert!(store.is_dead(), "a read fails on a healthy store: {error}");
            break;
        }
    }
    if let Some(queue) = real.queue.take() {
        let close = within("close", queue.close()).await;
        assert!(close.is_ok() || store.is_dead(), "close: {close:?}");
        life.closed = close.is_ok().then_some(true);
        if close.is_ok() {
            life.naive.closed();
        }
    }
    life
}

impl Life {
    async fn step(&mut self, real: &mut Real, op: Op, store: &KillStore) {
        if let Op::Ack(n, _) | Op::Nack(n, ..) | Op::DeadLetter(n, ..) = op
            && n >= real.claims.len()
        {
            assert!(store.is_dead(), "{op:?} of a claim that nobody has");
            return;
        }
        match real.apply(&op).await {
            // A dead store has no payloads: those jobs are given back, which changes nothing.
            Ok(Answer::Claims(_)) if store.is_dead() => {
                self.unconfirmed.get_or_insert(op);
            }
            Ok(answer) if self.unconfirmed.is_none() => {
                let expected = self.naive.apply(&op, answer.new_ids());
                assert_eq!(answer, expected, "the answer to {op:?}");
            }
            // After a failure nothing is confirmed. Claims out of memory and refusals promise nothing.
            Ok(answer) => {
                let promises_nothing =
                    matches!(answer, Answer::Claims(_) | Answer::Refused(_) | Answer::Did(false));
                assert!(promises_nothing, "a dead store confirms {op:?}: {answer:?}");
            }
            Err(error) => {
                assert!(store.is_dead(), "{op:?} fails on a healthy store: {error}");
                let lost = matches!(error, Error::Closed(_) | Error::PayloadStore(_));
                assert!(lost, "{op:?}: {error:?}");
                self.unconfirmed.get_or_insert(op);
            }
        }
    }
}

impl Life {
    /// Another process opens what survived.
    async fn survive(self, bytes: &Arc<InMemory>) {
        audit(bytes, PATH, self.closed).await;
        // Time may have passed while the last command was under way.
        let mut worlds = vec![self.naive.clone()];
        let mut real = Real::new(bytes.clone(), self.naive.now);
        real.open(&self.naive).await.unwrap();
        if let Some(op) = &self.unconfirmed {
            let known: BTreeSet<_> = self.naive.jobs.iter().map(|job| &job.record.id).collect();
            let mut news = all_ids(&real).await;
            news.retain(|id| !known.contains(id));
            let mut done = self.naive.clone();
            done.apply(op, news);
            worlds.push(done);
        }
        let mut rng = Rng::new(1);
        let mut differences = Vec::new();
        let mut found = None;
        for mut world in worlds {
            if world.now > real.clock.now_ms() {
                let by = world.now - real.clock.now_ms();
                real.clock.advance(Duration::from_millis(by));
            }
            world.now = world.now.max(real.clock.now_ms());
            within("a look at the time", real.queue().reap_now()).await.unwrap();
            real.follow(&mut world).await.unwrap();
            world.claims = 0;
            world.apply(&Op::Advance(0), Vec::new());
            let ids = all_ids(&real).await;
            match real.difference(&world, &ids, &mut rng).await {
                None => {
                    found = Some(world);
                    break;
                }
                Some(difference) => differences.push(difference),
            }
        }
        let Some(world) = found else {
            let op = self.unconfirmed;
            panic!("unconfirmed: {op:?}\n{}", differences.join("\nnor, with it done,\n"));
        };
        drain(&mut real, world, self.unconfirmed.as_ref()).await;
        let swept = within("a sweep", real.queue().sweep_orphans_now()).await.unwrap();
        assert_eq!((swept.open, swept.failed, swept.foreign), (0, 0, 0), "{swept:?}");
        within("close", real.queue.take().unwrap().close()).await.unwrap();
        let orphans = audit(bytes, PATH, Some(true)).await;
        assert_eq!(orphans, BTreeSet::new(), "after a sweep");
    }
}

/// The ids of all jobs, in order.
async fn all_ids(real: &Real) -> Vec<String> {
    let mut ids = BTreeSet::new();
    for queue in QUEUES {
        for status in STATES {
            let jobs = list(real.queue(), queue, status, 100).await;
            ids.extend(jobs.into_iter().map(|job| job.id));
        }
    }
    ids.into_iter().collect()
}

/// Works off what is left, in step with the naive queue; also what waits for signals and retries.
async fn drain(real: &mut Real, mut naive: Naive, unconfirmed: Option<&Op>) {
    async fn both(real: &mut Real, naive: &mut Naive, op: Op) {
        let answer = real.apply(&op).await.unwrap();
        let expected = naive.apply(&op, answer.new_ids());
        assert_eq!(answer, expected, "draining: {op:?}");
    }
    for key in ["s1", "s2", "s3", "s9"] {
        for queue in QUEUES {
            // A signal that was kept is there, one that was taken is not; an unconfirmed one may be either.
            let clear = Op::ClearSignal(queue.into(), key.into());
            let answer = real.apply(&clear).await.unwrap();
            let expected = naive.apply(&clear, Vec::new());
            let open = match unconfirmed {
                Some(Op::Signal(q, k, _) | Op::ClearSignal(q, k)) => q == queue && k == key,
                _ => false,
            };
            assert!(open || answer == expected, "signal {key} of {queue}: {answer:?}");
        }
    }
    for _ in 0..4 {
        both(real, &mut naive, Op::Advance(60_000)).await;
        for queue in QUEUES {
            let from = naive.claims;
            both(real, &mut naive, claim(queue, 50)).await;
            for number in from..naive.claims {
                both(real, &mut naive, Op::Ack(number, none())).await;
            }
        }
    }
    for queue in QUEUES {
        let stats = real.queue().view().stats(queue).await.unwrap();
        assert_eq!((stats.pending, stats.claimed, stats.scheduled), (0, 0, 0), "{queue}");
    }
}
