//! The loops: as many claims at a time as there are free slots, drained within a limit at the end.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::attempt;
use super::handler::{ClaimHandler, Handler};
use crate::env;
use crate::error::{Error, Result};
use crate::queue::{Claim, Queue};

/// How a worker loop runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// Handlers that run at a time. Default 1. Settlements on their way do not count.
    pub concurrency: usize,
    /// How long running jobs may finish after shutdown; then their tokens fire and they are given back without an
    /// attempt. Default 30 s.
    pub drain_limit: Duration,
    /// Longest run time of one attempt, unless the job or its queue says otherwise; then its token fires and the attempt
    /// fails. Default 1 h.
    pub max_run: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            concurrency: 1,
            drain_limit: Duration::from_secs(30),
            max_run: Duration::from_secs(3_600),
        }
    }
}

/// Settlements that may be on their way beside the handlers that run: their answers take one PUT, and handlers should
/// not wait for it.
const SETTLING_MAX: usize = 4_096;
/// Pause while the payload store cannot be reached; doubles up to the longest.
const PAYLOAD_PAUSE: Duration = Duration::from_millis(250);
const PAYLOAD_PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long a handler has to notice its token before its future is dropped.
const GRACE: Duration = Duration::from_millis(500);

/// Runs `handler` on the claims of a queue, up to `concurrency` at a time, until `shutdown` completes. Jobs are
/// awaited, not polled for: `_poll` is taken for compatibility and has no effect.
///
/// # Errors
/// [`Error::Closed`](crate::Error::Closed) when the store is closed or lost.
///
/// # Panics
/// If `concurrency` is zero.
pub async fn run_claim_handler<H: ClaimHandler, F: Future<Output = ()>>(
    queue: &Arc<Queue>,
    name: &str,
    handler: Arc<H>,
    concurrency: usize,
    _poll: Duration,
    shutdown: F,
) -> Result<()> {
    let options = WorkerOptions { concurrency, ..WorkerOptions::default() };
    run_claim_handler_with(queue, name, handler, options, shutdown).await
}

/// As [`run_claim_handler`], with all options.
///
/// # Errors
/// As [`run_claim_handler`].
///
/// # Panics
/// If `options.concurrency` is zero.
pub async fn run_claim_handler_with<H: ClaimHandler, F: Future<Output = ()>>(
    queue: &Arc<Queue>,
    name: &str,
    handler: Arc<H>,
    options: WorkerOptions,
    shutdown: F,
) -> Result<()> {
    assert!(options.concurrency > 0, "a worker needs a concurrency of at least 1");
    let mut pool = Pool {
        queue,
        handler,
        slots: Arc::new(Semaphore::new(options.concurrency)),
        room: Arc::new(Semaphore::new(options.concurrency + SETTLING_MAX)),
        options,
        tasks: JoinSet::new(),
        claims: HashMap::new(),
    };
    let ended = pool.work(name, shutdown).await;
    let drained = pool.drain(ended.is_err()).await;
    ended.and(drained)
}

struct Pool<'a, H> {
    queue: &'a Arc<Queue>,
    handler: Arc<H>,
    options: WorkerOptions,
    /// One permit per handler that runs.
    slots: Arc<Semaphore>,
    /// One permit per job in hand, its settlement included.
    room: Arc<Semaphore>,
    tasks: JoinSet<Result<()>>,
    /// The claims that tasks work on.
    claims: HashMap<tokio::task::Id, Arc<Claim>>,
}

/// A claim with the permits that it needs.
type Placed = (Claim, OwnedSemaphorePermit, OwnedSemaphorePermit);

impl<H: ClaimHandler> Pool<'_, H> {
    /// Claims and starts until shutdown.
    async fn work(&mut self, name: &str, shutdown: impl Future<Output = ()>) -> Result<()> {
        let mut shutdown = pin!(shutdown);
        let queue = Arc::clone(self.queue);
        loop {
            // One claim call at a time, kept until it is answered: dropping it would give its jobs back.
            let mut claims =
                pin!(claim(&queue, name, Arc::clone(&self.slots), Arc::clone(&self.room)));
            let placed = loop {
                tokio::select! {
                    biased;
                    () = &mut shutdown => return Ok(()),
                    placed = &mut claims => break placed?,
                    Some(done) = self.tasks.join_next_with_id() => finished(done, &mut self.claims)?,
                }
            };
            for placed in placed {
                self.start(placed);
            }
        }
    }

    fn start(&mut self, (claim, slot, room): Placed) {
        let claim = Arc::new(claim);
        let (queue, handler) = (Arc::clone(self.queue), Arc::clone(&self.handler));
        let (max_run, own) = (max_run(&queue, &claim, &self.options), Arc::clone(&claim));
        let task = async move {
            let settlement = attempt::handle(&queue, &*handler, &own, max_run).await;
            // The next handler starts while this one's settlement is on its way.
            drop(slot);
            let settled = attempt::settle(&queue, &own, settlement).await;
            drop(room);
            settled
        };
        let id = self.tasks.spawn(task).id();
        self.claims.insert(id, claim);
    }

    /// Lets running jobs finish; past the limit, or when the store is lost, they are told to stop and given back.
    async fn drain(&mut self, lost: bool) -> Result<()> {
        let limit = if lost { Duration::ZERO } else { self.options.drain_limit };
        let finish = async {
            while let Some(done) = self.tasks.join_next_with_id().await {
                finished(done, &mut self.claims)?;
            }
            Ok(())
        };
        if let Some(done) = env::within(limit, finish).await {
            return done;
        }
        for claim in self.claims.values() {
            claim.cancel_token().cancel();
        }
        let stop = async {
            while let Some(done) = self.tasks.join_next_with_id().await {
                if let Ok((id, _)) = done {
                    self.claims.remove(&id);
                }
            }
        };
        if env::within(GRACE, stop).await.is_none() {
            self.tasks.shutdown().await;
            for claim in self.claims.values() {
                tracing::warn!(job = %claim.id, queue = %claim.queue,
                    "stopped at the drain limit; given back without an attempt");
                // A lost store has taken its claims back already.
                drop(self.queue.give_back(claim));
            }
        }
        Ok(())
    }
}

