//! The real queue behind the same vocabulary as the naive one, and the comparison of what the two show.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::ObjectStore;
use taquba::{
    Claim, ClaimOutcome, Clock, EnqueueResult, Error, JobRecord, JobStatus, Knobs, MockClock,
    OpenOptions, Queue, QueueReader, QueueStats, QueueView, ReaderMode, ReaderOptions,
};

use super::naive::Naive;
use super::op::{Answer, Op, refusal};
use super::rng::Rng;
use super::within;

/// All states of a job.
pub(crate) const STATES: [JobStatus; 5] = [
    JobStatus::Pending,
    JobStatus::Scheduled,
    JobStatus::Claimed,
    JobStatus::Done,
    JobStatus::Dead,
];

/// Options for a queue whose time a test moves, its configurations those of the naive one.
pub(crate) fn options(naive: &Naive, clock: &MockClock) -> OpenOptions {
    let configs = naive.configs.iter().map(|(name, config)| (name.clone(), config.clone()));
    OpenOptions {
        queue_configs: configs.collect(),
        clock: Arc::new(clock.clone()),
        payload_offload_threshold: naive.offload_above,
        ..OpenOptions::default()
    }
}

/// The real queue: one handle after the other on the same bytes.
pub(crate) struct Real {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) clock: MockClock,
    pub(crate) queue: Option<Queue>,
    pub(crate) knobs: Knobs,
    /// How often the owners beat.
    pub(crate) heartbeat: Option<Duration>,
    /// By the number of the hand-over, over all openings.
    pub(crate) claims: Vec<Claim>,
}

pub(crate) const PATH: &str = "store";

