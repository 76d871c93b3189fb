//! Waiting for a job's end, in the process that owns the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Queue;
use crate::engine::Shared;
use crate::engine::request::{Command, Op, Request};
use crate::env;
use crate::error::Result;
use crate::lifecycle::job::JobId;
use crate::record::WaitOutcome;

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
    /// no such job. What it reports is durable. A retry does not end the wait.
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
        self.shared.answer(answer).await
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
