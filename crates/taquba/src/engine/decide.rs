//! One command, its facts, and what `lifecycle` says: the decision and its answer.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::Engine;
use super::found::Found;
use super::moves::Ready;
use super::offload::Upload;
use super::plan::Plan;
use super::request::{Answer, Command, Decision, KvChanges, Op, Prepared, Reply, Watched, answer};
use super::round::Round;
use crate::decide::{Changes, Facts, Reads, Verdict};
use crate::error::{Error, Result};
use crate::lifecycle::job::{Job, JobId, State};
use crate::lifecycle::{Move, settle, wait};
use crate::limits::clip_error;
use crate::name::QueueName;
use crate::record::{CancelOutcome, EnqueueResult, NackOutcome, WaitOutcome, WakeOutcome};
use crate::state::leases::ClaimNo;
use crate::state::reserve::Key;
use crate::store::{keys, shape};

impl Engine {
    /// Decides a command. Its answer waits until everything it rests on is durable.
    pub(crate) fn decide(&mut self, command: Command, found: &Found, round: &mut Round) {
        let Command { op, room } = command;
        let answer: Answer = match op {
            Op::Enqueue { lead, what, reply } => {
                let done = self.enqueue(lead, what, found, round);
                answer(reply, done)
            }
            Op::Settle { claim, verdict, effects, reply } => {
                let done = self.settle(claim, &verdict, effects, found, round);
                answer(reply, done)
            }
            Op::Decide { claim, reads, decide } => {
                self.run_decision(claim, &reads, decide, found, round)
            }
            Op::Cancel { id, effects, reply } => {
                let done = self.cancel(&id, effects, found, round);
                answer(reply, done)
            }
            Op::Wake { id, payload, reply } => {
                let done = self.wake(&id, payload, found, round);
                answer(reply, Ok(done))
            }
            Op::Signal { queue, key, payload, reply } => {
                let done = self.signal(queue, key, payload, found, round);
                answer(reply, Ok(done))
            }
            Op::ClearSignal { queue, key, reply } => {
                answer(reply, Ok(self.clear_signal(queue, key, found, round)))
            }
            Op::Requeue { id, reply } => {
                let done = self.requeue(&id, found, round);
                answer(reply, done)
            }
            Op::Pause { queue, paused, reply } => {
                answer(reply, Ok(self.pause(&queue, paused, round)))
            }
            Op::ClaimById { id, lease_ms, reply } => {
                let done = self.claim_by_id(&id, lease_ms, found, round);
                answer(reply, Ok(done))
            }
            Op::Compare { compares, effects, reply } => {
                let done = self.compare(&compares, effects, found, round);
                answer(reply, done)
            }
            Op::Watch { id, watcher, reply } => match self.watch(id, watcher, reply, found) {
                Some(answer) => answer,
                None => return,
            },
            Op::Aside { key, back, reply } => {
                answer(reply, self.decide_aside(&key, back, found, round))
            }
            Op::Each { ids, action, filter, reply } => {
                let changed = self.each(&ids, action, &filter, found, round);
                answer(reply, Ok(changed))
            }
            Op::Inbox { queue, arrivals, reply } => {
                let done = self.take_in(&queue, arrivals, found, round);
                answer(reply, Ok(done))
            }
            Op::Sweep(sweep) => return self.end_due(sweep, found, round),
            Op::Release { claim } => {
                self.release(claim, found, round);
                return;
            }
        };
        round.durable.push(Box::new(move |ended| {
            drop(room);
            answer(ended);
        }));
    }

    /// Answers a command that could not read its facts.
    pub(crate) fn refuse(&mut self, command: Command, error: Error, round: &mut Round) {
        let answer = match command.op {
            Op::Enqueue { reply, .. } => answer(reply, Err(error)),
            Op::Settle { reply, .. } => answer(reply, Err(error)),
            Op::Decide { decide, .. } => {
                Box::new(move |_: Option<&_>| (decide.answer)(Some(error))) as Answer
            }
            Op::Cancel { reply, .. } => answer(reply, Err(error)),
            Op::Wake { reply, .. } => answer(reply, Err(error)),
            Op::Signal { reply, .. } => answer(reply, Err(error)),
            Op::ClearSignal { reply, .. } => answer(reply, Err(error)),
            Op::Requeue { reply, .. } => answer(reply, Err(error)),
            Op::Pause { reply, .. } => answer(reply, Err(error)),
            Op::ClaimById { reply, .. } => answer(reply, Err(error)),
            Op::Compare { reply, .. } => answer(reply, Err(error)),
            Op::Watch { reply, .. } => answer(reply, Err(error)),
            Op::Aside { reply, .. } => answer(reply, Err(error)),
            Op::Each { reply, .. } => answer(reply, Err(error)),
            Op::Inbox { reply, .. } => answer(reply, Err(error)),
            Op::Sweep(sweep) => return self.sweep_failed(sweep.shelf, &error),
            Op::Release { claim } => {
                // Without the fact it gives its dedup key up, which harms nobody.
                self.release(claim, &Found::default(), round);
                return;
            }
        };
        round.durable.push(answer);
    }

