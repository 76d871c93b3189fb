//! Payload objects that nothing names: left by a process that died between an upload and its commit, or by a deletion
//! that failed. This task finds and deletes them, once after open and then seldom.
//!
//! It can never delete an object that a record names, or that an upload in flight will name:
//!
//! 1. *Who can name it.* A record comes to name an object only by the one command that brought the upload, in the
//!    process of the opening whose number is in the object's name. Later moves of the job keep the row under `O`
//!    until its record is gone for good; nothing ever names the object again then.
//! 2. *Earlier openings* are fenced: this one's first batch was durable before the sweep began, so whatever they
//!    committed is in this store's state, and nothing more ever will be. Objects they still upload come too late to be
//!    named. Objects of *later* openings are left alone: they own the store now.
//! 3. *This opening's* uploads are known from before their PUT until the record that names them is in the store's
//!    memory ([`Offload::is_open`]). The order is: list, then look which are open, then read the rows under `O`. An
//!    object that was listed and is not open then has met its fate before the read began, and the read sees it.
//! 4. *The read may see more than a crash leaves*: the removal of a record that is not durable, and never will be if
//!    another process has taken over. So before anything is deleted, everything written up to the read is durable
//!    ([`Request::Barrier`]); a fenced process never gets that far.
//!
//! None of this rests on the order of a listing, on its being complete, or on any clock; an object that a listing
//! misses is found by the next. Objects of other stores under the same payload path are not even listed.
//!
//! Requests: one LIST per 1,000 objects that the store has, at most one read per object (most are answered by what is
//! cached), one deletion per 1,000 orphans (on stores that delete in bulk).

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::{mpsc, oneshot, watch};

use super::offload::Offload;
use super::request::{Reply, Request};
use crate::env;
use crate::error::{CloseReason, Error, Result};
use crate::lifecycle::job::ObjectName;
use crate::record::OrphanSweep;
use crate::store::db::Store;
use crate::store::keys;

/// Objects that are looked at together.
const PAGE: usize = 1_000;
/// Reads at once.
const READS: usize = 16;

/// When sweeps run by themselves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timetable {
    /// After open. Uploads that the last owner had under way when it was fenced are there by then.
    pub(crate) first: Duration,
    /// Between two sweeps; `None`: only when asked.
    pub(crate) every: Option<Duration>,
}

/// What a sweep works with.
pub(crate) struct Sweeper {
    pub(crate) store: Store,
    pub(crate) offload: Arc<Offload>,
    pub(crate) mailbox: mpsc::UnboundedSender<Request>,
}

/// Sweeps as the timetable says and when asked, one sweep at a time, until the store ends.
pub(crate) async fn run(
    sweeper: Sweeper,
    timetable: Timetable,
    mut asked: mpsc::UnboundedReceiver<Reply<OrphanSweep>>,
    mut closed: watch::Receiver<Option<CloseReason>>,
) {
    let work = async {
        let mut pause = timetable.every.map(|every| every.min(timetable.first));
        loop {
            let wish = tokio::select! {
                wish = asked.recv() => wish,
                () = rest(pause) => {
                    pause = timetable.every;
                    None
                }
            };
            let swept = sweeper.sweep().await;
            match (&swept, &wish) {
                (Err(error), _) => tracing::warn!(%error, "the sweep of orphaned payloads failed"),
                (Ok(swept), None) if swept.deleted > 0 => {
                    tracing::info!(?swept, "orphaned payloads were deleted");
                }
                _ => {}
            }
            if let Some(reply) = wish {
                // Who asked may have gone.
                drop(reply.send(swept));
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = closed.wait_for(Option::is_some) => {}
    }
}

async fn rest(pause: Option<Duration>) {
    match pause {
        Some(pause) => env::sleep(pause).await,
        None => std::future::pending().await,
    }
}

impl Sweeper {
    /// Looks at all objects of this store once.
    async fn sweep(&self) -> Result<OrphanSweep> {
        let mut swept = OrphanSweep::default();
        let mut listed = self.offload.objects.list(self.offload.store);
        let mut page = Vec::with_capacity(PAGE);
        while let Some(name) = listed.try_next().await.map_err(Error::PayloadStore)? {
            match name {
                Some(name) => page.push(name),
                None => swept.foreign += 1,
            }
            if page.len() == PAGE {
                self.page(std::mem::take(&mut page), &mut swept).await?;
            }
        }
        self.page(page, &mut swept).await?;
        Ok(swept)
    }

    /// Deletes the orphans among objects that were listed. The order of the steps is what makes it safe.
    async fn page(&self, listed: Vec<ObjectName>, swept: &mut OrphanSweep) -> Result<()> {
        let listed_count = listed.len();
        let own = self.offload.epoch;
        let settled: Vec<ObjectName> = listed
            .into_iter()
            .filter(|name| name.epoch < own || (name.epoch == own && !self.offload.is_open(name)))
            .collect();
        let settled_count = settled.len();
        let at = &self.store.snapshot()?;
        let looked_up = stream::iter(settled).map(|name| async move {
            let named = at.get(&keys::object(&name)).await?.is_some();
            Ok::<_, Error>((!named).then_some(name))
        });
        let orphans: Vec<ObjectName> = looked_up
            .buffered(READS)
            .try_filter_map(|name| async move { Ok(name) })
            .try_collect()
            .await?;
        swept.open += listed_count - settled_count;
        swept.named += settled_count - orphans.len();
        if orphans.is_empty() {
            return Ok(());
        }
        self.all_durable().await?;
        let failed = self.offload.objects.delete(&orphans).await;
        swept.failed += failed;
        swept.deleted += orphans.len() - failed;
        Ok(())
    }

    /// Returns when everything written until now is durable; an error when it never will be.
    async fn all_durable(&self) -> Result<()> {
        let gone = || Error::Closed(CloseReason::Closed);
        let (reply, answer) = oneshot::channel();
        self.mailbox.send(Request::Barrier(reply)).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}
