//! One action on many jobs, in one commit.

use std::sync::Arc;

use super::Engine;
use super::found::Found;
use super::moves::Ready;
use super::round::Round;
use crate::filter::{BulkAction, JobFilter};
use crate::lifecycle::job::{Job, JobId};
use crate::lifecycle::{Move, wait};
use crate::store::shape;

impl Engine {
    /// Does `action` to those of the jobs that the filter still means; returns how many changed.
    pub(crate) fn each(
        &mut self,
        ids: &[JobId],
        action: BulkAction,
        filter: &JobFilter,
        found: &Found,
        round: &mut Round,
    ) -> u64 {
        let mut changed = 0;
        for id in ids {
            let job = self.found_job(id, found);
            // What cannot be shaped is damaged, and no filter means it.
            let meant = job.filter(|job| {
                shape::job_record(job)
                    .is_ok_and(|record| filter.matches(&record, round.stamp.now_ms))
            });
            let Some(change) = meant.and_then(|job| self.one(&job, action, round)) else {
                continue;
            };
            changed += 1;
            let goes_on = change.after.as_ref().is_some_and(|after| after.hold().is_some());
            if goes_on {
                self.request_cancel(change, round);
            } else {
                self.apply(change, Ready::WhenDurable, round);
            }
        }
        changed
    }

    fn one(&mut self, job: &Arc<Job>, action: BulkAction, round: &mut Round) -> Option<Move> {
        match action {
            BulkAction::Requeue => wait::requeue(job, round.stamp),
            BulkAction::Cancel => wait::cancel(&self.stored_claim(Arc::clone(job), round)),
            BulkAction::Delete if job.is_waiting() => wait::cancel(job),
            BulkAction::Delete => wait::forget(job),
        }
    }
}
