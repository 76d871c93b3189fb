//! The loops: as many claims at a time as there are free slots, drained within a limit at the end.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::attempt;
use super::handler::{ClaimHandler, Handler};
use crate::env;
use crate::error::Result;
use crate::queue::{Claim, Queue};

/// How a worker loop runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// Jobs at a time. Default 1.
    pub concurrency: usize,
    /// How long running jobs may finish after shutdown; then their tokens fire and they are given back without an
    /// attempt. Default 30 s.
    pub drain_limit: Duration,
    /// Longest run time of one attempt; then its token fires and the attempt fails. Default 1 h.
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
    let options = WorkerOptions {
        concurrency,
        ..WorkerOptions::default()
    };
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
    assert!(
        options.concurrency > 0,
        "a worker needs a concurrency of at least 1"
    );
    let mut pool = Pool {
        queue,
        handler,
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
    tasks: JoinSet<Result<()>>,
    /// The claims that tasks work on.
    claims: HashMap<tokio::task::Id, Arc<Claim>>,
}

impl<H: ClaimHandler> Pool<'_, H> {
    /// Claims and starts until shutdown.
    async fn work(&mut self, name: &str, shutdown: impl Future<Output = ()>) -> Result<()> {
        let mut shutdown = pin!(shutdown);
        let lease = self.queue.queue_lease_duration(name);
        loop {
            let free = self.options.concurrency - self.tasks.len();
            let claim = async {
                match free {
                    0 => std::future::pending().await,
                    _ => self.queue.claim_batch_with_wait(name, free, lease).await,
                }
            };
            let claims = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                Some(done) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                    finished(done, &mut self.claims)?;
                    // Everyone who is done frees a slot before the next claim, so that claims come in batches.
                    while let Some(done) = self.tasks.try_join_next_with_id() {
                        finished(done, &mut self.claims)?;
                    }
                    continue;
                }
                claims = claim => claims?,
            };
            for claim in claims {
                self.start(claim);
            }
        }
    }

    fn start(&mut self, claim: Claim) {
        let claim = Arc::new(claim);
        let (queue, handler) = (Arc::clone(self.queue), Arc::clone(&self.handler));
        let (max_run, own) = (self.options.max_run, Arc::clone(&claim));
        let task = async move { attempt::run(&queue, &*handler, &own, max_run).await };
        let id = self.tasks.spawn(task).id();
        self.claims.insert(id, claim);
    }

    /// Lets running jobs finish; past the limit, or when the store is lost, they are told to stop and given back.
    async fn drain(&mut self, lost: bool) -> Result<()> {
        let limit = if lost {
            Duration::ZERO
        } else {
            self.options.drain_limit
        };
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
            claims = queue.claim_batch_with_wait(name, 1, lease) => claims?,
        };
        for claim in claims {
            let mut attempt = pin!(attempt::run(queue, handler, &claim, options.max_run));
            tokio::select! {
                done = &mut attempt => {
                    done?;
                    continue;
                }
                () = &mut shutdown => {}
                () = lost(queue) => {}
            }
            let limit = if queue.shared().check_open().is_err() {
                GRACE
            } else {
                options.drain_limit
            };
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
