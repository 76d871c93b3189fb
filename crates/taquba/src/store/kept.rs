//! Kept jobs by the time of their end, oldest first: completed ones as they lie, dead ones by an index of their own.

use std::ops::Bound;

use super::db::Store;
use super::find::undecodable;
use super::keys;
use super::record;
use super::scan::Row;
use crate::error::Result;
use crate::lifecycle::job::JobId;

/// Jobs of one queue that ended by some time.
#[derive(Debug)]
pub(crate) struct KeptPage {
    pub(crate) ids: Vec<JobId>,
    /// When the first job ended that is not among them; `None` when there is none.
    pub(crate) next: Option<u64>,
}

/// Reads at most `max` kept jobs of a queue that ended from `from` on and by `until`.
pub(crate) async fn page(
    store: &Store,
    queue: &str,
    dead: bool,
    from: u64,
    until: u64,
    max: usize,
) -> Result<KeptPage> {
    let prefix = keys::in_queue(if dead { keys::DEAD_BY_TIME } else { keys::DONE }, queue);
    let start = [&prefix[..], &from.to_be_bytes()].concat();
    let at = store.snapshot()?;
    let mut scan = at.scan(Bound::Included(start), keys::after_prefix(&prefix)).await?;
    let mut page = KeptPage { ids: Vec::new(), next: None };
    while let Some(Row { key, value, .. }) = scan.next().await? {
        let Some(ended_at) = keys::time_after(&prefix, &key) else {
            tracing::error!(key = %String::from_utf8_lossy(&key), "a malformed key is skipped");
            continue;
        };
        if ended_at > until || page.ids.len() >= max {
            page.next = Some(ended_at);
            break;
        }
        let id = match dead {
            true => String::from_utf8(value.to_vec()).map_err(|_| "it is no id"),
            false => record::decode_job(value).map(|job| job.id().as_ref().to_owned()),
        };
        match id {
            Ok(id) => page.ids.push(id.into()),
            Err(e) => tracing::error!(error = %undecodable(&key, e), "a kept job stays"),
        }
    }
    Ok(page)
}
