//! Handing jobs out: waiting workers in line, proof of ownership, leases that run out, claims that come back.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::found::Found;
use super::moves::Ready;
use super::request::{ById, ClaimRequest, Command, Grant, Grants, Op, Request, answer};
use super::round::Round;
use super::{Engine, ROUND_TIMERS};
use crate::env;
use crate::lifecycle::job::{Job, JobId};
use crate::lifecycle::settle;
use crate::name::QueueName;
use crate::state::leases::ClaimNo;
use crate::state::queues::Front;
use crate::store::shape;
use crate::telemetry;

/// How long an attempt's progress is gathered before it is stored (1 s).
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

/// What became of one try to hand out a job.
enum Try {
    Granted(Grant, bool),
    Nothing,
    /// Its band must be read from the store first.
    Unknown,
}

impl Engine {
    /// A worker wants jobs.
    pub(crate) fn want(&mut self, request: ClaimRequest, round: &mut Round) {
        round.look.insert(request.queue.clone());
        self.idle.entry(request.queue.clone()).or_default().push_back(request);
    }

    /// Serves the workers that wait for jobs of a queue, in their order.
    pub(crate) fn serve(&mut self, queue: &QueueName, round: &mut Round) {
        if self.awaiting.contains_key(queue.as_str()) {
            self.tell_of_jobs(queue);
        }
        let Some(mut line) = self.idle.remove(queue.as_str()) else {
            return;
        };
        while let Some(request) = line.pop_front() {
            if request.reply.is_closed() {
                continue;
            }
            match self.fill(&request, round) {
                (grants, _, wait) if !grants.is_empty() => self.grant(request, grants, wait, round),
                (_, Try::Unknown, _) => {
                    line.push_front(request);
                    break;
                }
                _ => {
                    // Nothing is ready. Those who do not wait hear so; the others keep their places.
                    let all = std::iter::once(request).chain(line.drain(..));
                    let (stay, go): (Vec<_>, Vec<_>) = all.partition(|request| request.wait);
                    line.extend(stay);
                    for request in go {
                        let none = Grants::new(Vec::new(), self.shared.mailbox.clone());
                        round.written.push(answer(request.reply, Ok(none)));
                    }
                    break;
                }
            }
        }
        if !line.is_empty() {
            self.idle.insert(queue.clone(), line);
        }
    }

    /// Claims up to as many jobs as a worker wants. The flag says that the hand-over must wait for durability.
    fn fill(&mut self, request: &ClaimRequest, round: &mut Round) -> (Vec<Grant>, Try, bool) {
        let mut grants = Vec::new();
        let mut wait = false;
        while grants.len() < request.max {
            match self.try_one(&request.queue, request.lease_ms, round) {
                Try::Granted(grant, suspect) => {
                    grants.push(grant);
                    wait |= suspect;
                }
                end => return (grants, end, wait),
            }
        }
        (grants, Try::Nothing, wait)
    }

    fn try_one(&mut self, queue: &QueueName, lease_ms: u64, round: &mut Round) -> Try {
        loop {
            match self.queues.front(queue, self.durable_round) {
                Front::Nothing => return Try::Nothing,
                Front::Unknown => return Try::Unknown,
                Front::Job(job) if shape::lacks_payload(&job) => {
                    // A payload that is gone ends its own job and nothing else.
                    let change = settle::dead_letter(&job, "its payload is missing", round.stamp);
                    self.apply(change, Ready::WhenDurable, round);
                    self.tell_death(&job, round);
                }
                // Its time is over, though nobody has looked yet.
                Front::Job(job) if job.is_expired(round.stamp.now_ms) => {
                    self.expire_waiting(&job, round);
                }
                Front::Job(job) => {
                    // A job that was there when the last process died may be what killed it: its attempt is durable
                    // before its handler starts, once.
                    let suspect = self.after_crash && job.epoch != self.mark.epoch;
                    let wait = suspect || !self.ownership.is_fresh();
                    // A claim that gives up a dedup key, or an expiry, writes that, so it is stored with it.
                    let hold_back = !wait && job.dedup.is_none() && job.expires_at().is_none();
                    return match self.claim(&job, lease_ms, hold_back, round) {
                        Some(grant) => Try::Granted(grant, wait),
                        None => Try::Nothing,
                    };
                }
            }
        }
    }

