//! Random commands that are likely to mean something: most name jobs, claims and keys that the naive queue has.

use std::time::{Duration, UNIX_EPOCH};

use taquba::{
    EnqueueOptions, EnqueueRequest, JobStatus, MAX_KV_VALUE_SIZE, PRIORITY_HIGH, PRIORITY_LOW,
    PRIORITY_NORMAL, QueueConfig, RetryPolicy, SettlementEffects,
};

use super::naive::{Naive, RETRY_MS};
use super::op::Op;
use super::rng::Rng;

pub(crate) const QUEUES: [&str; 3] = ["alpha", "beta", "b"];
const PRIORITIES: [u32; 3] = [PRIORITY_HIGH, PRIORITY_NORMAL, PRIORITY_LOW];
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];

/// Three queues that differ in all that a configuration says.
pub(crate) fn naive(now: u64) -> Naive {
    let base = QueueConfig::default();
    let configs = [
        base.clone(),
        base.clone()
            .retry_backoff_base(Duration::ZERO)
            .keep_done_jobs(Duration::from_secs(30))
            .max_attempts(2_u32),
        base.retry_backoff_base(Duration::from_secs(2))
            .retry_backoff_max(Duration::from_secs(5))
            .default_priority(PRIORITY_HIGH)
            .dead_retention(Duration::from_secs(20))
            .max_attempts(4_u32),
    ];
    let configs = QUEUES.iter().map(ToString::to_string).zip(configs).collect();
    let mut naive = Naive::new(now, configs);
    naive.offload_above = Some(1_000);
    naive
}

/// Draws commands.
pub(crate) struct Commands {
    pub(crate) rng: Rng,
    /// Every payload is unique: it starts with this count.
    pub(crate) payloads: u64,
    /// Largest payload.
    pub(crate) payload_max: u64,
    /// All ids that were ever seen.
    pub(crate) ids: Vec<String>,
}

impl Commands {
    pub(crate) fn new(rng: Rng, payload_max: u64) -> Self {
        Self { rng, payloads: 0, payload_max, ids: vec!["never-was".to_owned()] }
    }

    fn queue(&mut self) -> String {
        self.rng.pick(&QUEUES).to_string()
    }

    fn key(&mut self) -> String {
        self.rng.pick(&KEYS).to_string()
    }

    fn kv_key(&mut self) -> Vec<u8> {
        // The empty key is a caller's right.
        if self.rng.chance(8) { Vec::new() } else { self.key().into_bytes() }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = if self.rng.chance(3) { MAX_KV_VALUE_SIZE + 1 } else { self.rng.index(6) };
        vec![b'v'; len]
    }

    fn payload(&mut self) -> Vec<u8> {
        self.payloads += 1;
        let size = match self.rng.below(4) {
            0 => 508 + self.rng.below(8),
            1 => self.rng.below(self.payload_max),
            _ => 0,
        };
        let mut payload = format!("{}.", self.payloads).into_bytes();
        let size = usize::try_from(size).unwrap().max(payload.len());
        payload.resize(size, b'p');
        payload
    }

    fn request(&mut self, now: u64) -> EnqueueRequest {
        let mut options = EnqueueOptions::default();
        let rng = &mut self.rng;
        if rng.chance(50) {
            options.priority = Some(*rng.pick(&PRIORITIES));
        }
        if rng.chance(25) {
            let at = (now + rng.below(20_000)).saturating_sub(4_000);
            options.run_at = Some(UNIX_EPOCH + Duration::from_millis(at));
        }
        if rng.chance(25) {
            options.dedup_key = Some(rng.pick(&KEYS).to_string());
        }
        if rng.chance(10) {
            options.max_attempts = Some(1 + u32::try_from(rng.below(3)).unwrap());
        }
        if rng.chance(10) {
            options.retry = Some(RetryPolicy::list(RETRY_MS.map(Duration::from_millis)));
        }
        if rng.chance(10) {
            let at = now + 1 + rng.below(30_000);
            options.expire_at = Some(UNIX_EPOCH + Duration::from_millis(at));
        }
        if rng.chance(10) {
            options.max_run = Some(Duration::from_secs(9));
        }
        if rng.chance(10) {
            options = options.header("who", "me").header("why", "because");
        }
        if rng.chance(15) {
            let fresh = format!("own-{}", rng.below(1_000));
            let known = rng.pick(&self.ids).clone();
            options.id_override = Some(match rng.below(8) {
                0 => "not an id".to_owned(),
                1 | 2 => known,
                _ => fresh,
            });
        }
        if rng.chance(20) {
            options.signal_key = Some(rng.pick(&KEYS).to_string());
            if rng.chance(85) {
                let at = now + 1 + rng.below(20_000);
                options.run_at = Some(UNIX_EPOCH + Duration::from_millis(at));
            }
        }
        EnqueueRequest { queue: self.queue(), payload: self.payload(), options }
    }

    fn effects(&mut self, now: u64) -> SettlementEffects {
        let mut effects = SettlementEffects::default();
        if self.rng.chance(50) {
            return effects;
        }
        if self.rng.chance(30) {
            effects = effects.result(format!("result {}", self.rng.below(100)));
        }
        for _ in 0..self.rng.below(3) {
            effects = effects.enqueue(self.request(now));
        }
        for _ in 0..self.rng.below(3) {
            effects = effects.kv_put(self.kv_key(), self.value());
        }
        for _ in 0..self.rng.below(2) {
            let key = self.kv_key();
            // Most sets do not contradict themselves.
            if !effects.kv_writes.contains_key(&key) || self.rng.chance(10) {
                effects = effects.kv_delete(key);
            }
        }
        effects
    }

