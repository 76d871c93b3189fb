//! Scans that refill the windows, outside the loop: pages of ready jobs of one band and of scheduled jobs, each row
//! with the sequence that wrote it. Default visibility: a scan as of the durable watermark would bring back jobs that
//! were claimed since.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::error::Result;
use crate::lifecycle::job::{Job, Payload};
use crate::state::window::Position;
use crate::store::db::Store;
use crate::store::quarantine::Bad;
use crate::store::scan::Row;
use crate::store::snapshot::Snapshot;
use crate::store::{find, keys, record, shape};

/// A page ends after this many jobs or payload bytes, whichever comes first.
pub(crate) const PAGE_JOBS: usize = 4_096;
const PAGE_BYTES: u64 = 2 * 1_024 * 1_024;
/// Payloads of scheduled jobs that are read at once.
const PAYLOAD_READS: usize = 16;

/// Rows of a window, in order.
pub(crate) struct Page<K> {
    pub(crate) rows: Vec<(K, Arc<Job>, u64)>,
    /// The position after the last row looked at; `None` when the scan reached the end.
    pub(crate) end: Option<K>,
    /// Rows that cannot be decoded.
    pub(crate) bad: Vec<Bad>,
}

/// Reads a page of at most `max` ready jobs of one band, from order number `from` on.
pub(crate) async fn ready(
    store: &Store,
    queue: &str,
    priority: u32,
    from: u64,
    max: usize,
) -> Result<Page<u64>> {
    let at = store.snapshot()?;
    let band = keys::band(keys::READY, queue, priority);
    let page = page(&at, &band, &from.to_be_bytes(), max, keys::order).await?;
    attach_payloads(&at, page).await
}

/// Reads a page of at most `max` scheduled jobs, from a time and order number on.
pub(crate) async fn scheduled(
    store: &Store,
    from: (u64, u64),
    max: usize,
) -> Result<Page<(u64, u64)>> {
    let at = store.snapshot()?;
    let tail = [from.0.to_be_bytes(), from.1.to_be_bytes()].concat();
    let mut page = page(&at, &[keys::SCHEDULED], &tail, max, |key| {
        let at: [u8; 8] = key.get(1..9)?.try_into().ok()?;
        Some((u64::from_be_bytes(at), keys::order(key)?))
    })
    .await?;
    // Scheduled jobs are in order of time, their payloads in claim order: each is a read of its own.
    let rows = std::mem::take(&mut page.rows);
    let at = &at;
    let full = stream::iter(rows).map(|(position, job, seq)| async move {
        let job = match shape::lacks_payload(&job) {
            true => Arc::new(find::with_payload(at, job.as_ref().clone()).await?),
            false => job,
        };
        Ok::<_, crate::error::Error>((position, job, seq))
    });
    page.rows = full.buffered(PAYLOAD_READS).try_collect().await?;
    Ok(page)
}

/// Decodes rows under a prefix. A record that cannot be decoded is put aside: it harms nobody else.
async fn page<K: Position>(
    at: &Snapshot,
    prefix: &[u8],
    from: &[u8],
    max: usize,
    position: impl Fn(&[u8]) -> Option<K>,
) -> Result<Page<K>> {
    let start = [prefix, from].concat();
    let mut scan = at.scan(Bound::Included(start), keys::after_prefix(prefix)).await?;
    let mut page = Page { rows: Vec::new(), end: None, bad: Vec::new() };
    let mut bytes = 0;
    while let Some(Row { key, value, seq }) = scan.next().await? {
        let Some(at) = position(&key) else {
            tracing::error!(key = %String::from_utf8_lossy(&key), "a malformed key is skipped");
            continue;
        };
        match record::decode_job(value.clone()) {
            Ok(job) => {
                bytes += payload_size(&job);
                page.rows.push((at, Arc::new(job), seq));
            }
            Err(reason) => page.bad.push(Bad { key, value, reason }),
        }
        if page.rows.len() + page.bad.len() >= max || bytes >= PAGE_BYTES {
            page.end = Some(at.next());
            break;
        }
    }
    Ok(page)
}

fn payload_size(job: &Job) -> u64 {
    match &job.body.payload {
        Payload::Inline(bytes) => bytes.len() as u64,
        Payload::Apart { size, .. } => *size,
        // It stays where it is until a worker has the job.
        Payload::Object(_) => 0,
    }
}

/// Reads the payload rows of a page in one scan of their own.
async fn attach_payloads(at: &Snapshot, mut page: Page<u64>) -> Result<Page<u64>> {
    let lacking: Vec<&Arc<Job>> =
        page.rows.iter().map(|(_, job, _)| job).filter(|job| shape::lacks_payload(job)).collect();
    let (Some(first), Some(last)) = (lacking.first(), lacking.last()) else {
        return Ok(page);
    };
    let from = keys::payload(first.queue(), first.place()).to_vec();
    let to = [&keys::payload(last.queue(), last.place())[..], &[0]].concat();
    let mut payloads = HashMap::new();
    let mut scan = at.scan(Bound::Included(from), Some(to)).await?;
    while let Some(row) = scan.next().await? {
        payloads.extend(keys::order(&row.key).map(|order| (order, row.value)));
    }
    for (order, job, _) in &mut page.rows {
        if let Payload::Apart { size, bytes: None } = job.body.payload
            && let Some(bytes) = payloads.remove(order)
        {
            *job = Arc::new(find::attach(job.as_ref().clone(), size, Some(bytes)));
        }
    }
    Ok(page)
}
