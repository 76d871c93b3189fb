//! Compaction and garbage collection when they are due, never by the clock: an idle store makes no request.

use std::time::Duration;

use slatedb::CompactorBuilder;
use slatedb::admin::Admin;
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions,
};

use super::db::{Location, Store};
use crate::env;
use crate::error::Result;

/// Compaction starts at this many level-0 tables and stops at [`L0_CALM`].
pub(crate) const L0_DUE: usize = 4;
/// See [`L0_DUE`].
pub(crate) const L0_CALM: usize = 1;
/// How often a running compactor looks for work and progress.
const POLL: Duration = Duration::from_millis(250);
/// A compaction that makes no progress is given up after this long and tried anew later.
const GIVE_UP: Duration = Duration::from_secs(600);
/// Objects younger than this are never collected (5 min): one may be written but not yet named.
const MIN_AGE: Duration = Duration::from_secs(300);

/// Compacts until level 0 is calm.
pub(crate) async fn compact(store: &Store) -> Result<()> {
    let options = CompactorOptions {
        poll_interval: POLL,
        commit_compacted_interval: POLL,
        worker: Some(CompactionWorkerOptions {
            compactions_poll_interval: POLL,
            ..CompactionWorkerOptions::default()
        }),
        ..CompactorOptions::default()
    };
    let location = &store.location;
    let compactor = CompactorBuilder::new(location.path.clone(), location.main.clone())
        .with_options(options)
        .with_system_clock(store.clock.clone())
        .with_runtime(env::background())
        .build();
    let calm = async {
        loop {
            env::sleep(POLL).await;
            store.refresh().await?;
            if store.progress().l0_tables() <= L0_CALM {
                return Ok(());
            }
        }
    };
    let done = tokio::select! {
        ran = compactor.run() => ran.map_err(Into::into),
        calm = env::within(GIVE_UP, calm) => calm.unwrap_or(Ok(())),
    };
    compactor.stop().await?;
    done
}

/// Deletes objects that nothing names any more.
pub(crate) async fn collect(location: &Location) -> Result<()> {
    let directory = || {
        Some(GarbageCollectorDirectoryOptions { interval: None, min_age: MIN_AGE, dry_run: false })
    };
    let options = GarbageCollectorOptions {
        manifest_options: directory(),
        wal_options: directory(),
        compacted_options: directory(),
        compactions_options: directory(),
        ..GarbageCollectorOptions::default()
    };
    // On the plain wall clock: object ages are judged by the store's own times, and a clock that was floored ahead of
    // them would call young objects old.
    let mut admin = Admin::builder(location.path.clone(), location.main.clone());
    if let Some(wal) = &location.wal {
        admin = admin.with_wal_object_store(wal.clone());
    }
    Ok(admin.build().run_gc_once(options).await?)
}