    fn id(&mut self, naive: &Naive, like: impl Fn(JobStatus) -> bool) -> String {
        let fit = |job: &&super::naive::Job| like(job.record.status);
        let fits: Vec<&String> = naive.jobs.iter().filter(fit).map(|job| &job.record.id).collect();
        match self.rng.pick_any(&fits) {
            Some(id) if self.rng.chance(85) => (*id).clone(),
            _ => self.rng.pick(&self.ids).clone(),
        }
    }

    fn claim_no(&mut self, naive: &Naive) -> Option<usize> {
        let live: Vec<usize> = naive
            .jobs
            .iter()
            .filter_map(|job| job.claim.as_ref())
            .map(|held| held.number)
            .collect();
        match self.rng.pick_any(&live) {
            Some(number) if self.rng.chance(90) => Some(*number),
            _ if naive.claims > 0 => Some(self.rng.index(naive.claims)),
            _ => None,
        }
    }

    fn expected_value(&mut self, naive: &Naive, key: &[u8]) -> Option<Vec<u8>> {
        match self.rng.below(4) {
            0 => None,
            1 => Some(b"other".to_vec()),
            _ => naive.kv.get(key).cloned(),
        }
    }

    /// The next command.
    pub(crate) fn next(&mut self, naive: &Naive) -> Op {
        let now = naive.now;
        let waiting = naive.jobs.iter().filter(|job| job.record.claimed_at.is_none()).count();
        // A crowded store is worked on rather than filled.
        let from = if waiting > 40 { 22 } else { 0 };
        match from + self.rng.below(100 - from) {
            0..14 => Op::Enqueue(self.request(now)),
            14..18 => Op::EnqueueWith(self.request(now), self.effects(now)),
            18..20 => {
                let payloads = (0..self.rng.below(4)).map(|_| self.payload()).collect();
                Op::Batch(self.queue(), payloads)
            }
            20..22 => Op::Commit(self.effects(now)),
            22..38 => Op::Claim {
                queue: self.queue(),
                max: 1 + self.rng.index(3),
                lease_ms: 1 + self.rng.below(30_000),
            },
            38 if self.rng.chance(50) => {
                let id = self.id(naive, |status| status != JobStatus::Done);
                Op::ClaimById(id, 1 + self.rng.below(30_000))
            }
            38 => Op::Pause(self.queue(), self.rng.chance(40)),
            39..41 => Op::DroppedClaim(self.queue(), self.rng.index(6)),
            41..66 => self.next_settlement(naive),
            66..71 => {
                let id = self.id(naive, |status| status != JobStatus::Done);
                Op::Cancel(id, self.effects(now))
            }
            71..75 => {
                let payload = self.rng.chance(50).then(|| b"woken".to_vec());
                Op::Wake(self.id(naive, |status| status == JobStatus::Scheduled), payload)
            }
            75..80 => {
                let payload = format!("signal {}", self.rng.below(1_000)).into_bytes();
                Op::Signal(self.queue(), self.key(), payload)
            }
            80..81 => Op::ClearSignal(self.queue(), self.key()),
            81..84 => Op::Requeue(self.id(naive, |status| status == JobStatus::Dead)),
            84..93 => self.next_kv(naive),
            _ => self.next_advance(naive),
        }
    }

    /// Often to the very moment at which something is due, or to just before it.
    fn next_advance(&mut self, naive: &Naive) -> Op {
        let due = naive.jobs.iter().filter_map(|job| {
            job.record.run_at.or(job.claim.as_ref().map(|held| held.lease_until))
        });
        let left: Vec<u64> = due.map(|at| at.saturating_sub(naive.now)).collect();
        match self.rng.pick_any(&left) {
            Some(left) if self.rng.chance(50) => {
                Op::Advance(left.saturating_sub(self.rng.below(2)))
            }
            _ => {
                let by = if self.rng.chance(70) { 4_000 } else { 60_000 };
                Op::Advance(self.rng.below(by))
            }
        }
    }

    fn next_settlement(&mut self, naive: &Naive) -> Op {
        let Some(claim) = self.claim_no(naive) else {
            return Op::Advance(10);
        };
        let effects = self.effects(naive.now);
        match self.rng.below(10) {
            0..5 => Op::Ack(claim, effects),
            5..7 => Op::Nack(claim, format!("error {}", self.rng.below(100)), effects),
            7..8 => Op::DeadLetter(claim, "given up".to_owned(), effects),
            _ => {
                let lease_ms = 1 + self.rng.below(40_000);
                Op::Renew(claim, lease_ms)
            }
        }
    }

    fn next_kv(&mut self, naive: &Naive) -> Op {
        let key = self.kv_key();
        let expected = self.expected_value(naive, &key);
        match self.rng.below(6) {
            0 => Op::KvPut(key, self.value()),
            1 => Op::KvDelete(key),
            2 | 3 => Op::ComparePut(key, expected, self.value()),
            4 => Op::CompareDelete(key, expected.unwrap_or_default()),
            _ => Op::CompareCommit(key, expected, self.effects(naive.now)),
        }
    }
}