impl Real {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, now: u64) -> Self {
        Self {
            store,
            clock: MockClock::new(now),
            queue: None,
            knobs: Knobs::default(),
            heartbeat: None,
            claims: Vec::new(),
        }
    }

    pub(crate) async fn open(&mut self, naive: &Naive) -> Result<(), Error> {
        let (knobs, liveness_heartbeat) = (self.knobs, self.heartbeat);
        let options = OpenOptions { knobs, liveness_heartbeat, ..options(naive, &self.clock) };
        let open = Queue::open_with_options(self.store.clone(), PATH, options);
        self.queue = Some(within("open", open).await?);
        Ok(())
    }

    pub(crate) fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("the queue is open")
    }

    /// Does one command; an error only for what is no refusal.
    pub(crate) async fn apply(&mut self, op: &Op) -> Result<Answer, Error> {
        match within(&format!("{op:?}"), self.apply_one(op)).await {
            Ok(answer) => Ok(answer),
            Err(error) => match refusal(&error) {
                Some(refused) => Ok(Answer::Refused(refused)),
                None => Err(error),
            },
        }
    }

    async fn apply_one(&mut self, op: &Op) -> Result<Answer, Error> {
        let queue = self.queue.as_ref().expect("the queue is open");
        let claim = |number: &usize| &self.claims[*number];
        let unit = |()| Answer::Unit;
        Ok(match op.clone() {
            Op::Enqueue(request) => {
                let (options, dedup) = (request.options.clone(), request.options.dedup_key);
                let plain = options == taquba::EnqueueOptions::default();
                let id = match plain {
                    true => queue.enqueue(&request.queue, request.payload.clone()).await?,
                    false => {
                        queue.enqueue_with(&request.queue, request.payload.clone(), options).await?
                    }
                };
                // This call does not say which of the two it was; the payload does.
                let job = queue.view().get_job(&id).await?;
                let other = job.is_none_or(|job| job.payload != request.payload);
                match dedup.is_some() && other {
                    true => Answer::Results(vec![EnqueueResult::AlreadyEnqueued(id)]),
                    false => Answer::Results(vec![EnqueueResult::New(id)]),
                }
            }
            Op::EnqueueWith(r, effects) => {
                let call = queue.enqueue_with_effects(&r.queue, r.payload, r.options, effects);
                let (first, mut rest) = call.await?;
                rest.insert(0, first);
                Answer::Results(rest)
            }
            Op::Batch(name, payloads) => {
                let ids = queue.enqueue_batch(&name, payloads).await?;
                Answer::Results(ids.into_iter().map(EnqueueResult::New).collect())
            }
            Op::Commit(effects) => Answer::Results(queue.commit_effects(effects).await?),
            Op::Claim { queue: name, max, lease_ms } => {
                let lease = Duration::from_millis(lease_ms);
                let claims = match max {
                    1 => queue.claim(&name, lease).await?.into_iter().collect(),
                    max => queue.claim_batch(&name, max, lease).await?,
                };
                let shown = claims
                    .iter()
                    .map(|claim| (shown(claim.job()), claim.cancel_token().is_cancelled()));
                let answer = Answer::Claims(shown.collect());
                self.claims.extend(claims);
                answer
            }
            Op::ClaimById(id, lease_ms) => {
                let lease = Duration::from_millis(lease_ms);
                match queue.claim_by_id(&id, lease).await? {
                    ClaimOutcome::Claimed(claim) => {
                        let fired = claim.cancel_token().is_cancelled();
                        let answer = Answer::Claims(vec![(shown(claim.job()), fired)]);
                        self.claims.push(*claim);
                        answer
                    }
                    ClaimOutcome::NotClaimable => Answer::NotClaimed("not claimable"),
                    ClaimOutcome::NotFound => Answer::NotClaimed("not found"),
                }
            }
            Op::Pause(name, true) => Answer::Did(queue.pause(&name).await?),
            Op::Pause(name, false) => Answer::Did(queue.resume(&name).await?),
            Op::DroppedClaim(name, yields) => dropped_claim(queue, &name, yields).await?,
            Op::Ack(n, effects) => Answer::Results(queue.ack_with(claim(&n), effects).await?),
            Op::Nack(n, error, effects) => {
                Answer::Nacked(queue.nack_with(claim(&n), &error, effects).await?)
            }
            Op::DeadLetter(n, reason, effects) => {
                Answer::Results(queue.dead_letter_with(claim(&n), &reason, effects).await?)
            }
            Op::Renew(n, ms) => {
                Answer::Until(queue.renew_lease(claim(&n), Duration::from_millis(ms))?)
            }
            Op::Cancel(id, effects) => {
                let (outcome, results) = queue.cancel_with(&id, effects).await?;
                Answer::Cancelled(outcome, results)
            }
            Op::Wake(id, payload) => Answer::Woken(queue.wake_scheduled(&id, payload).await?),
            Op::Signal(name, key, payload) => {
                Answer::Signalled(queue.send_signal(&name, &key, payload).await?)
            }
            Op::ClearSignal(name, key) => Answer::Did(queue.clear_signal(&name, &key).await?),
            Op::Requeue(id) => queue.requeue_dead_job(&id).await.map(unit)?,
            Op::KvPut(key, value) => queue.kv_put(&key, &value).await.map(unit)?,
            Op::KvDelete(key) => queue.kv_delete(&key).await.map(unit)?,
            Op::ComparePut(key, expected, value) => {
                Answer::Did(queue.kv_compare_put(&key, expected.as_deref(), &value).await?)
            }
            Op::CompareDelete(key, expected) => {
                Answer::Did(queue.kv_compare_delete(&key, &expected).await?)
            }
            Op::CompareCommit(key, expected, effects) => {
                let call = queue.kv_compare_commit(&key, expected.as_deref(), effects);
                Answer::Compared(call.await?)
            }
            Op::Advance(by) => {
                self.clock.advance(Duration::from_millis(by));
                queue.reap_now().await?;
                queue.promote_scheduled_now().await.map(unit)?
            }
        })
    }

    /// Ends the process as a crash does, and waits until its loop is gone.
    pub(crate) async fn crash(&mut self) {
        if let Some(queue) = self.queue.take() {
            let closed = queue.closed();
            drop(queue);
            within("the end of a dropped queue", closed).await;
        }
    }

    /// After an opening: a claim that was not known to be durable is back without an attempt charged, or was durable.
    /// Both are right; the naive queue follows.
    pub(crate) async fn follow(&self, naive: &mut Naive) -> Result<(), Error> {
        let mut lost = BTreeSet::new();
        for job in &naive.jobs {
            let Some(held) = job.claim.as_ref().filter(|held| !held.durable) else {
                continue;
            };
            let id = &job.record.id;
            let now = self.queue().view().get_job(id).await?;
            let uncharged = |now: &JobRecord| {
                // Back in line, it may have expired by now.
                let expired = now.last_error.as_deref() == Some("expired");
                let waits = now.status == JobStatus::Pending || expired;
                waits && now.attempts == held.before.record.attempts
            };
            if now.as_ref().is_some_and(uncharged) {
                lost.insert(id.clone());
            }
        }
        naive.reopen(|job| lost.contains(&job.record.id));
        Ok(())
    }

    /// After a clean close: everything that a reader shows must be what the naive one says.
    pub(crate) async fn compare_reader(&self, naive: &Naive, known_ids: &[String]) {
        let options = ReaderOptions::default().mode(ReaderMode::FollowLatest);
        let open = QueueReader::open_with_options(self.store.clone(), PATH, options);
        let reader = within("open a reader", open).await.unwrap();
        let view = reader.view();
        for queue in naive.configs.keys() {
            assert_eq!(view.stats(queue).await.unwrap(), expected_stats(naive, queue));
            for status in STATES {
                let jobs = naive.listing(queue, status);
                let expected: Vec<_> = jobs.into_iter().map(|job| listed(&job.record)).collect();
                let shown = list_view(view, queue, status, 3).await;
                let shown: Vec<_> = shown.iter().map(self::shown).collect();
                let difference = format!(
                    "a reader's {status:?} jobs of {queue}:\n shown {}\n expected {}",
                    brief(&shown),
                    brief(&expected)
                );
                assert!(shown == expected, "{difference}");
            }
        }
        for id in known_ids {
            let expected = naive.job(id).map(|job| job.record.clone());
            let shown = view.get_job(id).await.unwrap().map(|job| self::shown(&job));
            assert_eq!(shown, expected, "a reader's job {id}");
            let expected = naive.job(id).map(|job| job.history.clone()).unwrap_or_default();
            assert_eq!(view.attempt_history(id).await.unwrap(), expected, "history of {id}");
        }
        for (key, value) in &naive.kv {
            assert_eq!(view.kv_get(key).await.unwrap().as_deref(), Some(value.as_slice()));
        }
        let beat = reader.writer_heartbeat().await.unwrap();
        assert_eq!(beat.map(|beat| beat.closed), self.heartbeat.map(|_| true));
        reader.close().await.unwrap();
    }

    /// Everything that the queue shows must be what the naive one says.
    pub(crate) async fn compare(&self, naive: &Naive, known_ids: &[String], rng: &mut Rng) {
        if let Some(difference) = self.difference(naive, known_ids, rng).await {
            panic!("{difference}");
        }
    }

    /// What the queue shows otherwise than the naive one.
    pub(crate) async fn difference(
        &self,
        naive: &Naive,
        known_ids: &[String],
        rng: &mut Rng,
    ) -> Option<String> {
        let view = self.queue().view();
        assert_eq!(self.clock.now_ms(), naive.now);
        let mut differences = Vec::new();
        let mut differ = |what: &str, shown: String, expected: String| {
            if shown != expected {
                differences.push(format!("{what}:\n   shown    {shown}\n   expected {expected}"));
            }
        };
        // All of one queue each time, and of all now and then: what is wrong stays wrong.
        let all = rng.chance(20);
        let one = rng.index(naive.configs.len());
        for (n, queue) in naive.configs.keys().enumerate() {
            let stats = view.stats(queue).await.unwrap();
            differ("stats", format!("{stats:?}"), format!("{:?}", expected_stats(naive, queue)));
            if !all && n != one {
                continue;
            }
            for status in STATES {
                let jobs = naive.listing(queue, status);
                let expected: Vec<_> = jobs.into_iter().map(|job| listed(&job.record)).collect();
                let page = if rng.chance(20) { 1 + rng.index(6) } else { 100 };
                let shown = list(self.queue(), queue, status, page).await;
                let shown: Vec<_> = shown.iter().map(self::shown).collect();
                let what = format!("{status:?} jobs of {queue}, {page} a page");
                if shown != expected {
                    differ(&what, brief(&shown), brief(&expected));
                }
            }
        }
        for id in known_ids {
            let expected: Vec<_> =
                naive.job(id).map(|job| job.record.clone()).into_iter().collect();
            let shown: Vec<_> = view.get_job(id).await.unwrap().iter().map(shown).collect();
            if shown != expected {
                differ(&format!("job {id}"), brief(&shown), brief(&expected));
            }
            let shown = view.attempt_history(id).await.unwrap();
            let expected = naive.job(id).map(|job| job.history.clone()).unwrap_or_default();
            differ(&format!("history of {id}"), format!("{shown:#?}"), format!("{expected:#?}"));
        }
        let rows = view.kv_scan(b"", .., naive.kv.len() + 1 + rng.index(8)).await.unwrap();
        let shown: Vec<_> = rows.entries.iter().map(|(k, v)| (k.clone(), v.to_vec())).collect();
        let expected: Vec<_> = naive.kv.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert!(!rows.more || shown.len() > expected.len());
        differ("the caller's rows", format!("{shown:?}"), format!("{expected:?}"));
        let mut queues = view.list_queues().await.unwrap();
        queues.sort();
        differ(
            "the queues",
            format!("{queues:?}"),
            format!("{:?}", Vec::from_iter(&naive.seen_queues)),
        );
        for job in &naive.jobs {
            let (record, held) = (&job.record, job.claim.as_ref());
            let what = format!("the lease of {}", record.id);
            let expiry = self.queue().lease_expiry(&record.queue, &record.id);
            let until = held.map(|held| held.lease_until);
            differ(&what, format!("{expiry:?}"), format!("{until:?}"));
            if let Some(held) = held {
                let fired = self.claims[held.number].cancel_token().is_cancelled();
                let what = format!("the token of {}", record.id);
                differ(&what, format!("{fired}"), format!("{}", record.cancel_requested));
            }
        }
        (!differences.is_empty()).then(|| differences.join("\n"))
    }
}

