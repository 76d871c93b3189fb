//! What reaches the loop: commands from callers, claims, and news from the tasks that read outside. Values only.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::bin::Doomed;
use super::found::Found;
use super::inbox::Arrival;
use super::offload::Upload;
use super::refill::Page;
use super::retention::Sweep;
use crate::decide::{DecideFn, Reads, Verdict};
use crate::error::{CloseReason, Error, Result};
use crate::expiry::ExpiryIndex;
use crate::filter::{BulkAction, JobFilter};
use crate::inbox::InboxRecord;
use crate::lifecycle::admit::NewJob;
use crate::lifecycle::job::{Job, JobId, Object};
use crate::name::QueueName;
use crate::record::{
    CancelOutcome, EnqueueResult, NackOutcome, SignalDelivery, WaitOutcome, WakeOutcome,
};
use crate::state::leases::ClaimNo;
use crate::state::reserve::Ticket;
use crate::state::retention::Shelf;
use crate::store::kept::KeptPage;
use crate::store::record::Counters;
use tokio_util::sync::CancellationToken;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// An answer that waits for its moment: called with `None` when what it says is durable, with the reason when the
/// store ended first.
pub(crate) type Answer = Box<dyn FnOnce(Option<&CloseReason>) + Send>;

/// An answer of this value.
pub(crate) fn answer<T: Send + 'static>(reply: Reply<T>, value: Result<T>) -> Answer {
    Box::new(move |ended| {
        let value = match ended {
            None => value,
            Some(reason) => Err(Error::Closed(reason.clone())),
        };
        // A caller that went away does not need its answer.
        drop(reply.send(value));
    })
}

/// Changes of caller rows: key (as stored), and value or deletion.
pub(crate) type KvChanges = Vec<(Bytes, Option<Bytes>)>;

/// Effects, checked and encoded.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) jobs: Vec<NewJob>,
    pub(crate) kv: KvChanges,
    /// Entries of expiry indexes among `kv`.
    pub(crate) expiry: Vec<(ExpiryIndex, u64)>,
    /// What a completed job came to.
    pub(crate) result: Option<Bytes>,
    /// The objects that the jobs name. Dropped without a record that names them, they go.
    pub(crate) uploads: Vec<Upload>,
}

/// What a caller wants, with where its answer goes.
pub(crate) enum Op {
    /// Enqueue jobs and write rows. With `lead`, a duplicate first job voids everything else.
    Enqueue {
        lead: bool,
        what: Prepared,
        reply: Reply<Vec<EnqueueResult>>,
    },
    /// End a claim.
    Settle {
        claim: ClaimNo,
        verdict: Verdict,
        effects: Prepared,
        reply: Reply<NackOutcome>,
    },
    /// Run a pure function on facts and commit what it says; `claim` is the claim it settles.
    Decide {
        claim: Option<ClaimNo>,
        reads: Reads,
        decide: Decision,
    },
    Cancel {
        id: JobId,
        effects: Prepared,
        reply: Reply<(CancelOutcome, Vec<EnqueueResult>)>,
    },
    Wake {
        id: JobId,
        payload: Option<Bytes>,
        reply: Reply<WakeOutcome>,
    },
    Signal {
        queue: QueueName,
        key: Arc<str>,
        payload: Bytes,
        reply: Reply<SignalDelivery>,
    },
    ClearSignal {
        queue: QueueName,
        key: Arc<str>,
        reply: Reply<bool>,
    },
    Requeue {
        id: JobId,
        reply: Reply<()>,
    },
    /// Hand out no more jobs of a queue, or again; whether that is news.
    Pause {
        queue: QueueName,
        paused: bool,
        reply: Reply<bool>,
    },
    /// Claim one job by its id.
    ClaimById {
        id: JobId,
        lease_ms: u64,
        reply: Reply<ById>,
    },
    /// Effects that commit only if every row has the expected value.
    Compare {
        compares: KvChanges,
        effects: Prepared,
        reply: Reply<Option<Vec<EnqueueResult>>>,
    },
    /// Tell when the job's life has ended.
    Watch {
        id: JobId,
        watcher: u64,
        reply: Reply<Watched>,
    },
    /// Take a row back that was put aside (`back`), or away; whether it was there.
    Aside {
        key: Bytes,
        back: bool,
        reply: Reply<bool>,
    },
    /// Do something to those of many jobs that a filter still means; how many changed.
    Each {
        ids: Vec<JobId>,
        action: BulkAction,
        filter: JobFilter,
        reply: Reply<u64>,
    },
    /// Apply entries of a queue's inbox, in their order; what became of each.
    Inbox {
        queue: QueueName,
        arrivals: Vec<Arrival>,
        reply: Reply<Vec<InboxRecord>>,
    },
    /// Forget kept jobs whose time is over.
    Sweep(Sweep),
    /// A claim that nobody took over and that must look whether its dedup key is still free.
    Release {
        claim: ClaimNo,
    },
}