    /// Begins a claim. Held back, it writes nothing: most jobs are done before it would have to be stored.
    fn claim(
        &mut self,
        job: &Arc<Job>,
        lease_ms: u64,
        hold_back: bool,
        round: &mut Round,
    ) -> Option<Grant> {
        let slot = (!hold_back).then(|| self.claims.take_slot());
        let change = settle::claim(job, slot, round.stamp.now_ms);
        let held = change.after.clone()?;
        let claim = self.apply(change, Ready::Now, round)?;
        if hold_back {
            self.held_back.push_back((env::now() + self.deferred_max, claim));
        }
        let until = round.mono_ms.saturating_add(lease_ms);
        let token = CancellationToken::new();
        self.shared.leases.add(claim, &held, until, token.clone());
        self.claims.check_at(claim, until);
        Some(Grant { claim, job: held, token })
    }

    /// Claims a waiting job by its id, its turn and a pause of its queue aside. Its answer waits until that is durable.
    pub(crate) fn claim_by_id(
        &mut self,
        id: &JobId,
        lease_ms: u64,
        found: &Found,
        round: &mut Round,
    ) -> ById {
        let Some(job) = self.found_job(id, found) else {
            return ById::NotFound;
        };
        if !job.is_waiting() || shape::lacks_payload(&job) {
            return ById::NotClaimable;
        }
        if job.is_expired(round.stamp.now_ms) {
            self.expire_waiting(&job, round);
            return ById::NotClaimable;
        }
        match self.claim(&job, lease_ms, false, round) {
            Some(grant) => ById::Claimed(Grants::new(vec![grant], self.shared.mailbox.clone())),
            None => ById::NotClaimable,
        }
    }

    /// Tells who waits for jobs of a queue that one can be claimed.
    fn tell_of_jobs(&mut self, queue: &QueueName) {
        let ready = matches!(self.queues.front(queue, self.durable_round), Front::Job(_));
        if let Some(waiting) = self.awaiting.get_mut(queue.as_str()) {
            waiting.retain(|waiter| !waiter.is_closed());
            if ready || waiting.is_empty() {
                for waiter in self.awaiting.remove(queue.as_str()).unwrap_or_default() {
                    // Who went away needs no news.
                    let _ = waiter.send(());
                }
            }
        }
    }

