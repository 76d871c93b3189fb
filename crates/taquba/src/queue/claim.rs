//! Taking jobs to work on, and what a worker then holds.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Queue;
use crate::engine::prepare::millis;
use crate::engine::request::{ById, ClaimRequest, Grant, Grants, Op, Request};
use crate::engine::{Lane, Shared};
use crate::env;
use crate::error::Result;
use crate::name::QueueName;
use crate::record::JobRecord;
use crate::state::leases::ClaimNo;
use crate::store::shape;

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

    fn take(grant: Grant) -> Result<Self> {
        let job = shape::job_record(&grant.job)?;
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
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) when the store is closed or has a new owner.
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
        let (reply, answer) = oneshot::channel();
        self.request(&queue, max, lease, false, reply)?;
        take_all(self.shared.answer(answer).await?)
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
        let wait = self.claim_batch_with_wait(queue, 1, lease);
        match env::within(max_wait, wait).await {
            Some(claims) => Ok(claims?.pop()),
            None => self.shared.check_open().map(|()| None),
        }
    }

    /// Claims the job of this id, out of turn: pending or scheduled, its queue paused or not. Durable when the claim is
    /// returned. A scheduled job whose claim does not reach its caller is pending afterwards.
    ///
    /// # Errors
    /// [`Error::NotConfirmed`](crate::Error::NotConfirmed); [`Error::Closed`](crate::Error::Closed).
    ///
    /// # Cancel safety
    /// As [`claim_next`](Self::claim_next).
    pub async fn claim_by_id(&self, id: &str, lease: Duration) -> Result<ClaimOutcome> {
        let lease_ms = millis(lease);
        let op = |reply| Op::ClaimById { id: id.into(), lease_ms, reply };
        Ok(match self.shared.call(Lane::Ask, 0, op).await? {
            ById::Claimed(grants) => match take_all(grants)?.pop() {
                Some(claim) => ClaimOutcome::Claimed(Box::new(claim)),
                None => ClaimOutcome::NotClaimable,
            },
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
        let (reply, answer) = oneshot::channel();
        self.request(&queue, max, lease, true, reply)?;
        let mut forget = ForgetOnDrop { shared: &self.shared, queue: &queue, armed: true };
        let grants = self.shared.answer(answer).await;
        forget.armed = false;
        take_all(grants?)
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

/// Takes granted jobs over. Headers were checked when the record was decoded, so each can be shaped.
fn take_all(mut grants: Grants) -> Result<Vec<Claim>> {
    grants.take_all().into_iter().map(Claim::take).collect()
}
