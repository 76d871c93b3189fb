//! Waiting for a job's end, in the process that owns the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Queue;
use crate::engine::Shared;
use crate::engine::request::{Command, Op, Request, Watched};
use crate::env;
use crate::error::Result;
use crate::lifecycle::job::{JobId, Object};
use crate::record::{JobRecord, WaitOutcome};

/// Tells the engine, when dropped, that nobody waits any more.
struct ForgetOnDrop {
    shared: Arc<Shared>,
    id: JobId,
    watcher: u64,
}

impl Drop for ForgetOnDrop {
    fn drop(&mut self) {
        // If the engine is gone, it has forgotten.
        drop(self.shared.mailbox.send(Request::ForgetWatch(self.id.clone(), self.watcher)));
    }
}

impl Queue {
    /// Waits until a job has completed, died or been cancelled; answers at once when it already has, or when there is
    /// no such job. What it reports is durable. A retry does not end the wait. The record has its payload, also when that
    /// is in an object of its own; only if the object cannot be read is it empty, `payload_ref` saying where it should be.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) when the store closes or is lost first.
    ///
    /// # Cancel safety
    /// Dropping it forgets the wait and nothing else.
    pub async fn wait_for_completion(&self, id: &str) -> Result<WaitOutcome> {
        let (reply, answer) = oneshot::channel();
        let (id, watcher): (JobId, _) = (id.into(), self.shared.watcher());
        let op = Op::Watch { id: Arc::clone(&id), watcher, reply };
        self.shared.post(Request::Command(Box::new(Command { op, room: None })))?;
        let _forget = ForgetOnDrop { shared: Arc::clone(&self.shared), id, watcher };
        let Watched { outcome, object, doomed } = self.shared.answer(answer).await?;
        let outcome = match (outcome, object) {
            (WaitOutcome::Done(job), Some(object)) => {
                WaitOutcome::Done(self.filled(job, &object).await)
            }
            (WaitOutcome::Dead(job), Some(object)) => {
                WaitOutcome::Dead(self.filled(job, &object).await)
            }
            (outcome, _) => outcome,
        };
        // Until here it kept the payload of a job that is gone.
        drop(doomed);
        Ok(outcome)
    }

    /// The record with its payload, or as it is stored: how the job ended is news even without it.
    async fn filled(&self, mut job: Box<JobRecord>, object: &Object) -> Box<JobRecord> {
        match self.shared.offload.objects.get(object).await {
            Ok(payload) => job.payload = payload.into(),
            Err(error) => {
                tracing::warn!(job = %job.id, ?error, "an ended job is reported without its payload");
            }
        }
        job
    }

    /// As [`wait_for_completion`](Self::wait_for_completion), for at most `timeout` of real time; `None` past it.
    ///
    /// # Errors
    /// As [`wait_for_completion`](Self::wait_for_completion).
    pub async fn wait_for_completion_timeout(
        &self,
        id: &str,
        timeout: Duration,
    ) -> Result<Option<WaitOutcome>> {
        env::within(timeout, self.wait_for_completion(id)).await.transpose()
    }
}
