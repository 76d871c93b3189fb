//! What a settlement changes besides its own job: further jobs and KV rows, in the same commit. Values only.

use std::collections::HashMap;

use crate::config::EnqueueOptions;

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

    /// Adds one KV delete.
    #[must_use]
    pub fn kv_delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.kv_deletes.push(key.into());
        self
    }
}
