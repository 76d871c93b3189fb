//! What a settlement changes besides its own job: further jobs and KV rows, in the same commit. Values only.

use std::collections::HashMap;

use crate::config::EnqueueOptions;
use crate::expiry::ExpiryIndex;

/// One job to enqueue as part of a settlement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnqueueRequest {
    /// The queue's name.
    pub queue: String,
    /// The job's payload.
    pub payload: Vec<u8>,
    /// How it is enqueued.
    pub options: EnqueueOptions,
}

/// Changes that commit together with a settlement, or not at all. At most 1,000 entries and 4 MiB,
/// payloads in objects of their own not counted.
#[derive(Debug, Clone, Default)]
pub struct SettlementEffects {
    /// Jobs to enqueue, in order.
    pub enqueues: Vec<EnqueueRequest>,
    /// KV rows to write. Values of at most 256 KiB.
    pub kv_writes: HashMap<Vec<u8>, Vec<u8>>,
    /// KV rows to delete.
    pub kv_deletes: Vec<Vec<u8>>,
    /// Entries of expiry indexes among the KV writes, each with its time; set by
    /// [`expiry_entry`](Self::expiry_entry).
    pub expiry_entries: Vec<(ExpiryIndex, u64)>,
    /// What the job came to, when the settlement completes it: kept with its record for the queue's retention
    /// ([`QueueConfig::keep_done_jobs`](crate::QueueConfig::keep_done_jobs)), and given to who waits for its completion,
    /// kept or not. Part of no other commit.
    pub result: Option<Vec<u8>>,
}

impl SettlementEffects {
    /// Sets all enqueues.
    #[must_use]
    pub fn enqueues(mut self, enqueues: Vec<EnqueueRequest>) -> Self {
        self.enqueues = enqueues;
        self
    }

    /// Adds one enqueue.
    #[must_use]
    pub fn enqueue(mut self, request: EnqueueRequest) -> Self {
        self.enqueues.push(request);
        self
    }

    /// Sets all KV writes.
    #[must_use]
    pub fn kv_writes(mut self, writes: HashMap<Vec<u8>, Vec<u8>>) -> Self {
        self.kv_writes = writes;
        self
    }

    /// Adds one KV write.
    #[must_use]
    pub fn kv_put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.kv_writes.insert(key.into(), value.into());
        self
    }

    /// Sets all KV deletes.
    #[must_use]
    pub fn kv_deletes(mut self, deletes: Vec<Vec<u8>>) -> Self {
        self.kv_deletes = deletes;
        self
    }

    /// Adds an entry of an expiry index: an empty row, at a time in milliseconds since the Unix epoch.
    #[must_use]
    pub fn expiry_entry(mut self, index: &ExpiryIndex, at_ms: u64, suffix: &[u8]) -> Self {
        self.expiry_entries.push((index.clone(), at_ms));
        self.kv_put(index.entry_key(at_ms, suffix), Vec::new())
    }

    /// Sets what the job came to.
    #[must_use]
    pub fn result(mut self, result: impl Into<Vec<u8>>) -> Self {
        self.result = Some(result.into());
        self
    }

    /// Adds one KV delete.
    #[must_use]
    pub fn kv_delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.kv_deletes.push(key.into());
        self
    }
}
