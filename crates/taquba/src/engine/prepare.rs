//! From what a caller gives to what the loop needs: checked against every cap, defaults filled in, bytes encoded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::request::Prepared;
use crate::config::{EnqueueOptions, OpenOptions, QueueConfig};
use crate::effects::SettlementEffects;
use crate::env::{epoch_ms, millis};
use crate::error::{Error, Result};
use crate::lifecycle::admit::NewJob;
use crate::lifecycle::job::{Payload, Rules};
use crate::lifecycle::term::Kind;
use crate::limits;
use crate::name::QueueName;
use crate::retry::{Delays, MAX_DELAYS, RetryPolicy};
use crate::store::keys;
use crate::store::record::encode_headers;

/// Payloads up to this size ride in their job's row (512 B); larger ones have a row of their own, so that a
/// transition rewrites only the head.
const INLINE_PAYLOAD: usize = 512;

/// Shortest deadline of one request to the object store.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// The configuration of every queue.
#[derive(Debug, Clone)]
pub(crate) struct Configs {
    default: QueueConfig,
    by_name: HashMap<String, QueueConfig>,
    /// Strictly larger payloads go to objects of their own.
    offload_above: Option<usize>,
}

impl Configs {
    /// Checks and takes the configurations that a store is opened with.
    pub(crate) fn new(options: &OpenOptions) -> Result<Self> {
        if options.call_timeout.is_zero() {
            let reason = "must not be zero: a durable call takes at least one request";
            return Err(Error::InvalidOption { option: "call_timeout", reason });
        }
        if options.store_request_timeout < REQUEST_TIMEOUT_MIN {
            let reason = "must be at least 100 ms: a request given up was for nothing";
            return Err(Error::InvalidOption { option: "store_request_timeout", reason });
        }
        check_config(&options.default_queue_config)?;
        for (name, config) in &options.queue_configs {
            QueueName::new(name.clone())?;
            check_config(config).map_err(|error| match error {
                Error::InvalidOption { option, reason } => {
                    Error::InvalidQueueOption { queue: name.clone(), option, reason }
                }
                other => other,
            })?;
        }
        Ok(Self {
            default: options.default_queue_config.clone(),
            by_name: options.queue_configs.clone(),
            offload_above: options.payload_offload_threshold,
        })
    }

    pub(crate) fn of(&self, queue: &str) -> &QueueConfig {
        self.by_name.get(queue).unwrap_or(&self.default)
    }

