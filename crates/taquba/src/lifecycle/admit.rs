//! How a job comes into being: duplicates, taken ids, and the wait for a signal. Numbers and times come from outside.

use std::sync::Arc;

use bytes::Bytes;

use super::Stamp;
use super::job::{Body, Job, JobId, Payload, Rules, State, Woken};
use crate::name::QueueName;

/// A job as the caller asks for it, its bytes already encoded.
#[derive(Debug, Clone)]
pub(crate) struct NewJob {
    pub(crate) queue: QueueName,
    pub(crate) priority: u32,
    pub(crate) max_attempts: u32,
    /// Wall time before which it is not ready.
    pub(crate) run_at: Option<u64>,
    pub(crate) dedup: Option<Arc<str>>,
    pub(crate) signal_key: Option<Arc<str>>,
    /// The caller's own id, or one that was issued to it.
    pub(crate) id: Option<JobId>,
    /// The id was issued by this opening's generator, so nothing stored can have it.
    pub(crate) id_issued: bool,
    pub(crate) headers: Bytes,
    pub(crate) payload: Payload,
    pub(crate) rules: Rules,
}

/// What the store says about a job that wants to come in.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdmitFacts {
    /// The waiting job that holds its dedup key.
    pub(crate) dedup_holder: Option<JobId>,
    /// Its own id belongs to a stored job.
    pub(crate) id_taken: bool,
    /// The job that waits for its signal key.
    pub(crate) signal_waiter: Option<JobId>,
    /// The signal buffered for its signal key.
    pub(crate) signal_buffered: Option<Bytes>,
}

/// Why a job does not come in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not an error: this job stands for it.
    Duplicate(JobId),
    IdTaken,
    SignalKeyTaken,
    SignalWithoutTimeout,
}

/// Decides on one new job. `used_signal` in the answer says that the buffered signal was consumed.
pub(crate) fn admit(
    new: &NewJob,
    facts: &AdmitFacts,
    id: JobId,
    order: u64,
    stamp: Stamp,
) -> Result<Admitted, Refusal> {
    if let Some(holder) = &facts.dedup_holder {
        return Err(Refusal::Duplicate(Arc::clone(holder)));
    }
    if facts.id_taken {
        return Err(Refusal::IdTaken);
    }
    let run_at = new.run_at.filter(|at| *at > stamp.now_ms);
    let mut woken = None;
    if new.signal_key.is_some() {
        if run_at.is_none() {
            return Err(Refusal::SignalWithoutTimeout);
        }
        if facts.signal_waiter.is_some() {
            return Err(Refusal::SignalKeyTaken);
        }
        woken = facts
            .signal_buffered
            .clone()
            .map(|payload| Woken { at: stamp.now_ms, payload: Some(payload) });
    }
    let used_signal = woken.is_some();
    let state = match run_at {
        Some(run_at) if !used_signal => State::Scheduled { run_at },
        _ => State::Pending,
    };
    let job = Job {
        body: Arc::new(Body {
            id,
            queue: new.queue.clone(),
            priority: new.priority,
            order,
            enqueued_at: stamp.now_ms,
            max_attempts: new.max_attempts.max(1),
            headers: new.headers.clone(),
            payload: new.payload.clone(),
            rules: new.rules.clone(),
        }),
        attempts: 0,
        epoch: stamp.epoch,
        last_error: None,
        dedup: new.dedup.clone(),
        cancel_requested: false,
        signal_key: new.signal_key.clone().filter(|_| !used_signal),
        woken,
        result: None,
        history: 0,
        state,
    };
    Ok(Admitted { job, used_signal })
}

/// A job that comes in.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) job: Job,
    pub(crate) used_signal: bool,
}
