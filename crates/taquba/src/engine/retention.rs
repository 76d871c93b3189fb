//! Jobs whose time is over: kept ones are forgotten, waiting ones that expired are dead (inbox entries, see `inbox`). A look at the oldest rows outside
//! the loop, a page at a time, then one command that holds the jobs' keys and reads them again: what was brought back or
//! claimed meanwhile is left alone.

use std::sync::Arc;

use super::Engine;
use super::found::Found;
use super::moves::Ready;
use super::request::{Command, Op, Request};
use super::round::Round;
use crate::error::{Error, Result};
use crate::lifecycle::job::{Job, JobId};
use crate::lifecycle::term::{Kind, runs};
use crate::lifecycle::wait;
use crate::state::retention::Shelf;
use crate::store::kept::{self, KeptPage};

/// Jobs that one command ends, so that ten thousand are a few batches.
const PAGE_JOBS: usize = 1_024;
/// Looks that are begun in one round.
const ROUND_LOOKS: usize = 8;

/// A look at a shelf that found due jobs.
pub(crate) struct Sweep {
    pub(crate) shelf: Shelf,
    pub(crate) ids: Vec<JobId>,
    /// Jobs of a later time are not due.
    pub(crate) until: u64,
    /// The time of the first job that the look did not take in; `None` when it took all.
    pub(crate) next: Option<u64>,
}

impl Engine {
    /// Begins to look for jobs whose time is over.
    pub(crate) fn sweep_kept(&mut self, round: &mut Round) {
        for _ in 0..ROUND_LOOKS {
            let Some((shelf, from, until)) = self.retention.begin(round.stamp.now_ms) else {
                return;
            };
            let max = self.knobs.page_jobs.unwrap_or(PAGE_JOBS);
            let (store, mailbox) = (self.store.clone(), self.shared.mailbox.clone());
            round.scans.push(Box::pin(async move {
                let page = kept::page(&store, &shelf.0, shelf.1, from, until, max).await;
                super::claims::pause_if_failed(&page).await;
                // If the engine is gone, nobody needs the page.
                drop(mailbox.send(Request::KeptPage(shelf, until, page)));
            }));
        }
    }

    /// Takes a page of due jobs.
    pub(crate) fn kept_page(
        &mut self,
        shelf: Shelf,
        until: u64,
        page: Result<KeptPage>,
        round: &mut Round,
    ) {
        match page {
            Ok(page) if page.ids.is_empty() => {
                self.put_aside(page.bad, round);
                self.retention.finish(shelf, page.next);
            }
            Ok(page) => {
                self.put_aside(page.bad, round);
                let sweep = Sweep { shelf, ids: page.ids, until, next: page.next };
                self.accept(Command { op: Op::Sweep(sweep), room: None }, round);
            }
            Err(error) => self.sweep_failed(shelf, &error),
        }
    }

    /// Ends what is due of what was found.
    pub(crate) fn end_due(&mut self, sweep: Sweep, found: &Found, round: &mut Round) {
        if sweep.shelf.1 == Kind::Entry {
            return self.forget_entries(sweep, found, round);
        }
        for id in &sweep.ids {
            let job = self.found_job(id, found);
            let due = job.filter(|job| {
                runs(job).is_some_and(|(kind, at)| kind == sweep.shelf.1 && at <= sweep.until)
            });
            if let Some(job) = due {
                match sweep.shelf.1 {
                    Kind::Done | Kind::Dead => {
                        if let Some(change) = wait::forget(&job) {
                            self.apply(change, Ready::WhenDurable, round);
                        }
                    }
                    Kind::Expiring => self.expire_waiting(&job, round),
                    Kind::Entry => {}
                }
            }
        }
        self.retention.finish(sweep.shelf, sweep.next);
    }

    /// A waiting job expired.
    pub(crate) fn expire_waiting(&mut self, job: &Arc<Job>, round: &mut Round) {
        if let Some(change) = wait::expire(job, round.stamp) {
            self.apply(change, Ready::WhenDurable, round);
            self.tell_death(job, round);
        }
    }

    /// The jobs could not be looked at; they are at the next occasion.
    pub(crate) fn sweep_failed(&mut self, shelf: Shelf, error: &Error) {
        tracing::warn!(%error, queue = %shelf.0, "could not end jobs whose time is over; trying again");
        self.retention.abort(shelf);
    }
}
