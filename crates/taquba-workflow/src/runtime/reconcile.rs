//! Ends the runs whose step the queue itself gave up (its process or its lease was lost at the last attempt), where no
//! code of this crate took part. One pass when the runtime starts, then by event.

use std::convert::Infallible;

use futures_util::{StreamExt, stream};
use taquba::{JobRecord, JobStatus, Reads};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Inner;
use super::end::StepSite;
use super::runner::TerminalHook;
use crate::error::Result;
use crate::lifecycle::address::Role;
use crate::lifecycle::settle::Ending;
use crate::store::record::RunRow;

/// Dead jobs of one page of the first pass, and most events that are taken at once.
const PAGE: usize = 256;
/// Runs that are looked at together; their commits share flushes.
const CONCURRENCY: usize = 32;

impl<R: Send + Sync, H: TerminalHook> Inner<R, H> {
    /// Ends what has to end, for as long as it is polled. `deaths` was subscribed before this begins, so that no death
    /// falls between the first pass and the events.
    pub(crate) async fn reconcile(&self, mut deaths: UnboundedReceiver<String>) -> Infallible {
        let mut pass_due = true;
        loop {
            if pass_due {
                match self.bury_all().await {
                    Ok(()) => pass_due = false,
                    Err(error) => self.postpone(&error).await,
                }
                continue;
            }
            let mut ids = Vec::new();
            if deaths.recv_many(&mut ids, PAGE).await == 0 {
                // The store is closed; the worker loop says so.
                std::future::pending::<()>().await;
            }
            if let Err(error) = self.bury_by_id(ids).await {
                self.postpone(&error).await;
                pass_due = true;
            }
        }
    }

    async fn postpone(&self, error: &crate::Error) {
        tracing::warn!(queue = %self.shared.name, %error, "reconciliation failed; it is tried again");
        taquba::time::sleep(self.shared.poll_interval).await;
    }

    /// Looks at every dead job of the queue.
    async fn bury_all(&self) -> Result<()> {
        let view = self.shared.queue.view();
        let mut after: Option<String> = None;
        loop {
            let jobs = view.dead_jobs(&self.shared.name, after.as_deref(), PAGE).await?;
            let Some(last) = jobs.last() else {
                return Ok(());
            };
            after = Some(last.id.clone());
            let buried = stream::iter(jobs).map(|job| async move { self.bury(&job).await });
            let results = buried.buffer_unordered(CONCURRENCY).collect::<Vec<_>>().await;
            self.first_passing(results)?;
        }
    }

    async fn bury_by_id(&self, ids: Vec<String>) -> Result<()> {
        let view = self.shared.queue.view();
        let buried = stream::iter(ids).map(|id| async move {
            match view.get_job(&id).await? {
                Some(job) => self.bury(&job).await,
                None => Ok(()),
            }
        });
        let results = buried.buffer_unordered(CONCURRENCY).collect::<Vec<_>>().await;
        self.first_passing(results)
    }

    /// Keeps the first error of the store. One of a run (a damaged record) harms that run only.
    fn first_passing(&self, results: Vec<Result<()>>) -> Result<()> {
        let (lasting, passing): (Vec<_>, Vec<_>) =
            results.into_iter().filter_map(Result::err).partition(crate::Error::is_of_the_run);
        for error in lasting {
            tracing::error!(queue = %self.shared.name, %error, "a run cannot be reconciled");
        }
        passing.into_iter().next().map_or(Ok(()), Err)
    }

    /// Ends the run of a dead job, if the run still stands at this job. Durable on return, whatever it found.
    pub(crate) async fn bury(&self, job: &JobRecord) -> Result<()> {
        let Ok(Role::Step(address)) = Role::of(&job.headers) else {
            return Ok(());
        };
        // Most dead jobs are those of runs that ended with them; a read in memory spares them the command.
        match self.shared.row(&address.run_id).await? {
            Some(row) if row.job_id == job.id => {}
            _ => return Ok(()),
        }
        let run_id = address.run_id.clone();
        let ending = Ending::given_up(job.last_error.clone(), job.cancel_requested);
        let end = self.plain_end(&StepSite::of(job, address), &ending)?;
        let row_key = self.shared.keys(&run_id).row;
        let reads =
            Reads { jobs_in_kv: vec![(row_key.clone(), RunRow::job_id_in)], ..Reads::default() };
        let job_id = job.id.clone();
        let ended = self
            .shared
            .queue
            .decide(reads, move |facts, changes| {
                let current = facts.kv(&row_key).and_then(|row| RunRow::job_id_in(row));
                let is_dead = facts.job(&job_id).is_some_and(|job| job.status == JobStatus::Dead);
                let ends = is_dead && current.as_ref() == Some(&job_id);
                if ends {
                    end.apply(changes);
                }
                ends
            })
            .await?;
        if ended {
            tracing::warn!(%run_id, job_id = %job.id, error = ?job.last_error, "run ended: its step was given up");
        }
        Ok(())
    }
}