    pub(crate) fn enqueue(
        &mut self,
        lead: bool,
        what: Prepared,
        found: &Found,
        round: &mut Round,
    ) -> Result<Vec<EnqueueResult>> {
        let plan = self.plan(what, found, lead, round)?;
        Ok(self.commit(plan, round))
    }

    /// Applies a plan.
    fn commit(&mut self, plan: Plan, round: &mut Round) -> Vec<EnqueueResult> {
        hand_over(plan.uploads, &plan.moves, round);
        for change in plan.moves {
            self.apply(change, Ready::WhenDurable, round);
        }
        // A decision may write rows that it did not reserve.
        if !self.reservations.is_empty() {
            for key in plan.kv.iter().filter_map(|(key, _)| caller_key(key)) {
                self.reservations.touch(Key::kv(key));
            }
        }
        write_kv(plan.kv, round);
        if !plan.expiry.is_empty() {
            // Once the rows can be seen, and not before: a pass that misses them must find the bound lowered.
            round.written.push(Box::new(move |_| {
                plan.expiry.iter().for_each(|(index, at_ms)| index.lower(*at_ms));
            }));
        }
        plan.results
    }

    /// Ends a claim. Effects are planned first: refused effects leave the claim as it was.
    fn settle(
        &mut self,
        claim: ClaimNo,
        verdict: &Verdict,
        effects: Prepared,
        found: &Found,
        round: &mut Round,
    ) -> Result<NackOutcome> {
        let job = self.claims.get(claim).cloned().ok_or(Error::ClaimLost)?;
        let result = effects.result.clone();
        let change = self.settlement(&job, verdict, result, round);
        let failed = matches!(verdict, Verdict::Nack(_) | Verdict::Refused(_));
        if failed && change.ending.is_none() {
            self.apply(change, Ready::WhenDurable, round);
            return Ok(NackOutcome::Retried);
        }
        let plan = self.plan(effects, found, false, round)?;
        self.apply(change, Ready::WhenDurable, round);
        if matches!(verdict, Verdict::Refused(_) | Verdict::Lost(_)) {
            self.tell_death(&job, round);
        }
        Ok(NackOutcome::DeadLettered(self.commit(plan, round)))
    }

    fn settlement(
        &self,
        job: &Arc<Job>,
        verdict: &Verdict,
        result: Option<Bytes>,
        round: &Round,
    ) -> Move {
        let queue = job.queue();
        match verdict {
            Verdict::Ack => {
                let keep = self.shared.configs.of(queue).keep_done_jobs.is_some();
                settle::ack(job, keep, result, round.stamp)
            }
            Verdict::Nack(error) | Verdict::Refused(error) => {
                let retry = self.shared.configs.retry(queue);
                settle::nack(job, clip_error(error), &retry, round.stamp)
            }
            Verdict::DeadLetter(reason) | Verdict::Lost(reason) => {
                settle::dead_letter(job, clip_error(reason), round.stamp)
            }
        }
    }

    pub(crate) fn cancel(
        &mut self,
        id: &JobId,
        effects: Prepared,
        found: &Found,
        round: &mut Round,
    ) -> Result<(CancelOutcome, Vec<EnqueueResult>)> {
        let job = self.found_job(id, found).map(|job| self.stored_claim(job, round));
        let Some(change) = job.and_then(|job| wait::cancel(&job)) else {
            return Ok((CancelOutcome::NotFound, Vec::new()));
        };
        if change.ending.is_none() {
            self.request_cancel(change, round);
            return Ok((CancelOutcome::Requested, Vec::new()));
        }
        // What it held is free for the effects.
        let freed = match effects.jobs.is_empty() {
            true => Cow::Borrowed(found),
            false => Cow::Owned(found.without(id)),
        };
        let plan = self.plan(effects, &freed, false, round)?;
        self.apply(change, Ready::WhenDurable, round);
        Ok((CancelOutcome::Removed, self.commit(plan, round)))
    }

    /// A job whose claim, if it has one, is stored: what is added to the claim must be.
    pub(crate) fn stored_claim(&mut self, job: Arc<Job>, round: &mut Round) -> Arc<Job> {
        let Some((claim, _)) = self.claims.of_order(job.body.order) else {
            return job;
        };
        self.store_claim(claim, round);
        self.claims.get(claim).cloned().unwrap_or(job)
    }

