//! The one body of both adapters: the two crates share the names of the calls that are measured, not
//! their types, so it is a macro over the crate.

/// Implements [`System`](crate::system::System) for a new type `$adapter` by the crate `$krate`.
macro_rules! adapter {
    ($adapter:ident, $krate:ident) => {
        /// The queue of one crate, open on a memory store of its own.
        pub(crate) struct $adapter(std::sync::Arc<$krate::Queue>);

        /// A handler that does nothing but count the job.
        struct Count(std::sync::Arc<$crate::tally::Tally>);

        impl $krate::Worker for Count {
            async fn process(
                &self,
                job: &$krate::JobRecord,
                _lease: &$krate::LeaseHandle,
            ) -> Result<(), $krate::WorkerError> {
                self.0.handled(&job.payload)?;
                Ok(())
            }
        }

        impl $crate::system::System for $adapter {
            async fn open(flush: $crate::system::Flush) -> Result<Self, $crate::system::Fault> {
                let mut options = $krate::OpenOptions::default();
                if let $crate::system::Flush::Millis(ms) = flush {
                    options.flush_interval = Some(std::time::Duration::from_millis(ms));
                }
                let store = std::sync::Arc::new($krate::object_store::memory::InMemory::new());
                let queue = $krate::Queue::open_with_options(store, "bench", options).await?;
                Ok(Self(std::sync::Arc::new(queue)))
            }

            async fn enqueue(&self, payload: Vec<u8>) -> Result<(), $crate::system::Fault> {
                self.0.enqueue($crate::system::QUEUE, payload).await?;
                Ok(())
            }

            async fn enqueue_batch(
                &self,
                payloads: Vec<Vec<u8>>,
            ) -> Result<usize, $crate::system::Fault> {
                let ids = self.0.enqueue_batch($crate::system::QUEUE, payloads).await?;
                Ok(ids.len())
            }

            async fn run_workers(
                &self,
                workers: usize,
                tally: std::sync::Arc<$crate::tally::Tally>,
                stop: tokio_util::sync::CancellationToken,
            ) -> Result<(), $crate::system::Fault> {
                $krate::run_worker_concurrent(
                    &self.0,
                    $crate::system::QUEUE,
                    std::sync::Arc::new(Count(tally)),
                    workers,
                    $crate::system::WORKER_POLL,
                    stop.cancelled_owned(),
                )
                .await?;
                Ok(())
            }

            async fn left(&self) -> Result<$crate::system::Left, $crate::system::Fault> {
                let stats = self.0.view().stats($crate::system::QUEUE).await?;
                let unfinished = stats.pending + stats.claimed + stats.scheduled + stats.dead;
                Ok($crate::system::Left { unfinished: u64::try_from(unfinished)? })
            }
        }
    };
}

pub(crate) use adapter;
