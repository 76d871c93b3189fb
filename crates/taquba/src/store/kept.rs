//! Jobs by the time that they are kept since, or expire at, oldest first: completed ones as they lie, others by an index;
//! and inbox entries by the time that they are remembered since.

use std::ops::Bound;

use super::db::Store;
use super::keys;
use super::quarantine::Bad;
use super::record;
use super::scan::Row;
use super::wire::Malformed;
use crate::error::Result;
use crate::lifecycle::job::JobId;
use crate::lifecycle::term::Kind;

/// Jobs of one queue and kind whose time is not later than some time.
#[derive(Debug)]
pub(crate) struct KeptPage {
    pub(crate) ids: Vec<JobId>,
    /// The time of the first job that is not among them; `None` when there is none.
    pub(crate) next: Option<u64>,
    /// Rows that cannot be decoded.
    pub(crate) bad: Vec<Bad>,
}

/// Reads at most `max` jobs of a kind in a queue whose time lies from `from` on and by `until`.
pub(crate) async fn page(
    store: &Store,
    queue: &str,
    kind: Kind,
    from: u64,
    until: u64,
    max: usize,
) -> Result<KeptPage> {
    let space = match kind {
        Kind::Done => keys::DONE,
        Kind::Dead => keys::DEAD_BY_TIME,
        Kind::Expiring => keys::EXPIRING,
        Kind::Entry => keys::ENTRY_BY_TIME,
    };
    let prefix = keys::in_queue(space, queue);
    let start = [&prefix[..], &from.to_be_bytes()].concat();
    let start_len = start.len();
    let at = store.snapshot()?;
    let mut scan = at.scan(Bound::Included(start), keys::after_prefix(&prefix)).await?;
    let mut page = KeptPage { ids: Vec::new(), next: None, bad: Vec::new() };
    while let Some(Row { key, value, .. }) = scan.next().await? {
        let Some(time) = keys::time_after(&prefix, &key) else {
            tracing::error!(key = %String::from_utf8_lossy(&key), "a malformed key is skipped");
            continue;
        };
        if time > until || page.ids.len() >= max {
            page.next = Some(time);
            break;
        }
        let id = match kind {
            Kind::Dead | Kind::Expiring => text(&value),
            Kind::Entry => text(key.get(start_len..).unwrap_or_default()),
            Kind::Done => record::decode_job(value.clone()).map(|job| job.id().as_ref().to_owned()),
        };
        match id {
            Ok(id) => page.ids.push(id.into()),
            Err(reason) => page.bad.push(Bad { key, value, reason }),
        }
    }
    Ok(page)
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "it is no id")
}
