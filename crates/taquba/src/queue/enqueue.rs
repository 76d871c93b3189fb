//! Bringing jobs in. Every call here is durable when it returns.

use super::Queue;
use crate::config::EnqueueOptions;
use crate::effects::SettlementEffects;
use crate::engine::Lane;
use crate::engine::prepare::{job_size, size_of};
use crate::engine::request::{Op, Prepared};
use crate::error::Result;
use crate::limits;
use crate::record::EnqueueResult;
use crate::telemetry::{self, Timed};

impl Queue {
    /// Enqueues a job with the queue's defaults and returns its id. Durable on return.
    ///
    /// A payload larger than [`OpenOptions::payload_offload_threshold`](crate::OpenOptions::payload_offload_threshold)
    /// is uploaded to an object of its own first.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge) past 64 MiB in the store, 256 MiB in an object;
    /// [`Error::PayloadStore`](crate::Error::PayloadStore) when the upload failed, and then nothing was enqueued;
    /// [`Error::NotConfirmed`](crate::Error::NotConfirmed) when the store did not answer in time;
    /// [`Error::Closed`](crate::Error::Closed).
    ///
    /// # Cancel safety
    /// Dropped while it waits for room, nothing happened; after that the job may still be enqueued.
    pub async fn enqueue(&self, queue: &str, payload: Vec<u8>) -> Result<String> {
        self.enqueue_with(queue, payload, EnqueueOptions::default()).await
    }

    /// Enqueues a job and returns its id, or the id of the job that holds its dedup key. Durable on return.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue); also [`Error::InvalidId`](crate::Error::InvalidId),
    /// [`Error::DuplicateJobId`](crate::Error::DuplicateJobId) and the caps of headers and keys.
    pub async fn enqueue_with(
        &self,
        queue: &str,
        payload: Vec<u8>,
        options: EnqueueOptions,
    ) -> Result<String> {
        let job = self.shared.configs.job(queue, payload, options)?;
        let results =
            self.send_jobs(false, Prepared { jobs: vec![job], ..Prepared::default() }).await?;
        Ok(results.into_iter().next().map(EnqueueResult::into_id).unwrap_or_default())
    }

    /// Enqueues a job and applies effects in the same commit. When its dedup key is held, nothing is applied and the
    /// second result is empty. Durable on return.
    ///
    /// # Errors
    /// As [`enqueue_with`](Self::enqueue_with), for each job; on any error nothing at all is applied.
    pub async fn enqueue_with_effects(
        &self,
        queue: &str,
        payload: Vec<u8>,
        options: EnqueueOptions,
        effects: SettlementEffects,
    ) -> Result<(EnqueueResult, Vec<EnqueueResult>)> {
        let lead = self.shared.configs.job(queue, payload, options)?;
        let mut what = self.shared.configs.effects(effects)?;
        what.jobs.insert(0, lead);
        let mut results = self.send_jobs(true, what).await?;
        if results.is_empty() {
            return Err(self.shared.closed_error());
        }
        let first = results.remove(0);
        Ok((first, results))
    }

    /// Enqueues up to 10,000 payloads (64 MiB, those in objects of their own not counted) in one commit; ids in input order. Durable on return.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge) past the caps; else as [`enqueue`](Self::enqueue).
    pub async fn enqueue_batch(&self, queue: &str, payloads: Vec<Vec<u8>>) -> Result<Vec<String>> {
        if payloads.is_empty() {
            return Ok(Vec::new());
        }
        limits::check("batch jobs", payloads.len(), limits::MAX_BATCH)?;
        let size =
            payloads.iter().map(|payload| self.shared.configs.size_within(payload.len())).sum();
        limits::check("batch bytes", size, limits::MAX_BATCH_SIZE)?;
        let job = |payload| self.shared.configs.job(queue, payload, EnqueueOptions::default());
        let jobs = payloads.into_iter().map(job).collect::<Result<_>>()?;
        let results = self.send_jobs(false, Prepared { jobs, ..Prepared::default() }).await?;
        Ok(results.into_iter().map(EnqueueResult::into_id).collect())
    }

    /// Applies effects without a job's transition. A held dedup key downgrades its own enqueue only. Durable on
    /// return.
    ///
    /// # Errors
    /// As [`enqueue_with_effects`](Self::enqueue_with_effects).
    pub async fn commit_effects(&self, effects: SettlementEffects) -> Result<Vec<EnqueueResult>> {
        let what = self.shared.configs.effects(effects)?;
        self.send_jobs(false, what).await
    }

    async fn send_jobs(&self, lead: bool, mut what: Prepared) -> Result<Vec<EnqueueResult>> {
        let first = what.jobs.first();
        let timed = first.map(|job| Timed::start(telemetry::ENQUEUE_SECONDS, &job.queue));
        self.shared.upload(&mut what).await?;
        let bytes =
            size_of(&what) + what.jobs.iter().map(|job| job_size(job).min(1) * 256).sum::<usize>();
        let op = |reply| Op::Enqueue { lead, what, reply };
        let results = self.shared.call(Lane::Intake, bytes, op).await?;
        timed.into_iter().for_each(Timed::end);
        Ok(results)
    }
}