    /// How long failed jobs of a queue wait.
    pub(crate) fn retry(&self, queue: &str) -> Cow<'_, RetryPolicy> {
        let config = self.of(queue);
        let doubling =
            || RetryPolicy::exponential(config.retry_backoff_base, config.retry_backoff_max);
        config.retry.as_ref().map_or_else(|| Cow::Owned(doubling()), Cow::Borrowed)
    }

    /// How long after its time a job of a kind is over, in milliseconds; `None`: not until further notice.
    pub(crate) fn keep_ms(&self, queue: &str, kind: Kind) -> Option<u64> {
        let config = self.of(queue);
        match kind {
            Kind::Done => config.keep_done_jobs.map(millis),
            Kind::Dead => config.dead_retention.map(millis),
            // What waits is over at the very time.
            Kind::Expiring => Some(0),
            // Said when a look at the whole inbox has shown what is still there.
            Kind::Entry => None,
        }
    }

    /// Whether a payload of this size goes to an object of its own.
    fn goes_out(&self, size: usize) -> bool {
        self.offload_above.is_some_and(|above| size > above)
    }

    /// How many bytes of a payload of this size come into the store itself.
    pub(crate) fn size_within(&self, size: usize) -> usize {
        if self.goes_out(size) { 0 } else { size }
    }

    /// Prepares one job. A large payload is still with it: [`Offload::upload`](super::offload::Offload::upload).
    pub(crate) fn job(
        &self,
        queue: &str,
        payload: Vec<u8>,
        options: EnqueueOptions,
    ) -> Result<NewJob> {
        let name = QueueName::new(queue)?;
        let config = self.of(queue);
        let max = match self.goes_out(payload.len()) {
            true => limits::MAX_OFFLOADED_SIZE,
            false => limits::MAX_PAYLOAD_SIZE,
        };
        limits::check("payload bytes", payload.len(), max)?;
        limits::check_headers(&options.headers)?;
        if options.max_attempts == Some(0) {
            return Err(Error::InvalidOption {
                option: "max_attempts",
                reason: "must be at least 1",
            });
        }
        if let Some(id) = &options.id_override {
            limits::check_job_id(id)?;
        }
        if let Some(key) = &options.dedup_key {
            limits::check("dedup key bytes", key.len(), limits::MAX_DEDUP_KEY_LEN)?;
        }
        if let Some(key) = &options.signal_key {
            limits::check("signal key bytes", key.len(), limits::MAX_SIGNAL_KEY_LEN)?;
        }
        let size = payload.len();
        let payload = if size <= INLINE_PAYLOAD {
            Payload::Inline(payload.into())
        } else {
            Payload::Apart { size: size as u64, bytes: Some(payload.into()) }
        };
        check_retry(options.retry.as_ref())?;
        let rules = Rules {
            retry: options.retry,
            max_run_ms: options.max_run.map(millis),
            expire_at: options.expire_at.map(epoch_ms),
        };
        Ok(NewJob {
            queue: name,
            priority: options.priority.unwrap_or(config.default_priority),
            max_attempts: options.max_attempts.unwrap_or(config.max_attempts),
            run_at: options.run_at.map(epoch_ms),
            dedup: options.dedup_key.map(Arc::from),
            signal_key: options.signal_key.map(Arc::from),
            id: options.id_override.map(Arc::from),
            id_issued: false,
            headers: encode_headers(options.headers.iter()),
            payload,
            rules,
        })
    }

    /// Prepares an effects set whose large payloads go to objects of their own; only the rest counts.
    pub(crate) fn effects(&self, effects: SettlementEffects) -> Result<Prepared> {
        let prepared = self.prepare(effects)?;
        let sizes = prepared.jobs.iter().filter_map(|job| Some(job.payload.bytes()?.len()));
        let out: usize = sizes.filter(|size| self.goes_out(*size)).sum();
        let size = size_of(&prepared).saturating_sub(out);
        limits::check("effects bytes", size, limits::MAX_EFFECTS_SIZE)?;
        Ok(prepared)
    }

    /// Prepares an effects set that came to be inside the loop, where nothing can be uploaded: it stays in the store.
    pub(crate) fn effects_within(&self, effects: SettlementEffects) -> Result<Prepared> {
        let prepared = self.prepare(effects)?;
        limits::check("effects bytes", size_of(&prepared), limits::MAX_EFFECTS_SIZE)?;
        Ok(prepared)
    }

    fn prepare(&self, effects: SettlementEffects) -> Result<Prepared> {
        let SettlementEffects { enqueues, kv_writes, kv_deletes, expiry_entries, result } = effects;
        let entries = enqueues.len() + kv_writes.len() + kv_deletes.len();
        limits::check("effects entries", entries, limits::MAX_EFFECTS)?;
        let mut prepared = Prepared {
            result: result.map(Bytes::from),
            expiry: expiry_entries,
            ..Prepared::default()
        };
        for request in enqueues {
            prepared.jobs.push(self.job(&request.queue, request.payload, request.options)?);
        }
        for key in kv_deletes {
            if kv_writes.contains_key(&key) {
                return Err(Error::ConflictingKvEffect { key });
            }
            limits::check_kv(&key, None)?;
            prepared.kv.push((keys::kv(&key), None));
        }
        for (key, value) in kv_writes {
            limits::check_kv(&key, Some(&value))?;
            prepared.kv.push((keys::kv(&key), Some(value.into())));
        }
        // A hash map gave them in no order; a seed must replay.
        prepared.kv.sort_unstable();
        Ok(prepared)
    }
}

fn check_config(config: &QueueConfig) -> Result<()> {
    if config.max_attempts == 0 {
        return Err(Error::InvalidOption { option: "max_attempts", reason: "must be at least 1" });
    }
    if config.lease_duration.is_zero() {
        return Err(Error::InvalidOption { option: "lease_duration", reason: "must not be zero" });
    }
    check_retry(config.retry.as_ref())
}

fn check_retry(retry: Option<&RetryPolicy>) -> Result<()> {
    match retry.map(|retry| &retry.delays) {
        Some(Delays::List(delays)) => limits::check("retry delays", delays.len(), MAX_DELAYS),
        _ => Ok(()),
    }
}

/// The bytes that a prepared set brings into memory.
pub(crate) fn size_of(prepared: &Prepared) -> usize {
    let jobs: usize = prepared.jobs.iter().map(job_size).sum();
    let kv: usize =
        prepared.kv.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, |v| v.len())).sum();
    jobs + kv + prepared.result.as_ref().map_or(0, Bytes::len)
}

/// The bytes that a new job brings into memory.
pub(crate) fn job_size(job: &NewJob) -> usize {
    job.headers.len() + job.payload.bytes().map_or(0, |bytes| bytes.len())
}
