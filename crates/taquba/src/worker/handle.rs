//! A worker loop on a task of its own, with a way to end it.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::Result;

/// A spawned worker loop. Dropping it does not stop the loop.
#[derive(Debug)]
pub struct WorkerHandle<T = Result<()>> {
    task: JoinHandle<T>,
    stop: CancellationToken,
}

impl<T: Send + 'static> WorkerHandle<T> {
    /// Spawns a loop. It gets a token that fires when `shutdown` completes or [`shutdown`](Self::shutdown) is called.
    pub fn spawn<S, L, F>(shutdown: S, start: L) -> Self
    where
        S: Future<Output = ()> + Send + 'static,
        L: FnOnce(CancellationToken) -> F,
        F: Future<Output = T> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let work = start(stop.clone());
        let fire = stop.clone();
        let task = tokio::spawn(async move {
            let mut work = std::pin::pin!(work);
            tokio::select! {
                done = &mut work => return done,
                () = shutdown => fire.cancel(),
            }
            work.await
        });
        Self { task, stop }
    }

    /// Asks the loop to stop and waits until it has drained.
    ///
    /// # Panics
    /// If the loop panicked.
    pub async fn shutdown(self) -> T {
        self.stop.cancel();
        self.wait().await
    }

    /// Waits until the loop ends by itself.
    ///
    /// # Panics
    /// If the loop panicked.
    pub async fn wait(self) -> T {
        match self.task.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Only a runtime that shuts down cancels the task, and then nobody is left to await it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}
