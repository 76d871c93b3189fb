//! Taking jobs to work on, and what a worker then holds.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Queue;
use crate::decide::Verdict;
use crate::engine::request::{ById, ClaimRequest, Command, Grant, Grants, Op, Prepared, Request};
use crate::engine::{Lane, Shared};
use crate::env;
use crate::env::millis;
use crate::error::{Error, Result};
use crate::name::QueueName;
use crate::record::JobRecord;
use crate::state::leases::ClaimNo;
use crate::store::objects::Unreadable;
use crate::store::shape;
use crate::telemetry::{self, Timed};

/// A job that this process holds under a lease; what `ack`, `nack` and `dead_letter` take.
///
/// Made only by the claim calls. Dropping it changes nothing: the job stays claimed until its lease ends.
#[derive(Debug)]
pub struct Claim {
    job: JobRecord,
    number: ClaimNo,
    token: CancellationToken,
}

impl Claim {
    /// Returns the job as it was claimed.
    #[must_use]
    pub fn job(&self) -> &JobRecord {
        &self.job
    }

    /// Returns the job, giving the claim up without settling it.
    #[must_use]
    pub fn into_job(self) -> JobRecord {
        self.job
    }

    /// Returns the token that fires when cancellation is requested or the store is lost.
    #[must_use]
    pub fn cancel_token(&self) -> &CancellationToken {
        &self.token
    }

    pub(crate) fn number(&self) -> ClaimNo {
        self.number
    }

    fn take(grant: Grant, payload: Option<Bytes>) -> Result<Self> {
        let mut job = shape::job_record(&grant.job)?;
        if let Some(payload) = payload {
            job.payload = payload.into();
        }
        Ok(Self { job, number: grant.claim, token: grant.token })
    }
}

impl Deref for Claim {
    type Target = JobRecord;
    fn deref(&self) -> &JobRecord {
        &self.job
    }
}

/// Tells the engine, when dropped, that a waiting claim of the queue may have gone.
struct ForgetOnDrop<'a> {
    shared: &'a Arc<Shared>,
    queue: &'a QueueName,
    armed: bool,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            // If the engine is gone, it has forgotten.
            drop(self.shared.mailbox.send(Request::ForgetClaims(self.queue.clone())));
        }
    }
}

/// What [`Queue::claim_by_id`] led to.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// The job is claimed.
    Claimed(Box<Claim>),
    /// It is claimed by somebody else, done, dead, or expired.
    NotClaimable,
    /// No job of this id.
    NotFound,
}

impl Queue {
    /// Claims the next job of a queue with the queue's lease; `None` when none is ready.
    ///
    /// Not durable on return, by design: a claim that a crash takes back is a job that is still pending. After an
    /// unclean end of the last owner, jobs that were there are handed out only once their claim is durable.
    ///
    /// A payload in an object of its own is fetched before the claim is returned. A job whose object is missing or
    /// damaged is dead-lettered with the reason, and the next one is claimed in its place.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) when the store is closed or has a new owner;
    /// [`Error::PayloadStore`](crate::Error::PayloadStore) when nothing but jobs was claimed whose payloads cannot be
    /// read now: they are given back, without an attempt.
    ///
    /// # Cancel safety
    /// A claim that did not reach its caller is given back, without an attempt.
    pub async fn claim_next(&self, queue: &str) -> Result<Option<Claim>> {
        self.claim(queue, self.queue_lease_duration(queue)).await
    }

    /// Claims the next job of a queue under `lease`; `None` when none is ready.
    ///
    /// Order: priority, then the order of enqueues. A retried job keeps its place.
    ///
    /// # Errors
    /// As [`claim_next`](Self::claim_next).
    ///
    /// # Cancel safety
    /// As [`claim_next`](Self::claim_next).
    pub async fn claim(&self, queue: &str, lease: Duration) -> Result<Option<Claim>> {
        Ok(self.claim_batch(queue, 1, lease).await?.pop())
    }