/// The longest run time of an attempt: the job's own, its queue's, or the loop's.
fn max_run(queue: &Queue, claim: &Claim, options: &WorkerOptions) -> Duration {
    claim.max_run.or(queue.shared().configs.of(&claim.queue).max_run).unwrap_or(options.max_run)
}

/// Waits for free slots, then claims a job for each of them.
async fn claim(
    queue: &Queue,
    name: &str,
    slots: Arc<Semaphore>,
    room: Arc<Semaphore>,
) -> Result<Vec<Placed>> {
    let lease = queue.queue_lease_duration(name);
    let mut rooms = permit(&room).await;
    let mut free = permit(&slots).await;
    let more = slots.available_permits().min(room.available_permits());
    if let Ok(count) = u32::try_from(more)
        && let Ok(more_rooms) = Arc::clone(&room).try_acquire_many_owned(count)
        && let Ok(more_free) = Arc::clone(&slots).try_acquire_many_owned(count)
    {
        rooms.merge(more_rooms);
        free.merge(more_free);
    }
    let claims = claim_patiently(queue, name, free.num_permits(), lease).await?;
    let placed = claims.into_iter().filter_map(|claim| {
        // As many claims as permits at most were asked for.
        Some((claim, free.split(1)?, rooms.split(1)?))
    });
    Ok(placed.collect())
}

/// Waits for jobs and claims them, waiting also until the payload store can be reached: what was claimed meanwhile was
/// given back without an attempt.
async fn claim_patiently(
    queue: &Queue,
    name: &str,
    max: usize,
    lease: Duration,
) -> Result<Vec<Claim>> {
    let mut pause = PAYLOAD_PAUSE;
    loop {
        match queue.claim_batch_with_wait(name, max, lease).await {
            Err(error @ Error::PayloadStore(_)) => {
                tracing::warn!(%error, queue = name, "waiting for the payload store");
            }
            done => return done,
        }
        env::sleep(pause).await;
        pause = (pause * 2).min(PAYLOAD_PAUSE_MAX);
    }
}

/// A permit of a semaphore that is never closed.
async fn permit(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    match Arc::clone(semaphore).acquire_owned().await {
        Ok(permit) => permit,
        Err(_) => std::future::pending().await,
    }
}

type Done = std::result::Result<(tokio::task::Id, Result<()>), tokio::task::JoinError>;

/// Takes note of a task that ended. Handlers' panics are caught inside, so a task only fails with the store.
fn finished(done: Done, claims: &mut HashMap<tokio::task::Id, Arc<Claim>>) -> Result<()> {
    match done {
        Ok((id, result)) => {
            claims.remove(&id);
            result
        }
        Err(error) => {
            claims.remove(&error.id());
            tracing::error!(%error, "a worker task was ended from outside; its lease will run out");
            Ok(())
        }
    }
}

/// Runs `handler` on the claims of a queue, one at a time, in place.
pub(super) async fn run_sequential<H: Handler>(
    queue: &Queue,
    name: &str,
    handler: &H,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let options = WorkerOptions::default();
    let lease = queue.queue_lease_duration(name);
    let mut shutdown = pin!(shutdown);
    loop {
        let claims = tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            claims = claim_patiently(queue, name, 1, lease) => claims?,
        };
        for claim in claims {
            let max_run = max_run(queue, &claim, &options);
            let mut attempt = pin!(attempt::run(queue, handler, &claim, max_run));
            tokio::select! {
                done = &mut attempt => {
                    done?;
                    continue;
                }
                () = &mut shutdown => {}
                () = lost(queue) => {}
            }
            let limit =
                if queue.shared().check_open().is_err() { GRACE } else { options.drain_limit };
            if let Some(done) = env::within(limit, &mut attempt).await {
                return done;
            }
            claim.cancel_token().cancel();
            if env::within(GRACE, &mut attempt).await.is_none() {
                drop(queue.give_back(&claim));
            }
            return queue.shared().check_open();
        }
    }
}

/// Returns when the queue is closed or lost.
async fn lost(queue: &Queue) {
    queue.closed().await;
}
