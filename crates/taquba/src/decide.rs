//! Reading and writing in one commit: facts that are read under reservation, and the changes a pure function derives
//! from them. The values only; the engine owns how they are read and committed.

use std::collections::HashMap;

use bytes::Bytes;

use crate::effects::{EnqueueRequest, SettlementEffects};
use crate::record::JobRecord;

/// How a KV value gives a job's id.
pub type IdInValue = fn(&[u8]) -> Option<String>;

/// A decision as a boxed function: see [`Queue::decide`](crate::Queue::decide).
pub type DecideFn = Box<dyn FnOnce(&Facts, &mut Changes) + Send>;

/// What a decision needs to know. Everything named is reserved from before it is read until the decision commits, so
/// no other change can come between.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// KV rows.
    pub kv: Vec<Vec<u8>>,
    /// Jobs by id.
    pub jobs: Vec<String>,
    /// Jobs whose id a KV row names: the row's key and how its value gives the id.
    pub jobs_in_kv: Vec<(Vec<u8>, IdInValue)>,
    /// Signal keys, each with its queue.
    pub signals: Vec<(String, String)>,
    /// Dedup keys, each with its queue, of jobs that the decision may enqueue.
    pub dedup_keys: Vec<(String, String)>,
    /// Caller-supplied ids of jobs that the decision may enqueue.
    pub new_ids: Vec<String>,
}

impl Reads {
    /// Adds what these requests need read before they can be enqueued: dedup keys, ids, signal keys.
    #[must_use]
    pub fn for_enqueues(mut self, requests: &[EnqueueRequest]) -> Self {
        for request in requests {
            let options = &request.options;
            let in_queue = |key: &String| (request.queue.clone(), key.clone());
            self.dedup_keys.extend(options.dedup_key.as_ref().map(in_queue));
            self.signals.extend(options.signal_key.as_ref().map(in_queue));
            self.new_ids.extend(options.id_override.clone());
        }
        self
    }
}

/// Where a signal key stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignalFacts {
    /// The job that waits for the key.
    pub waiter: Option<String>,
    /// The signal that is buffered for the key.
    pub buffered: Option<Bytes>,
}

/// What was read.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The queue's clock at the decision, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Whether cancellation of the settled job was requested; false outside a settlement.
    pub cancel_requested: bool,
    pub(crate) kv: HashMap<Vec<u8>, Option<Bytes>>,
    pub(crate) jobs: HashMap<String, Option<JobRecord>>,
    pub(crate) signals: HashMap<(String, String), SignalFacts>,
}

impl Facts {
    /// Returns the value of a KV row that was named in [`Reads::kv`] or [`Reads::jobs_in_kv`]; `None` if absent.
    #[must_use]
    pub fn kv(&self, key: &[u8]) -> Option<&Bytes> {
        self.kv.get(key).and_then(Option::as_ref)
    }

    /// Returns a job that was named (in its stored form); `None` if there is none of this id.
    #[must_use]
    pub fn job(&self, id: &str) -> Option<&JobRecord> {
        self.jobs.get(id).and_then(Option::as_ref)
    }

    /// Returns where a signal key that was named stands.
    #[must_use]
    pub fn signal(&self, queue: &str, key: &str) -> SignalFacts {
        self.signals.get(&(queue.to_owned(), key.to_owned())).cloned().unwrap_or_default()
    }
}

/// How the settled job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ack,
    Nack(String),
    /// What the worker wanted to commit was refused; as a failed attempt, but nobody decided on it.
    Refused(String),
    DeadLetter(String),
    /// The payload is gone; as a dead letter, but nobody decided on it.
    Lost(String),
}

/// What a decision changes. All of it commits at once, or none of it.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    pub(crate) verdict: Option<Verdict>,
    /// Ids in `effects.enqueues` that were issued by this process, so that nothing stored has them.
    pub(crate) issued: Vec<String>,
    pub(crate) cancels: Vec<String>,
    pub(crate) effects: SettlementEffects,
}

impl Changes {
    /// Completes the settled job. Ignored outside a settlement.
    pub fn ack(&mut self) {
        self.verdict = Some(Verdict::Ack);
    }

    /// Sets what the settled job came to: see [`SettlementEffects::result`].
    pub fn result(&mut self, result: impl Into<Vec<u8>>) {
        self.effects.result = Some(result.into());
    }

    /// Fails the settled job's attempt: retried with backoff, or dead-lettered when out of attempts.
    pub fn nack(&mut self, error: impl Into<String>) {
        self.verdict = Some(Verdict::Nack(error.into()));
    }

    /// Dead-letters the settled job at once.
    pub fn dead_letter(&mut self, reason: impl Into<String>) {
        self.verdict = Some(Verdict::DeadLetter(reason.into()));
    }

    /// Cancels a job that was read: removes it if it waits, asks its handler to stop if it is claimed.
    pub fn cancel(&mut self, id: impl Into<String>) {
        self.cancels.push(id.into());
    }

    /// Enqueues a job. What its options name (dedup key, id, signal key) must have been read: see
    /// [`Reads::for_enqueues`].
    pub fn enqueue(&mut self, request: EnqueueRequest) {
        self.effects.enqueues.push(request);
    }

    /// Enqueues a job under an id from [`Queue::next_job_id`](crate::Queue::next_job_id), which needs no look at the
    /// store: nothing stored can have it. Use each issued id once.
    pub fn enqueue_issued(&mut self, id: String, mut request: EnqueueRequest) {
        request.options.id_override = Some(id.clone());
        self.issued.push(id);
        self.enqueue(request);
    }

    /// Writes a KV row.
    pub fn kv_put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.effects.kv_writes.insert(key.into(), value.into());
    }

    /// Deletes a KV row.
    pub fn kv_delete(&mut self, key: impl Into<Vec<u8>>) {
        self.effects.kv_deletes.push(key.into());
    }

    /// Adds a whole effects set.
    pub fn extend(&mut self, effects: SettlementEffects) {
        self.effects.enqueues.extend(effects.enqueues);
        self.effects.kv_writes.extend(effects.kv_writes);
        self.effects.kv_deletes.extend(effects.kv_deletes);
        self.effects.expiry_entries.extend(effects.expiry_entries);
        self.effects.result = effects.result.or(self.effects.result.take());
    }
}