    /// Claims up to `max` jobs, in order, under one lease each.
    ///
    /// # Errors
    /// As [`claim_next`](Self::claim_next).
    ///
    /// # Cancel safety
    /// As [`claim_next`](Self::claim_next).
    pub async fn claim_batch(
        &self,
        queue: &str,
        max: usize,
        lease: Duration,
    ) -> Result<Vec<Claim>> {
        self.shared.check_open()?;
        if max == 0 {
            return Ok(Vec::new());
        }
        let queue = QueueName::new(queue)?;
        let timed = Timed::start(telemetry::CLAIM_SECONDS, &queue);
        loop {
            let (reply, answer) = oneshot::channel();
            self.request(&queue, max, lease, false, reply)?;
            let grants = self.shared.answer(answer).await?;
            let none = grants.all().is_empty();
            let claims = if none { None } else { self.take(grants, lease).await? };
            if none || claims.is_some() {
                timed.end();
                return Ok(claims.unwrap_or_default());
            }
        }
    }

    /// Claims the next job, waiting up to `max_wait` of real time for one; `None` when none came.
    ///
    /// # Errors
    /// As [`claim_next`](Self::claim_next); also while it waits.
    ///
    /// # Cancel safety
    /// As [`claim_next`](Self::claim_next).
    pub async fn claim_with_wait(
        &self,
        queue: &str,
        lease: Duration,
        max_wait: Duration,
    ) -> Result<Option<Claim>> {
        let queue = QueueName::new(queue)?;
        let start = env::now();
        loop {
            // Only the wait for a job is bounded: a payload that takes longer to fetch could else never be had.
            let left = max_wait.saturating_sub(env::now().saturating_duration_since(start));
            let Some(grants) = env::within(left, self.wait_for_grants(&queue, 1, lease)).await
            else {
                return self.shared.check_open().map(|()| None);
            };
            if let Some(mut claims) = self.take(grants?, lease).await? {
                return Ok(claims.pop());
            }
        }
    }

    /// Claims the job of this id, out of turn: pending or scheduled, its queue paused or not. Durable when the claim is
    /// returned. A scheduled job whose claim does not reach its caller is pending afterwards.
    ///
    /// # Errors
    /// [`Error::NotConfirmed`](crate::Error::NotConfirmed); else as [`claim_next`](Self::claim_next).
    ///
    /// # Cancel safety
    /// As [`claim_next`](Self::claim_next).
    pub async fn claim_by_id(&self, id: &str, lease: Duration) -> Result<ClaimOutcome> {
        let lease_ms = millis(lease);
        let op = |reply| Op::ClaimById { id: id.into(), lease_ms, reply };
        Ok(match self.shared.call(Lane::Ask, 0, op).await? {
            ById::Claimed(grants) => {
                match self.take(grants, lease).await?.and_then(|mut c| c.pop()) {
                    Some(claim) => ClaimOutcome::Claimed(Box::new(claim)),
                    None => ClaimOutcome::NotClaimable,
                }
            }
            ById::NotClaimable => ClaimOutcome::NotClaimable,
            ById::NotFound => ClaimOutcome::NotFound,
        })
    }

    /// Returns once a job of the queue can be claimed, after `max_wait` of real time, or when the handle serves no more.
    /// Another worker may be faster: no promise that the job is still there.
    pub async fn wait_for_jobs_on(&self, queue: &str, max_wait: Duration) {
        let Ok(queue) = QueueName::new(queue) else { return };
        let (waiter, told) = oneshot::channel();
        if self.shared.post(Request::AwaitJobs(queue, waiter)).is_ok() {
            // However it ends, the caller looks for itself.
            let _ = env::within(max_wait, told).await;
        }
    }

    /// Waits until at least one job of the queue can be claimed, then claims up to `max`.
    pub(crate) async fn claim_batch_with_wait(
        &self,
        queue: &str,
        max: usize,
        lease: Duration,
    ) -> Result<Vec<Claim>> {
        let queue = QueueName::new(queue)?;
        loop {
            let grants = self.wait_for_grants(&queue, max, lease).await?;
            if let Some(claims) = self.take(grants, lease).await? {
                return Ok(claims);
            }
        }
    }

