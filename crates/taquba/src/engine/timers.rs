//! Scheduled jobs, retries and signal timeouts fall due here, and the loop learns when to wake for the next one.

use super::moves::Ready;
use super::refill::{self, Page};
use super::request::{Request, answer};
use super::round::Round;
use super::{Engine, ROUND_TIMERS};
use crate::env;
use crate::error::Result;
use crate::lifecycle::wait;
use crate::state::window::Entry;
use crate::store::{keys, record};

/// The nearest scheduled jobs that are kept in memory (8 MiB).
const WINDOW_BYTES: usize = 8 * 1_024 * 1_024;
/// How far the scheduled jobs' low-water mark may trail, in milliseconds.
const LOW_SLACK_MS: u64 = 10_000;

impl Engine {
    /// Makes the scheduled jobs ready whose time has come.
    pub(crate) fn promote_due(&mut self, round: &mut Round) {
        for _ in 0..ROUND_TIMERS {
            let due = match self.timers.window.first() {
                Some(((run_at, _), entry)) if run_at <= round.stamp.now_ms => entry.job.clone(),
                _ => break,
            };
            self.apply(wait::promote(&due), Ready::WhenDurable, round);
        }
        self.refill_timers(round);
    }

    /// Answers who asked for a look at the time, once nothing is overdue: neither in memory nor in what is still to be
    /// read.
    pub(crate) fn answer_ticks(&mut self, round: &mut Round) {
        let timer = self.timers.window.first();
        let timer_due = timer.is_some_and(|((run_at, _), _)| run_at <= round.stamp.now_ms);
        let lease_due = self.claims.next_check().is_some_and(|(at, _)| at <= round.mono_ms);
        let sweeping = self.retention.is_busy(round.stamp.now_ms);
        if timer_due || lease_due || sweeping || self.timers.window.awaits_store() {
            return;
        }
        for reply in self.ticks.drain(..) {
            round.durable.push(answer(reply, Ok(())));
        }
    }

    /// Reads the next page of scheduled jobs when the window runs low.
    pub(crate) fn refill_timers(&mut self, round: &mut Round) {
        let Some(from) = self.timers.window.begin_scan(self.timer_bytes()) else {
            return;
        };
        let max = self.knobs.page_jobs.unwrap_or(refill::PAGE_JOBS);
        let yields = self.knobs.refill_yields;
        let (store, mailbox) = (self.store.clone(), self.shared.mailbox.clone());
        round.scans.push(Box::pin(async move {
            let page = refill::scheduled(&store, from, max).await;
            super::claims::pause_if_failed(&page).await;
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            // If the engine is gone, nobody needs the page.
            drop(mailbox.send(Request::ScheduledPage(page)));
        }));
    }

    /// What the window of scheduled jobs may hold.
    pub(crate) fn timer_bytes(&self) -> usize {
        self.knobs.timer_bytes.unwrap_or(WINDOW_BYTES)
    }

    /// Takes a page of scheduled jobs.
    pub(crate) fn scheduled_page(&mut self, page: Result<Page<(u64, u64)>>, round: &mut Round) {
        match page {
            Ok(page) => {
                self.put_aside(page.bad, round);
                let rows = page.rows.into_iter();
                let rows = rows.map(|(at, job, _)| (at, Entry { job, ready_round: 0 })).collect();
                self.timers.window.merge(rows, page.end, |_| true);
            }
            Err(error) => {
                tracing::warn!(%error, "could not read scheduled jobs; trying again");
                self.timers.window.abort_scan();
            }
        }
    }

    /// Writes the low-water mark of scheduled jobs when it must be lowered (in the very round that inserts below it)
    /// or trails far.
    pub(crate) fn mark_scheduled(&mut self, round: &mut Round) {
        let first = self.timers.window.low().map(|(run_at, _)| run_at);
        let low = first.unwrap_or(u64::MAX).min(round.stamp.now_ms);
        let stored = self.timers.stored_low;
        if low < stored || low > stored.saturating_add(LOW_SLACK_MS) {
            self.timers.stored_low = low;
            round.batch.put(keys::LOW_SCHEDULED.into(), record::encode_low(low));
        }
    }

    /// Milliseconds until the next timer, kept job, lease, beat or claim held back falls due; `None` when there is none.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let now_ms = self.shared.clock.now_ms();
        let timer =
            self.timers.window.first().map(|((run_at, _), _)| run_at.saturating_sub(now_ms));
        let kept = self.retention.next_due().map(|due| due.saturating_sub(now_ms));
        let mono_ms = self.shared.mono_ms();
        let lease = self.claims.next_check().map(|(at, _)| at.saturating_sub(mono_ms));
        let now = env::now();
        // Rounded up: woken a moment early, the loop would only look again.
        let deferred = [self.held_back.front(), self.reported.front()].into_iter().flatten();
        let held = deferred.map(|(due, _)| {
            let left = due.saturating_duration_since(now);
            crate::env::millis(left) + u64::from(!left.is_zero())
        });
        let held = held.min();
        [timer, kept, lease, held, self.next_beat_ms()].into_iter().flatten().min()
    }
}
