//! Housekeeping of the store, driven by flushes and never by the clock: memtables go to the object store before replay
//! gets long, level 0 is compacted, garbage is collected. An idle store makes no request for it.

use std::time::Duration;

use tokio::sync::watch;

use crate::env::{self, Instant};
use crate::error::CloseReason;
use crate::store::compact::{self, L0_DUE};
use crate::store::db::Store;

/// Log objects after which the memtable is written out, so that replay after a crash stays short.
const FLUSHES_PER_MEMTABLE: u64 = 1_000;
/// Compactions after which garbage is collected: each takes in at least four memtables.
const COMPACTIONS_PER_COLLECTION: u32 = 2;
/// Least time between two collections.
const COLLECTION_PAUSE: Duration = Duration::from_secs(300);
/// Least time between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// What this process does of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Duties {
    pub(crate) compacts: bool,
    pub(crate) collects: bool,
}

/// Runs until the store ends. Begins with a look: what the last owner left may be due, and with level 0 full an opening
/// could not even write its first round.
pub(crate) async fn run(
    store: Store,
    duties: Duties,
    mut flushes: watch::Receiver<u64>,
    mut closed: watch::Receiver<Option<CloseReason>>,
) {
    let work = async {
        let mut memtable_at = 0;
        let mut collect_at = FLUSHES_PER_MEMTABLE * 8;
        let mut compactions = 0;
        let mut collected_at: Option<Instant> = None;
        let mut progress = store.progress();
        loop {
            let now = *flushes.borrow_and_update();
            if now >= memtable_at + FLUSHES_PER_MEMTABLE {
                memtable_at = now;
                warn_on_error("memtable flush", store.flush_memtable().await);
            }
            if duties.compacts && store.progress().l0_tables() >= L0_DUE {
                warn_on_error("compaction", compact::compact(&store).await);
                compactions += 1;
            }
            // Where another process compacts, what it leaves is collected at the same pace.
            if !duties.compacts && now >= collect_at {
                collect_at = now + FLUSHES_PER_MEMTABLE * 8;
                compactions = COMPACTIONS_PER_COLLECTION;
            }
            let rested = collected_at.is_none_or(|at| env::now() - at >= COLLECTION_PAUSE);
            if duties.collects && compactions >= COMPACTIONS_PER_COLLECTION && rested {
                compactions = 0;
                collected_at = Some(env::now());
                warn_on_error("garbage collection", compact::collect(&store.location).await);
            }
            env::sleep(PAUSE).await;
            // Tables appear a while after the flush that filled them, so both are news.
            let gone = tokio::select! {
                changed = flushes.changed() => changed.is_err(),
                changed = progress.changed() => changed.is_err(),
            };
            if gone {
                return;
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = closed.wait_for(Option::is_some) => {}
    }
}

/// Upkeep that fails is tried again at the next occasion; nothing depends on any one of them.
fn warn_on_error(what: &'static str, result: crate::error::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what} failed");
    }
}