    async fn wait_for_grants(
        &self,
        queue: &QueueName,
        max: usize,
        lease: Duration,
    ) -> Result<Grants> {
        let (reply, answer) = oneshot::channel();
        self.request(queue, max, lease, true, reply)?;
        let mut forget = ForgetOnDrop { shared: &self.shared, queue, armed: true };
        let grants = self.shared.answer(answer).await;
        forget.armed = false;
        grants
    }

    fn request(
        &self,
        queue: &QueueName,
        max: usize,
        lease: Duration,
        wait: bool,
        reply: oneshot::Sender<Result<Grants>>,
    ) -> Result<()> {
        let request =
            ClaimRequest { queue: queue.clone(), max, lease_ms: millis(lease), wait, reply };
        self.shared.post(Request::Claim(request))
    }
}

/// Longest time that a claim is kept while its payload is fetched.
const FETCH_MAX: Duration = Duration::from_secs(600);
/// Payloads that one claim call fetches at once.
const FETCHES: usize = 16;

type Fetched = Option<std::result::Result<Bytes, Unreadable>>;

impl Queue {
    /// Takes granted jobs over, with those payloads that are in objects; until all are fetched, dropping this gives
    /// every job back. A job whose payload is lost dies of it, one whose payload cannot be had now is given back
    /// without an attempt, and the others go on: `None` when there are none, an error when that may pass.
    async fn take(&self, mut grants: Grants, lease: Duration) -> Result<Option<Vec<Claim>>> {
        let fetched = self.fetch(&grants, lease).await;
        // Headers were checked when the record was decoded, so each can be shaped.
        let mut claims = Vec::new();
        let mut unreachable = None;
        for (grant, fetched) in grants.take_all().into_iter().zip(fetched) {
            let job = &grant.job;
            match fetched {
                None => claims.push(Claim::take(grant, None)?),
                Some(Ok(payload)) => claims.push(Claim::take(grant, Some(payload))?),
                Some(Err(Unreadable::Lost(reason))) => {
                    tracing::error!(job = %job.id(), queue = %job.queue(), reason, "dead-lettered");
                    self.bury(grant.claim, reason)?;
                }
                Some(Err(Unreadable::Passing(error))) => {
                    tracing::warn!(job = %job.id(), queue = %job.queue(), %error,
                        "its payload cannot be had now; given back without an attempt");
                    self.shared.post(Request::Release(vec![grant.claim]))?;
                    unreachable = Some(error);
                }
            }
        }
        match unreachable {
            _ if !claims.is_empty() => Ok(Some(claims)),
            Some(error) => Err(Error::PayloadStore(error)),
            None => Ok(None),
        }
    }

    async fn fetch(&self, grants: &Grants, lease: Duration) -> Vec<Fetched> {
        let objects = grants.all().iter().map(|grant| {
            let object = grant.job.body.payload.object().copied();
            object.map(|object| (grant.claim, object))
        });
        let objects: Vec<_> = objects.collect();
        if objects.iter().all(Option::is_none) {
            return objects.into_iter().map(|_| None).collect();
        }
        let fetches = objects.into_iter().map(|wanted| async move {
            let (claim, object) = wanted?;
            // The lease begins when the payload is there.
            let _keep = self.keep(claim, FETCH_MAX.max(lease), lease);
            Some(self.shared.offload.objects.get(&object).await)
        });
        stream::iter(fetches).buffered(FETCHES).collect().await
    }

    /// Ends the claim of a job whose payload is lost. The loop takes it before the next claim.
    fn bury(&self, claim: ClaimNo, reason: String) -> Result<()> {
        let (reply, _nobody_waits) = oneshot::channel();
        let verdict = Verdict::Lost(reason);
        let op = Op::Settle { claim, verdict, effects: Prepared::default(), reply };
        self.shared.post(Request::Command(Box::new(Command { op, room: None })))
    }
}