    /// Stores the claims that were held back as long as they may be, and has them flushed.
    pub(crate) fn store_held_claims(&mut self, round: &mut Round) {
        let now = env::now();
        while self.held_back.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, claim)) = self.held_back.pop_front()
                && self.store_claim(claim, round)
            {
                round.durable.push(Box::new(|_| ()));
            }
        }
    }

    /// An attempt said how far it is, for the first time since that was stored: it is again in a while, with what is said
    /// until then.
    pub(crate) fn progress(&mut self, claim: ClaimNo) {
        self.reported.push_back((env::now() + PROGRESS_PAUSE, claim));
    }

    /// Stores how far attempts are that have said so. Nobody waits for it.
    pub(crate) fn store_progress(&mut self, round: &mut Round) {
        let now = env::now();
        while self.reported.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, claim)) = self.reported.pop_front() else { return };
            let Some(job) = self.claims.get(claim).cloned() else { continue };
            let Some(progress) = self.shared.leases.take_reported(claim) else { continue };
            let slot = job.is_held_back().then(|| self.claims.take_slot());
            if let Some(change) = settle::progress(&job, progress, slot) {
                self.apply(change, Ready::Now, round);
            }
        }
    }

    /// Stores a claim if it is held back; whether it was.
    pub(crate) fn store_claim(&mut self, claim: ClaimNo, round: &mut Round) -> bool {
        let held = self.claims.get(claim).filter(|job| job.is_held_back());
        let Some(job) = held.cloned() else {
            return false;
        };
        let slot = self.claims.take_slot();
        let Some(change) = settle::store_claim(&job, slot) else {
            return false;
        };
        self.apply(change, Ready::Now, round);
        true
    }

    /// Sends claims to their worker: at once if ownership was just proved, else once they are durable, which proves it.
    fn grant(&mut self, request: ClaimRequest, grants: Vec<Grant>, wait: bool, round: &mut Round) {
        let stored = grants.iter().any(|grant| grant.job.hold().is_some_and(|h| h.slot.is_some()));
        let grants = Grants::new(grants, self.shared.mailbox.clone());
        let hand_over = answer(request.reply, Ok(grants));
        if wait {
            round.durable.push(hand_over);
        } else if stored {
            round.written.push(hand_over);
        } else {
            hand_over(None);
        }
    }

    /// Claims that reached no worker go back to where they were.
    pub(crate) fn take_back(&mut self, claims: Vec<ClaimNo>, round: &mut Round) {
        for claim in claims {
            let Some(job) = self.claims.get(claim) else {
                continue;
            };
            if job.dedup.is_some() {
                self.accept(Command { op: Op::Release { claim }, room: None }, round);
            } else {
                self.release(claim, &Found::default(), round);
            }
        }
    }

    /// Ends the claims whose leases ran out. Marked first, under the leases' lock, then committed: a renewal either
    /// comes before the mark and the claim goes on, or learns that it is lost.
    pub(crate) fn expire_leases(&mut self, round: &mut Round) {
        for _ in 0..ROUND_TIMERS {
            let Some((at, claim)) = self.claims.next_check() else {
                return;
            };
            if at > round.mono_ms {
                return;
            }
            if self.shared.leases.expire(claim, round.mono_ms) {
                self.expire(claim, round);
            } else {
                // Renewed since. A claim without a lease has ended everywhere but here, and this is its end here.
                match self.shared.leases.look_at(claim) {
                    Some(later) => self.claims.check_at(claim, later),
                    None => self.expire(claim, round),
                }
            }
        }
    }

    /// A lease may end before it was to be looked at.
    pub(crate) fn look_at_lease(&mut self, claim: ClaimNo) {
        if let Some(ends) = self.shared.leases.look_at(claim) {
            self.claims.check_at(claim, ends);
        }
    }

    fn expire(&mut self, claim: ClaimNo, round: &mut Round) {
        let Some(job) = self.claims.get(claim).cloned() else {
            return;
        };
        let change = settle::expire(&job, round.stamp);
        let died = change.ending.is_some();
        tracing::warn!(job = %job.id(), queue = %job.queue(), died, "lease expired");
        telemetry::count(telemetry::REAPED, job.queue());
        self.apply(change, Ready::WhenDurable, round);
        if died {
            self.tell_death(&job, round);
        }
    }

    /// Forgets waiting workers that went away.
    pub(crate) fn forget_claims(&mut self, queue: &QueueName) {
        if let Some(line) = self.idle.get_mut(queue.as_str()) {
            line.retain(|request| !request.reply.is_closed());
            if line.is_empty() {
                self.idle.remove(queue.as_str());
            }
        }
    }

    /// Begins the scans that a queue's windows are due for.
    pub(crate) fn refill(&mut self, queue: &QueueName, round: &mut Round) {
        for (priority, from) in self.queues.begin_scans(queue) {
            let (store, mailbox) = (self.store.clone(), self.shared.mailbox.clone());
            let queue = queue.clone();
            let max = self.knobs.page_jobs.unwrap_or(super::refill::PAGE_JOBS);
            let yields = self.knobs.refill_yields;
            round.scans.push(Box::pin(async move {
                let page = super::refill::ready(&store, &queue, priority, from, max).await;
                pause_if_failed(&page).await;
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
                // If the engine is gone, nobody needs the page.
                drop(mailbox.send(Request::ReadyPage(queue, priority, page)));
            }));
        }
    }

    /// Takes a page of ready jobs.
    pub(crate) fn ready_page(
        &mut self,
        queue: QueueName,
        priority: u32,
        page: crate::error::Result<super::refill::Page<u64>>,
        round: &mut Round,
    ) {
        match page {
            Ok(page) => {
                self.put_aside(page.bad, round);
                let rows = page.rows.into_iter().map(|(order, job, seq)| {
                    let ready_round = self.round_of(seq);
                    (order, crate::state::window::Entry { job, ready_round })
                });
                let rows: Vec<_> = rows.collect();
                // Waiting workers look again when the last of them is durable, whatever wrote it.
                let newest = rows.iter().map(|(_, entry)| entry.ready_round).max();
                for flight in &mut self.in_flight {
                    if newest.is_some_and(|newest| flight.round <= newest) {
                        flight.fed.insert(queue.clone());
                    }
                }
                let claims = &self.claims;
                self.queues.with_window(&queue, priority, |window| {
                    window.merge(rows, page.end, |order| claims.of_order(order).is_none());
                });
            }
            Err(error) => {
                tracing::warn!(%error, %queue, priority, "could not read ready jobs; trying again");
                self.queues.with_window(&queue, priority, |window| window.abort_scan());
            }
        }
        round.look.insert(queue);
    }

    /// The round that a stored row becomes durable with; 0 if it is already. The write in flight, whose sequence is
    /// not known yet, is the last.
    fn round_of(&self, seq: u64) -> u64 {
        if seq <= self.durable_seq {
            return 0;
        }
        let flight = self.in_flight.iter().find(|flight| flight.seq.is_none_or(|last| last >= seq));
        flight.map_or(0, |flight| flight.round)
    }
}

/// A read that failed is tried again, but not in a tight loop.
pub(crate) async fn pause_if_failed<T>(result: &crate::error::Result<T>) {
    if result.is_err() {
        crate::env::sleep(std::time::Duration::from_secs(1)).await;
    }
}
