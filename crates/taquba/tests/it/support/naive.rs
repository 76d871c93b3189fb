//! A queue written down as plainly as possible: one `Vec` of jobs, one map of rows, no store, no order of commits. It
//! shares no code with the queue's lifecycle. What it says after a command is what the real one must show.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use taquba::{
    AttemptOutcome, CancelOutcome, EnqueueRequest, EnqueueResult, JobAttempt, JobRecord, JobStatus,
    MAX_KV_VALUE_SIZE, NackOutcome, QueueConfig, QueueName, SettlementEffects, SignalDelivery,
    WakeOutcome,
};

use super::op::{Answer, Op};

/// One job.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) record: JobRecord,
    /// Its place in line, given at enqueue.
    pub(crate) order: u64,
    pub(crate) signal_key: Option<String>,
    pub(crate) claim: Option<Held>,
    /// Delays in milliseconds after each attempt, the last one for all further ones.
    pub(crate) delays: Option<Vec<u64>>,
    pub(crate) history: Vec<JobAttempt>,
}

impl Job {
    /// An attempt ended, or the job came back from the dead.
    fn record(&mut self, now: u64, outcome: AttemptOutcome, error: Option<&str>) {
        self.history.push(JobAttempt {
            attempt: self.record.attempts,
            claimed_at: self.record.claimed_at,
            recorded_at: now,
            outcome,
            error: error.map(str::to_owned),
        });
    }
}

/// What a claim adds.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// The number of the hand-over.
    pub(crate) number: usize,
    pub(crate) lease_until: u64,
    /// Known to survive a crash.
    pub(crate) durable: bool,
    /// The job before, which a crash may bring back.
    pub(crate) before: Box<Job>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Naive {
    pub(crate) now: u64,
    /// Payloads larger than this have objects of their own.
    pub(crate) offload_above: Option<usize>,
    pub(crate) configs: BTreeMap<String, QueueConfig>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) done: BTreeMap<String, i64>,
    pub(crate) seen_queues: BTreeSet<String>,
    pub(crate) paused: BTreeSet<String>,
    pub(crate) kv: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) signals: BTreeMap<(String, String), Vec<u8>>,
    /// Hand-overs so far.
    pub(crate) claims: usize,
    orders: u64,
}

/// The delays of the one retry policy that jobs of their own have.
pub(crate) const RETRY_MS: [u64; 3] = [0, 1_500, 4_000];

type Refused = String;

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

impl Naive {
    pub(crate) fn new(now: u64, configs: BTreeMap<String, QueueConfig>) -> Self {
        Self { now, configs, ..Self::default() }
    }

