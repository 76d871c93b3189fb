//! Forgetting kept jobs whose time is over: a look at the oldest rows outside the loop, a page at a time, then one
//! command that holds the jobs' keys and reads them again. A dead job that was brought back meanwhile is left alone.

use super::Engine;
use super::found::Found;
use super::request::{Command, Op, Request};
use super::round::Round;
use crate::error::{Error, Result};
use crate::lifecycle::job::JobId;
use crate::lifecycle::wait;
use crate::state::retention::{Kind, Shelf, ended};
use crate::store::kept::{self, KeptPage};

/// Jobs that one command forgets, so that ten thousand are a few batches.
const PAGE_JOBS: usize = 1_024;
/// Looks that are begun in one round.
const ROUND_LOOKS: usize = 8;

/// A look at a shelf that found due jobs.
pub(crate) struct Sweep {
    pub(crate) shelf: Shelf,
    pub(crate) ids: Vec<JobId>,
    /// Jobs that ended later than this are not due.
    pub(crate) until: u64,
    /// When the first job ended that the look did not take in; `None` when it took all.
    pub(crate) next: Option<u64>,
}

impl Engine {
    /// Begins to look for kept jobs whose time is over.
    pub(crate) fn sweep_kept(&mut self, round: &mut Round) {
        for _ in 0..ROUND_LOOKS {
            let Some((shelf, from, until)) = self.retention.begin(round.stamp.now_ms) else {
                return;
            };
            let max = self.knobs.page_jobs.unwrap_or(PAGE_JOBS);
            let (store, mailbox) = (self.store.clone(), self.shared.mailbox.clone());
            round.scans.push(Box::pin(async move {
                let page = kept::page(&store, &shelf.0, shelf.1 == Kind::Dead, from, until, max);
                let page = page.await;
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
            Ok(page) if page.ids.is_empty() => self.retention.finish(shelf, page.next),
            Ok(page) => {
                let sweep = Sweep { shelf, ids: page.ids, until, next: page.next };
                self.accept(Command { op: Op::Sweep(sweep), room: None }, round);
            }
            Err(error) => self.sweep_failed(shelf, &error),
        }
    }

    /// Forgets what is due of what was found.
    pub(crate) fn forget(&mut self, sweep: Sweep, found: &Found, round: &mut Round) {
        for id in &sweep.ids {
            let job = self.found_job(id, found);
            let due = job.filter(|job| {
                ended(job).is_some_and(|(kind, at)| kind == sweep.shelf.1 && at <= sweep.until)
            });
            if let Some(change) = due.and_then(|job| wait::forget(&job)) {
                self.apply(change, super::moves::Ready::WhenDurable, round);
            }
        }
        self.retention.finish(sweep.shelf, sweep.next);
    }

    /// The jobs could not be looked at; they are at the next occasion.
    pub(crate) fn sweep_failed(&mut self, shelf: Shelf, error: &Error) {
        tracing::warn!(%error, queue = %shelf.0, "could not forget kept jobs; trying again");
        self.retention.abort(shelf);
    }
}