/// How a job that was waited for ended.
pub(crate) struct Watched {
    pub(crate) outcome: WaitOutcome,
    /// Its payload, when that is in an object.
    pub(crate) object: Option<Object>,
    /// Held while the payload is read, when the job is gone.
    pub(crate) doomed: Option<Arc<Doomed>>,
}

impl Watched {
    /// An outcome whose payload, if any, is in it.
    pub(crate) fn plain(outcome: WaitOutcome) -> Self {
        Self { outcome, object: None, doomed: None }
    }
}

/// A caller's decision.
pub(crate) struct Decision {
    /// The pure function.
    pub(crate) run: DecideFn,
    /// Called with the refusal, or with `None` once its changes are durable.
    pub(crate) answer: Box<dyn FnOnce(Option<Error>) + Send>,
}

/// A caller's command in the engine.
pub(crate) struct Command {
    pub(crate) op: Op,
    /// Its share of the mailbox, held until it is answered.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// A wish for jobs.
pub(crate) struct ClaimRequest {
    pub(crate) queue: QueueName,
    pub(crate) max: usize,
    pub(crate) lease_ms: u64,
    /// Wait for jobs (until the reply is dropped) instead of answering "none".
    pub(crate) wait: bool,
    pub(crate) reply: Reply<Grants>,
}

/// Claimed jobs on their way to a worker. Dropped with claims inside, it gives them back: no attempt is charged.
pub(crate) struct Grants {
    grants: Vec<Grant>,
    back: mpsc::UnboundedSender<Request>,
}

/// What a claim by id led to.
pub(crate) enum ById {
    Claimed(Grants),
    NotClaimable,
    NotFound,
}

/// One claimed job.
pub(crate) struct Grant {
    pub(crate) claim: ClaimNo,
    pub(crate) job: Arc<Job>,
    pub(crate) token: CancellationToken,
}

impl Grants {
    pub(crate) fn new(grants: Vec<Grant>, back: mpsc::UnboundedSender<Request>) -> Self {
        Self { grants, back }
    }

    /// The claims, which stay here.
    pub(crate) fn all(&self) -> &[Grant] {
        &self.grants
    }

    /// Takes all claims over; from here on they are the taker's to settle.
    pub(crate) fn take_all(&mut self) -> Vec<Grant> {
        std::mem::take(&mut self.grants)
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        if !self.grants.is_empty() {
            let claims = self.grants.iter().map(|grant| grant.claim).collect();
            // If the engine is gone, so is every claim.
            drop(self.back.send(Request::Release(claims)));
        }
    }
}

/// What the loop works on.
pub(crate) enum Request {
    Command(Box<Command>),
    Claim(ClaimRequest),
    /// Claims that did not reach their workers.
    Release(Vec<ClaimNo>),
    /// A lease was made shorter.
    LookAtLease(ClaimNo),
    /// An attempt says how far it is.
    Progress(ClaimNo),
    /// Waiting claims of this queue may have been dropped.
    ForgetClaims(QueueName),
    /// A watcher was dropped.
    ForgetWatch(JobId, u64),
    /// The facts of a parked command.
    Loaded(Ticket, Box<Result<Found>>),
    /// A page of ready jobs of one band.
    ReadyPage(QueueName, u32, Result<Page<u64>>),
    /// A page of kept jobs that ended by some time.
    KeptPage(Shelf, u64, Result<KeptPage>),
    /// A page of scheduled jobs.
    ScheduledPage(Result<Page<(u64, u64)>>),
    /// How many jobs of a queue are in each state.
    Stats(QueueName, Reply<(Counters, bool)>),
    /// Tell when a job of this queue can be claimed.
    AwaitJobs(QueueName, oneshot::Sender<()>),
    /// Tell about jobs of this queue that the engine itself dead-letters.
    Deaths(QueueName, mpsc::UnboundedSender<String>),
    /// How long inbox entries are remembered, in milliseconds: the whole inbox has been looked at.
    KeepEntries(u64),
    /// The store failed for good.
    Lost(CloseReason),
    /// Answer when everything written until now is durable.
    Barrier(Reply<()>),
    /// Tell the metrics recorder how much is in each queue.
    Sample,
    /// Look at leases and timers now, then answer.
    Tick(Reply<()>),
    /// Finish what was accepted, then close.
    Close(Reply<()>),
    /// The handle is gone: stop like a crash.
    Abandon,
}