    pub(crate) fn job(&self, id: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.record.id == id)
    }

    fn job_mut(&mut self, id: &str) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.record.id == id)
    }

    /// The job that a hand-over still holds.
    pub(crate) fn held_by(&self, number: usize) -> Option<&Job> {
        let holds = |job: &&Job| job.claim.as_ref().is_some_and(|held| held.number == number);
        self.jobs.iter().find(holds)
    }

    fn config(&self, queue: &str) -> QueueConfig {
        self.configs.get(queue).cloned().unwrap_or_default()
    }

    /// Does one command. `ids` are the ids that the real queue drew, in order; past them, made-up ones.
    pub(crate) fn apply(&mut self, op: &Op, ids: Vec<String>) -> Answer {
        let mut ids = Ids { drawn: ids.into() };
        let answer = self.apply_one(op, &mut ids).unwrap_or_else(Answer::Refused);
        let deferred = matches!(op, Op::Claim { .. } | Op::Renew(..));
        if !deferred && !matches!(answer, Answer::Refused(_)) {
            self.all_durable();
        }
        answer
    }

    /// A durable call has returned. Durable with it are the claims that were stored when they began: those that gave up
    /// a dedup key or an expiry. Others are held back for a while.
    pub(crate) fn all_durable(&mut self) {
        for held in self.jobs.iter_mut().filter_map(|job| job.claim.as_mut()) {
            let before = &held.before.record;
            held.durable |= before.dedup_key.is_some() || before.expire_at.is_some();
        }
    }

    /// A close has returned: every claim is durable.
    pub(crate) fn closed(&mut self) {
        for held in self.jobs.iter_mut().filter_map(|job| job.claim.as_mut()) {
            held.durable = true;
        }
    }

    fn apply_one(&mut self, op: &Op, ids: &mut Ids) -> Result<Answer, Refused> {
        match op {
            Op::Enqueue(request) => {
                check_request(request)?;
                let result = self.admit(request, ids)?;
                Ok(Answer::Results(vec![result]))
            }
            Op::EnqueueWith(request, effects) => {
                check_request(request)?;
                check(effects)?;
                let before = self.clone();
                let first = self.admit(request, ids)?;
                let mut results = vec![first];
                if matches!(results[0], EnqueueResult::New(_)) {
                    match self.effects(effects, ids) {
                        Ok(more) => results.extend(more),
                        Err(refused) => {
                            *self = before;
                            return Err(refused);
                        }
                    }
                }
                Ok(Answer::Results(results))
            }
            Op::Batch(queue, payloads) => {
                let request = |payload: &Vec<u8>| EnqueueRequest {
                    queue: queue.clone(),
                    payload: payload.clone(),
                    ..EnqueueRequest::default()
                };
                let admit = |payload| self.admit(&request(payload), ids);
                Ok(Answer::Results(payloads.iter().map(admit).collect::<Result<_, _>>()?))
            }
            Op::Commit(effects) => {
                check(effects)?;
                self.effects(effects, ids).map(Answer::Results)
            }
            Op::Claim { queue, max, lease_ms } => Ok(self.claim(queue, *max, *lease_ms)),
            Op::ClaimById(id, lease_ms) => Ok(match self.job(id).map(|job| job.record.status) {
                Some(JobStatus::Pending | JobStatus::Scheduled) => {
                    let claimed = self.claim_these(vec![id.clone()], *lease_ms);
                    self.held_by(self.claims - 1).unwrap();
                    // Its answer is durable.
                    self.job_mut(id).unwrap().claim.as_mut().unwrap().durable = true;
                    claimed
                }
                Some(_) => Answer::NotClaimed("not claimable"),
                None => Answer::NotClaimed("not found"),
            }),
            Op::Pause(queue, true) => Ok(Answer::Did(self.paused.insert(queue.clone()))),
            Op::Pause(queue, false) => Ok(Answer::Did(self.paused.remove(queue))),
            Op::DroppedClaim(..) => Ok(Answer::Unit),
            Op::Ack(number, effects) => {
                check(effects)?;
                let id = self.held_id(*number)?;
                let results = self.effects(effects, ids)?;
                self.complete(&id, effects.result.clone());
                Ok(Answer::Results(results))
            }
            Op::Nack(number, error, effects) => {
                check(effects)?;
                let id = self.held_id(*number)?;
                if self.job(&id).is_some_and(|job| !job.record.is_last_attempt()) {
                    self.retry(&id, error);
                    return Ok(Answer::Nacked(NackOutcome::Retried));
                }
                let results = self.effects(effects, ids)?;
                self.die(&id, error);
                Ok(Answer::Nacked(NackOutcome::DeadLettered(results)))
            }
            Op::DeadLetter(number, reason, effects) => {
                check(effects)?;
                let id = self.held_id(*number)?;
                let results = self.effects(effects, ids)?;
                self.die(&id, reason);
                Ok(Answer::Results(results))
            }
            Op::Renew(number, lease_ms) => self.renew(*number, *lease_ms),
            Op::Cancel(id, effects) => self.cancel(id, effects, ids),
            Op::Wake(id, payload) => Ok(Answer::Woken(self.wake(id, payload.clone()))),
            Op::Signal(queue, key, payload) => Ok(self.signal(queue, key, payload)),
            Op::ClearSignal(queue, key) => {
                let removed = self.signals.remove(&(queue.clone(), key.clone()));
                Ok(Answer::Did(removed.is_some()))
            }
            Op::Requeue(id) => self.requeue(id),
            Op::Advance(by) => {
                self.now += by;
                self.look_at_time();
                Ok(Answer::Unit)
            }
            _ => self.apply_kv(op, ids),
        }
    }

    fn apply_kv(&mut self, op: &Op, ids: &mut Ids) -> Result<Answer, Refused> {
        let put = |key: &Vec<u8>, value: &Vec<u8>| {
            SettlementEffects::default().kv_put(key.as_slice(), value.as_slice())
        };
        let delete = |key: &Vec<u8>| SettlementEffects::default().kv_delete(key.as_slice());
        let (key, expected, effects) = match op {
            Op::KvPut(key, value) => {
                let effects = put(key, value);
                check(&effects)?;
                self.effects(&effects, ids)?;
                return Ok(Answer::Unit);
            }
            Op::KvDelete(key) => {
                self.effects(&delete(key), ids)?;
                return Ok(Answer::Unit);
            }
            Op::ComparePut(key, expected, value) => (key, expected.clone(), put(key, value)),
            Op::CompareDelete(key, expected) => (key, Some(expected.clone()), delete(key)),
            Op::CompareCommit(key, expected, effects) => (key, expected.clone(), effects.clone()),
            other => panic!("not a KV command: {other:?}"),
        };
        check(&effects)?;
        let results = match self.kv.get(key) == expected.as_ref() {
            true => Some(self.effects(&effects, ids)?),
            false => None,
        };
        Ok(match op {
            Op::CompareCommit(..) => Answer::Compared(results),
            _ => Answer::Did(results.is_some()),
        })
    }

    /// All effects or none.
    fn effects(
        &mut self,
        effects: &SettlementEffects,
        ids: &mut Ids,
    ) -> Result<Vec<EnqueueResult>, Refused> {
        let before = self.clone();
        let mut results = Vec::new();
        for request in &effects.enqueues {
            match self.admit(request, ids) {
                Ok(result) => results.push(result),
                Err(refused) => {
                    *self = before;
                    return Err(refused);
                }
            }
        }
        for key in &effects.kv_deletes {
            self.kv.remove(key);
        }
        self.kv.extend(effects.kv_writes.clone());
        Ok(results)
    }

    fn admit(&mut self, request: &EnqueueRequest, ids: &mut Ids) -> Result<EnqueueResult, Refused> {
        let EnqueueRequest { queue, payload, options } = request;
        let config = self.config(queue);
        let owns = |job: &&Job| {
            job.record.queue == *queue
                && options.dedup_key.is_some()
                && job.record.dedup_key == options.dedup_key
        };
        if let Some(holder) = self.jobs.iter().find(owns) {
            return Ok(EnqueueResult::AlreadyEnqueued(holder.record.id.clone()));
        }
        if options.id_override.as_ref().is_some_and(|id| self.job(id).is_some()) {
            return Err("duplicate id".to_owned());
        }
        let run_at = options.run_at.map(|at| at.duration_since(UNIX_EPOCH).map_or(0, ms));
        let mut run_at = run_at.filter(|at| *at > self.now);
        let mut signal_key = options.signal_key.clone();
        let mut wake = None;
        if let Some(key) = &options.signal_key {
            if run_at.is_none() {
                return Err("signal key without timeout".to_owned());
            }
            let waits =
                |job: &Job| job.record.queue == *queue && job.signal_key.as_ref() == Some(key);
            if self.jobs.iter().any(waits) {
                return Err("signal key taken".to_owned());
            }
            wake = self.signals.remove(&(queue.clone(), key.clone()));
            if wake.is_some() {
                run_at = None;
                signal_key = None;
            }
        }
        self.orders += 1;
        let id = match &options.id_override {
            Some(id) => ids.skip(id),
            None => ids.take(self.orders),
        };
        self.seen_queues.insert(queue.clone());
        let record = JobRecord {
            id: id.clone(),
            queue: QueueName::new(queue.clone()).unwrap(),
            payload: payload.clone(),
            payload_ref: self
                .offload_above
                .filter(|above| payload.len() > *above)
                .map(|_| "an object".to_owned()),
            headers: options.headers.clone(),
            status: if run_at.is_some() { JobStatus::Scheduled } else { JobStatus::Pending },
            attempts: 0,
            max_attempts: options.max_attempts.unwrap_or(config.max_attempts),
            enqueued_at: self.now,
            claimed_at: None,
            run_at,
            priority: options.priority.unwrap_or(config.default_priority),
            last_error: None,
            dedup_key: options.dedup_key.clone(),
            completed_at: None,
            failed_at: None,
            progress: None,
            cancel_requested: false,
            woken_at: wake.is_some().then_some(self.now),
            wake_payload: wake,
            max_run: options.max_run,
            expire_at: options.expire_at.map(|at| at.duration_since(UNIX_EPOCH).map_or(0, ms)),
            result: None,
        };
        // The generator gives no other policies than this one.
        let delays = options.retry.is_some().then(|| RETRY_MS.to_vec());
        self.jobs.push(Job {
            record,
            order: self.orders,
            signal_key,
            claim: None,
            delays,
            history: Vec::new(),
        });
        Ok(EnqueueResult::New(id))
    }

    /// The pending jobs of a queue in the order in which they are handed out.
    pub(crate) fn line(&self, queue: &str) -> Vec<&Job> {
        let ready =
            |job: &&Job| job.record.queue == *queue && job.record.status == JobStatus::Pending;
        let mut line: Vec<&Job> = self.jobs.iter().filter(ready).collect();
        line.sort_by_key(|job| (job.record.priority, job.order));
        line
    }

    fn claim(&mut self, queue: &str, max: usize, lease_ms: u64) -> Answer {
        if self.paused.contains(queue) {
            return Answer::Claims(Vec::new());
        }
        let line = self.line(queue);
        let ids = line.iter().take(max).map(|job| job.record.id.clone()).collect();
        self.claim_these(ids, lease_ms)
    }

    fn claim_these(&mut self, ids: Vec<String>, lease_ms: u64) -> Answer {
        let now = self.now;
        let mut claims = Vec::new();
        for id in ids {
            let number = self.claims;
            self.claims += 1;
            let job = self.job_mut(&id).unwrap();
            let before = Box::new(job.clone());
            job.record.status = JobStatus::Claimed;
            job.record.attempts += 1;
            job.record.claimed_at = Some(now);
            job.record.dedup_key = None;
            job.record.run_at = None;
            job.signal_key = None;
            let lease_until = now + lease_ms;
            job.claim = Some(Held { number, lease_until, durable: false, before });
            claims.push((job.record.clone(), job.record.cancel_requested));
        }
        Answer::Claims(claims)
    }

    fn held_id(&self, number: usize) -> Result<String, Refused> {
        let held = self.held_by(number).ok_or_else(|| "claim lost".to_owned())?;
        Ok(held.record.id.clone())
    }

    fn complete(&mut self, id: &str, result: Option<Vec<u8>>) {
        let now = self.now;
        let queue = self.job(id).unwrap().record.queue.as_str().to_owned();
        *self.done.entry(queue.clone()).or_default() += 1;
        if self.config(&queue).keep_done_jobs.is_none() {
            self.jobs.retain(|job| job.record.id != id);
        } else {
            self.job_mut(id).unwrap().record(now, AttemptOutcome::Completed, None);
            let job = self.end_claim(id);
            job.record.status = JobStatus::Done;
            job.record.completed_at = Some(now);
            job.record.result = result;
        }
    }

    fn end_claim(&mut self, id: &str) -> &mut Job {
        let job = self.job_mut(id).unwrap();
        job.claim = None;
        job.record.claimed_at = None;
        job
    }

    fn retry(&mut self, id: &str, error: &str) {
        let now = self.now;
        let record = &self.job(id).unwrap().record;
        let (attempts, config) = (record.attempts, self.config(&record.queue));
        let mut delay = config.retry_backoff_base;
        for _ in 1..attempts {
            delay = (delay * 2).min(config.retry_backoff_max);
        }
        let mut delay = ms(delay.min(config.retry_backoff_max));
        if let Some(delays) = &self.job(id).unwrap().delays {
            let at = usize::try_from(attempts - 1).unwrap();
            delay = *delays.get(at).or(delays.last()).unwrap();
        }
        self.job_mut(id).unwrap().record(now, AttemptOutcome::Retried, Some(error));
        let job = self.end_claim(id);
        job.record.last_error = Some(error.to_owned());
        if delay == 0 {
            job.record.status = JobStatus::Pending;
        } else {
            job.record.status = JobStatus::Scheduled;
            job.record.run_at = Some(now + delay);
        }
    }

    fn die(&mut self, id: &str, error: &str) {
        let now = self.now;
        self.job_mut(id).unwrap().record(now, AttemptOutcome::DeadLettered, Some(error));
        let job = self.end_claim(id);
        job.record.status = JobStatus::Dead;
        job.record.failed_at = Some(now);
        job.record.last_error = Some(error.to_owned());
        job.record.run_at = None;
        job.record.dedup_key = None;
        job.signal_key = None;
    }

    fn renew(&mut self, number: usize, lease_ms: u64) -> Result<Answer, Refused> {
        let until = self.now + lease_ms;
        let id = self.held_id(number)?;
        let job = self.job_mut(&id).unwrap();
        // A request from an earlier attempt counts as one of this: such a claim starts cancelled.
        if job.record.cancel_requested {
            return Err("cancel requested".to_owned());
        }
        job.claim.as_mut().unwrap().lease_until = until;
        Ok(Answer::Until(until))
    }

    fn cancel(
        &mut self,
        id: &str,
        effects: &SettlementEffects,
        ids: &mut Ids,
    ) -> Result<Answer, Refused> {
        check(effects)?;
        match self.job(id).map(|job| job.record.status) {
            Some(JobStatus::Pending | JobStatus::Scheduled) => {
                let before = self.clone();
                self.jobs.retain(|job| job.record.id != id);
                match self.effects(effects, ids) {
                    Ok(results) => Ok(Answer::Cancelled(CancelOutcome::Removed, results)),
                    Err(refused) => {
                        *self = before;
                        Err(refused)
                    }
                }
            }
            Some(JobStatus::Claimed) => {
                let job = self.job_mut(id).unwrap();
                job.record.cancel_requested = true;
                // The request is stored with the claim.
                job.claim.as_mut().unwrap().durable = true;
                Ok(Answer::Cancelled(CancelOutcome::Requested, Vec::new()))
            }
            _ => Ok(Answer::Cancelled(CancelOutcome::NotFound, Vec::new())),
        }
    }

    fn wake(&mut self, id: &str, payload: Option<Vec<u8>>) -> WakeOutcome {
        let now = self.now;
        let Some(job) = self.job_mut(id) else {
            return WakeOutcome::NotFound;
        };
        if job.record.status != JobStatus::Scheduled {
            return WakeOutcome::NotScheduled;
        }
        job.record.status = JobStatus::Pending;
        job.record.run_at = None;
        job.record.woken_at = Some(now);
        // A wake that carries nothing does not take back what an earlier signal brought.
        job.record.wake_payload = payload.or(job.record.wake_payload.take());
        job.signal_key = None;
        WakeOutcome::Woken
    }

    fn signal(&mut self, queue: &str, key: &str, payload: &[u8]) -> Answer {
        let waits =
            |job: &&Job| job.record.queue == *queue && job.signal_key.as_deref() == Some(key);
        let waiter = self.jobs.iter().find(waits).map(|job| job.record.id.clone());
        Answer::Signalled(match waiter {
            Some(id) => {
                self.wake(&id, Some(payload.to_vec()));
                SignalDelivery::Delivered
            }
            None => {
                self.signals.insert((queue.to_owned(), key.to_owned()), payload.to_vec());
                SignalDelivery::Buffered
            }
        })
    }

    fn requeue(&mut self, id: &str) -> Result<Answer, Refused> {
        let now = self.now;
        let job = self.job_mut(id).ok_or_else(|| "job not found".to_owned())?;
        let state = match job.record.status {
            JobStatus::Dead => {
                job.record(now, AttemptOutcome::Requeued, None);
                job.record.expire_at.take_if(|at| *at <= now);
                job.record.status = JobStatus::Pending;
                job.record.attempts = 0;
                job.record.last_error = None;
                job.record.failed_at = None;
                job.record.cancel_requested = false;
                return Ok(Answer::Unit);
            }
            JobStatus::Pending => "pending",
            JobStatus::Scheduled => "scheduled",
            JobStatus::Claimed => "claimed",
            JobStatus::Done => "done",
        };
        Err(format!("invalid state {state}"))
    }

    /// Leases that ran out end, scheduled jobs that are due become ready.
    fn look_at_time(&mut self) {
        let now = self.now;
        let over = |job: &&Job| job.claim.as_ref().is_some_and(|held| held.lease_until <= now);
        let expired: Vec<String> =
            self.jobs.iter().filter(over).map(|job| job.record.id.clone()).collect();
        for id in expired {
            if self.job(&id).unwrap().record.is_last_attempt() {
                self.die(&id, "lease expired");
            } else {
                let error = "lease expired";
                self.job_mut(&id).unwrap().record(now, AttemptOutcome::LeaseExpired, Some(error));
                let job = self.end_claim(&id);
                job.record.status = JobStatus::Pending;
                job.record.last_error = Some("lease expired".to_owned());
            }
        }
        let over = |job: &&Job| {
            let waits = matches!(job.record.status, JobStatus::Pending | JobStatus::Scheduled);
            waits && job.record.expire_at.is_some_and(|at| at <= now)
        };
        let expired: Vec<String> =
            self.jobs.iter().filter(over).map(|job| job.record.id.clone()).collect();
        expired.iter().for_each(|id| self.die(id, "expired"));
        let configs = self.configs.clone();
        self.jobs.retain(|job| {
            let config = configs.get(job.record.queue.as_str()).cloned().unwrap_or_default();
            let over = |at: Option<u64>, keep: Option<Duration>| {
                at.zip(keep).is_some_and(|(at, keep)| at + ms(keep) <= now)
            };
            !over(job.record.completed_at, config.keep_done_jobs)
                && !over(job.record.failed_at, config.dead_retention)
        });
        for job in &mut self.jobs {
            if job.record.run_at.is_some_and(|at| at <= now) {
                job.record.status = JobStatus::Pending;
                job.record.run_at = None;
                job.signal_key = None;
            }
        }
    }

    /// The process ended and the store was opened again. `lost` says of a claim that was not known to be durable
    /// whether the store took it back.
    pub(crate) fn reopen(&mut self, lost: impl Fn(&Job) -> bool) {
        for job in &mut self.jobs {
            let Some(held) = job.claim.as_ref() else {
                continue;
            };
            if !held.durable && lost(job) {
                *job = (*held.before).clone();
                continue;
            }
            job.claim = None;
            let error = "claim interrupted by process exit";
            let outcome = match job.record.is_last_attempt() {
                true => AttemptOutcome::DeadLettered,
                false => AttemptOutcome::Interrupted,
            };
            job.record(self.now, outcome, Some(error));
            job.record.claimed_at = None;
            if job.record.is_last_attempt() {
                job.record.status = JobStatus::Dead;
                job.record.failed_at = Some(self.now);
                job.record.last_error = Some(error.to_owned());
            } else {
                job.record.status = JobStatus::Pending;
            }
        }
    }

    /// The jobs of a queue in a state, in the order of their listing.
    pub(crate) fn listing(&self, queue: &str, status: JobStatus) -> Vec<&Job> {
        let of = |job: &&Job| job.record.queue == *queue && job.record.status == status;
        let mut jobs: Vec<&Job> = self.jobs.iter().filter(of).collect();
        match status {
            JobStatus::Pending => return self.line(queue),
            JobStatus::Scheduled => jobs.sort_by_key(|job| (job.record.run_at, job.order)),
            JobStatus::Done => jobs.sort_by_key(|job| (job.record.completed_at, job.order)),
            JobStatus::Claimed | JobStatus::Dead => {
                jobs.sort_by(|a, b| a.record.id.cmp(&b.record.id));
            }
        }
        jobs
    }

    pub(crate) fn count(&self, queue: &str, status: JobStatus) -> i64 {
        i64::try_from(self.listing(queue, status).len()).unwrap()
    }
}

/// Ids that were drawn elsewhere.
struct Ids {
    drawn: std::collections::VecDeque<String>,
}

impl Ids {
    fn take(&mut self, order: u64) -> String {
        self.drawn.pop_front().unwrap_or_else(|| format!("?{order}"))
    }

    /// A job came in under its own id, which stands among the drawn ones.
    fn skip(&mut self, id: &str) -> String {
        if self.drawn.front().is_some_and(|front| front == id) {
            self.drawn.pop_front();
        }
        id.to_owned()
    }
}

fn check_request(request: &EnqueueRequest) -> Result<(), Refused> {
    match &request.options.id_override {
        Some(id) if id.contains(' ') => Err("invalid id".to_owned()),
        _ => Ok(()),
    }
}

fn check(effects: &SettlementEffects) -> Result<(), Refused> {
    effects.enqueues.iter().try_for_each(check_request)?;
    if effects.kv_deletes.iter().any(|key| effects.kv_writes.contains_key(key)) {
        return Err("conflicting effect".to_owned());
    }
    if effects.kv_writes.values().any(|value| value.len() > MAX_KV_VALUE_SIZE) {
        return Err("value too large".to_owned());
    }
    Ok(())
}