/// Polls a claim once and drops it; returns when its job, if any, is back.
async fn dropped_claim(queue: &Queue, name: &str, yields: usize) -> Result<Answer, Error> {
    let claimed = queue.view().stats(name).await?.claimed;
    let mut claim = Box::pin(queue.claim_next(name));
    let done = futures_util::poll!(claim.as_mut());
    assert!(done.is_pending(), "a claim cannot be ready before the loop has run");
    // Zero: dropped before the loop sees it. More: dropped while the answer is on its way.
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
    drop(claim);
    for _ in 0..400 {
        queue.reap_now().await?;
        if queue.view().stats(name).await?.claimed == claimed {
            // A crash before the release is stored would charge the attempt.
            return queue.reap_now().await.map(|()| Answer::Unit);
        }
        taquba::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("a claim that reached nobody was not given back");
}

/// Records in few words, large payloads cut.
fn brief(records: &[JobRecord]) -> String {
    let brief = |record: &JobRecord| {
        let (len, mut short) = (record.payload.len(), record.clone());
        short.payload.truncate(6);
        let text = String::from_utf8_lossy(&short.payload).into_owned();
        short.payload.clear();
        format!("\n     payload {text}({len}) {short:?}")
    };
    records.iter().map(brief).collect()
}

/// A record as the naive queue can say it: which object has the payload, it cannot.
fn shown(record: &JobRecord) -> JobRecord {
    let payload_ref = record.payload_ref.as_ref().map(|_| "an object".to_owned());
    JobRecord { payload_ref, ..record.clone() }
}

/// How a listing shows a record: without a payload that has its own row.
pub(crate) fn listed(record: &JobRecord) -> JobRecord {
    let mut record = record.clone();
    if record.payload.len() > 512 || record.payload_ref.is_some() {
        record.payload.clear();
    }
    record
}

pub(crate) fn expected_stats(naive: &Naive, queue: &str) -> QueueStats {
    QueueStats {
        queue: queue.to_owned(),
        pending: naive.count(queue, JobStatus::Pending),
        claimed: naive.count(queue, JobStatus::Claimed),
        done: naive.done.get(queue).copied().unwrap_or_default(),
        dead: naive.count(queue, JobStatus::Dead),
        scheduled: naive.count(queue, JobStatus::Scheduled),
        paused: naive.paused.contains(queue),
    }
}

/// A whole listing, page by page.
pub(crate) async fn list(
    queue: &Queue,
    name: &str,
    status: JobStatus,
    page: usize,
) -> Vec<JobRecord> {
    list_view(queue.view(), name, status, page).await
}

async fn list_view(view: &QueueView, name: &str, status: JobStatus, page: usize) -> Vec<JobRecord> {
    let mut jobs = Vec::new();
    let mut cursor: Option<Vec<u8>> = None;
    loop {
        let listing = view.list_jobs(name, status, cursor.as_deref(), page).await.unwrap();
        assert!(listing.jobs.len() <= page);
        jobs.extend(listing.jobs);
        match listing.next_cursor {
            Some(next) => cursor = Some(next),
            None => return jobs,
        }
    }
}