    /// The claim goes on, asked to stop; its token fires once that is durable.
    pub(crate) fn request_cancel(&mut self, change: Move, round: &mut Round) {
        let order = change.after.as_ref().map(|job| job.body.order);
        self.apply(change, Ready::WhenDurable, round);
        let claim = order.and_then(|order| self.claims.of_order(order)).map(|(claim, _)| claim);
        let shared = Arc::clone(&self.shared);
        round.durable.push(Box::new(move |_| {
            if let Some(claim) = claim {
                shared.leases.request_cancel(claim);
            }
        }));
    }

    fn wake(
        &mut self,
        id: &JobId,
        payload: Option<Bytes>,
        found: &Found,
        round: &mut Round,
    ) -> WakeOutcome {
        let Some(job) = self.found_job(id, found) else {
            return WakeOutcome::NotFound;
        };
        match wait::wake(&job, payload, round.stamp.now_ms) {
            Some(change) => {
                self.apply(change, Ready::WhenDurable, round);
                WakeOutcome::Woken
            }
            None => WakeOutcome::NotScheduled,
        }
    }

    fn requeue(&mut self, id: &JobId, found: &Found, round: &mut Round) -> Result<()> {
        let job =
            self.found_job(id, found).ok_or_else(|| Error::JobNotFound(id.as_ref().to_owned()))?;
        let change = wait::requeue(&job, round.stamp).ok_or_else(|| Error::InvalidState {
            id: id.as_ref().to_owned(),
            state: job.state_name(),
        })?;
        self.apply(change, Ready::WhenDurable, round);
        Ok(())
    }

    fn pause(&mut self, queue: &QueueName, paused: bool, round: &mut Round) -> bool {
        let news = self.queues.set_paused(queue, paused);
        if news && paused {
            round.batch.put(keys::paused(queue), Bytes::new());
        } else if news {
            round.batch.delete(&keys::paused(queue));
            round.look.insert(queue.clone());
        }
        news
    }

    fn compare(
        &mut self,
        compares: &KvChanges,
        effects: Prepared,
        found: &Found,
        round: &mut Round,
    ) -> Result<Option<Vec<EnqueueResult>>> {
        let holds = compares.iter().all(|(key, expected)| {
            let caller_key = key.get(1..).unwrap_or_default();
            found.kv.get(caller_key).is_some_and(|stored| stored == expected)
        });
        if !holds {
            return Ok(None);
        }
        self.enqueue(false, effects, found, round).map(Some)
    }

    /// Registers a watcher, or answers at once when there is nothing to wait for.
    fn watch(
        &mut self,
        id: JobId,
        watcher: u64,
        reply: Reply<Watched>,
        found: &Found,
    ) -> Option<Answer> {
        let Some(job) = self.found_job(&id, found) else {
            return Some(answer(reply, Ok(Watched::plain(WaitOutcome::NotFound))));
        };
        let ended = match job.state {
            State::Done { .. } => WaitOutcome::Done,
            State::Dead { .. } => WaitOutcome::Dead,
            _ => {
                self.watchers.entry(id).or_default().push((watcher, reply));
                return None;
            }
        };
        let object = job.body.payload.object().copied();
        let watched = shape::job_record(&job).map(|record| {
            let outcome = ended(Box::new(record));
            Watched { outcome, object, doomed: None }
        });
        Some(answer(reply, watched))
    }

    /// Gives back a claim that reached no worker.
    pub(crate) fn release(&mut self, claim: ClaimNo, found: &Found, round: &mut Round) {
        let Some(job) = self.claims.get(claim).cloned() else {
            return;
        };
        let free = |key: &Arc<str>| {
            let at = (job.queue().clone(), Arc::clone(key));
            found.dedup.get(&at).is_some_and(Option::is_none)
        };
        let keeps_dedup = job.dedup.as_ref().is_some_and(free);
        self.apply(settle::release(&job, keeps_dedup), Ready::Now, round);
    }

    /// A job as it is now: the claims know better than its stored record.
    pub(crate) fn found_job(&self, id: &JobId, found: &Found) -> Option<Arc<Job>> {
        let stored = found.jobs.get(id)?.as_ref()?;
        let claimed = self.claims.of_order(stored.body.order).map(|(_, job)| Arc::clone(job));
        Some(claimed.unwrap_or_else(|| Arc::clone(stored)))
    }

