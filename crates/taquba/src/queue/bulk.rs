//! What operators do to many jobs at once: looked for page by page, changed in batches that hold their jobs' keys and
//! test the filter again, so that nothing is done to a job that has moved on.

use super::Queue;
use crate::engine::Lane;
use crate::engine::request::Op;
use crate::error::Result;
use crate::filter::{BulkAction, BulkReport, JobFilter};

/// Jobs that one step looks at, and at most changes in one commit.
const STEP: usize = 512;

impl Queue {
    /// Does something to every job that a filter means, step by step as [`bulk_step`](Self::bulk_step); returns the sums.
    /// With `dry_run` it only counts. Other calls go on between the steps.
    ///
    /// # Errors
    /// As [`bulk_step`](Self::bulk_step). What was done stays done: call it again for the rest.
    ///
    /// # Cancel safety
    /// Dropped between two steps, it ends there; a step that was accepted happens.
    pub async fn bulk(
        &self,
        filter: &JobFilter,
        action: BulkAction,
        dry_run: bool,
    ) -> Result<BulkReport> {
        let mut sum = BulkReport::default();
        loop {
            let cursor = sum.next_cursor.take();
            let step = self.bulk_step(filter, action, cursor.as_deref(), dry_run).await?;
            sum.matched += step.matched;
            sum.changed += step.changed;
            sum.next_cursor = step.next_cursor;
            if sum.next_cursor.is_none() {
                return Ok(sum);
            }
        }
    }

    /// Looks at up to 512 jobs from `cursor` on (`None`: from the start) and does something to those that the filter
    /// means, in one commit. For long runs that must survive a restart: keep the report's `next_cursor`. Durable on
    /// return.
    ///
    /// # Errors
    /// [`Error::InvalidQueueName`](crate::Error::InvalidQueueName); [`Error::NotConfirmed`](crate::Error::NotConfirmed);
    /// [`Error::Closed`](crate::Error::Closed); [`Error::Storage`](crate::Error::Storage).
    pub async fn bulk_step(
        &self,
        filter: &JobFilter,
        action: BulkAction,
        cursor: Option<&[u8]>,
        dry_run: bool,
    ) -> Result<BulkReport> {
        let page = self.view().list_jobs(&filter.queue, filter.status, cursor, STEP).await?;
        let now_ms = self.clock().now_ms();
        let meant = page.jobs.into_iter().filter(|job| filter.matches(job, now_ms));
        let ids: Vec<_> = meant.map(|job| job.id.into()).collect();
        let matched = ids.len() as u64;
        let changed = if dry_run || ids.is_empty() {
            0
        } else {
            let filter = filter.clone();
            let op = |reply| Op::Each { ids, action, filter, reply };
            self.shared.call(Lane::Ask, 0, op).await?
        };
        Ok(BulkReport { matched, changed, next_cursor: page.next_cursor })
    }
}