    fn run_decision(
        &mut self,
        claim: Option<ClaimNo>,
        reads: &Reads,
        decide: Decision,
        found: &Found,
        round: &mut Round,
    ) -> Answer {
        let job = claim.and_then(|claim| self.claims.get(claim).cloned());
        let refused = match self.facts(reads, found, job.as_deref(), round) {
            Ok(facts) => {
                let mut changes = Changes::default();
                (decide.run)(&facts, &mut changes);
                self.apply_changes(claim, changes, found, round).err()
            }
            Err(error) => Some(error),
        };
        Box::new(move |ended| match ended {
            None => (decide.answer)(refused),
            Some(reason) => (decide.answer)(Some(Error::Closed(reason.clone()))),
        })
    }

    fn facts(
        &self,
        reads: &Reads,
        found: &Found,
        claimed: Option<&Job>,
        round: &Round,
    ) -> Result<Facts> {
        let mut jobs = HashMap::new();
        for id in found.jobs.keys() {
            let job = self.found_job(id, found);
            let record = job.map(|job| shape::job_record(&job)).transpose()?;
            jobs.insert(id.as_ref().to_owned(), record);
        }
        let signals = found.signals.iter().map(|((queue, key), facts)| {
            ((queue.as_str().to_owned(), key.as_ref().to_owned()), facts.clone())
        });
        debug_assert!(reads.kv.iter().all(|key| found.kv.contains_key(key)));
        Ok(Facts {
            now_ms: round.stamp.now_ms,
            cancel_requested: claimed.is_some_and(Job::wants_cancel),
            kv: found.kv.clone(),
            jobs,
            signals: signals.collect(),
        })
    }

    /// Applies what a decision says: all of it or none.
    fn apply_changes(
        &mut self,
        claim: Option<ClaimNo>,
        changes: Changes,
        found: &Found,
        round: &mut Round,
    ) -> Result<()> {
        let settled = match (claim, &changes.verdict) {
            (Some(claim), Some(verdict)) => {
                let job = self.claims.get(claim).cloned().ok_or(Error::ClaimLost)?;
                let result = changes.effects.result.clone().map(Bytes::from);
                Some(self.settlement(&job, verdict, result, round))
            }
            (Some(_), None) => return Err(Error::Undecided),
            (None, _) => None,
        };
        let mut prepared = self.shared.configs.effects_within(changes.effects)?;
        for job in &mut prepared.jobs {
            job.id_issued =
                job.id.as_ref().is_some_and(|id| changes.issued.iter().any(|i| **i == **id));
        }
        let cancels = self.cancellations(claim, changes.cancels, found, round);
        let mut freed = Cow::Borrowed(found);
        for change in cancels.iter().filter(|change| change.ending.is_some()) {
            if let Some(job) = &change.before {
                freed = Cow::Owned(freed.without(job.id()));
            }
        }
        let plan = self.plan(prepared, &freed, false, round)?;
        if let Some(change) = settled {
            self.apply(change, Ready::WhenDurable, round);
        }
        for change in cancels {
            match change.ending {
                None => self.request_cancel(change, round),
                Some(_) => drop(self.apply(change, Ready::WhenDurable, round)),
            }
        }
        self.commit(plan, round);
        Ok(())
    }

    /// What a decision cancels, each job once, and not the one that it settles.
    fn cancellations(
        &mut self,
        claim: Option<ClaimNo>,
        ids: Vec<String>,
        found: &Found,
        round: &mut Round,
    ) -> Vec<Move> {
        let settled = claim.and_then(|claim| self.claims.get(claim)).cloned();
        let ids: BTreeSet<JobId> = ids.into_iter().map(Into::into).collect();
        ids.iter()
            .filter(|id| settled.as_ref().is_none_or(|job| job.id() != *id))
            .filter_map(|id| {
                let job = self.found_job(id, found)?;
                wait::cancel(&self.stored_claim(job, round))
            })
            .collect()
    }
}

/// Uploads that jobs name belong to their records from here on, whatever becomes of the commit; the others go at once.
/// The sweep learns of it when the records are in the store's memory, where it looks for them.
fn hand_over(uploads: Vec<Upload>, moves: &[Move], round: &mut Round) {
    if uploads.is_empty() {
        return;
    }
    let jobs = moves.iter().filter_map(|change| change.after.as_ref());
    let named = jobs.filter_map(|job| Some(job.body.payload.object()?.name)).collect();
    let kept = Upload::keep_named(uploads, &named);
    round.written.push(Box::new(move |_| drop(kept)));
}

/// The caller's key in a stored one; `None` for rows that are no caller's.
fn caller_key(stored: &[u8]) -> Option<&[u8]> {
    stored.strip_prefix(&[keys::KV])
}

fn write_kv(kv: KvChanges, round: &mut Round) {
    for (key, value) in kv {
        match value {
            Some(value) => round.batch.put(key, value),
            None => round.batch.delete(&key),
        }
    }
}
