//! Rows that cannot be decoded, put aside with their bytes and the reason: what is known of one, its own row, and listing
//! them.

use std::ops::Bound;

use bytes::Bytes;

use super::keys;
use super::record::{self, VERSION};
use super::scan::Row;
use super::snapshot::Snapshot;
use super::wire::{Malformed, Reader, put_bytes, put_u64};
use crate::error::Result;

/// A row of a job that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bad {
    /// Where it stands.
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) reason: Malformed,
}

/// What its first bytes say all the same: the job's id and its queue.
pub(crate) fn salvage(value: &Bytes) -> Option<(String, String)> {
    let mut r = Reader::new(value.clone());
    let (_version, _state) = (r.u8().ok()?, r.u8().ok()?);
    // Flags and the numbers before the id.
    for _ in 0..8 {
        r.u64().ok()?;
    }
    Some((r.text().ok()?, r.text().ok()?))
}

/// One that was put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Aside {
    /// Where it stood.
    pub(crate) key: Bytes,
    pub(crate) at: u64,
    pub(crate) reason: String,
    pub(crate) value: Bytes,
}

/// Encodes the row of one that is put aside.
pub(crate) fn encode(bad: &Bad, now_ms: u64) -> Bytes {
    let mut out = Vec::with_capacity(16 + bad.reason.len() + bad.value.len());
    out.push(VERSION);
    put_u64(&mut out, now_ms);
    put_bytes(&mut out, bad.reason.as_bytes());
    out.extend_from_slice(&bad.value);
    out.into()
}

/// Decodes one. What cannot be decoded even here shows its bytes as they are.
pub(crate) fn decode(key: &Bytes, value: Bytes) -> Aside {
    let mut r = Reader::new(value.clone());
    let head = record::version(&mut r).and_then(|()| Ok((r.u64()?, r.text()?)));
    let key = key.slice(1.min(key.len())..);
    match head {
        Ok((at, reason)) => Aside { key, at, reason, value: r.rest() },
        Err(reason) => Aside { key, at: 0, reason: reason.to_owned(), value },
    }
}

/// The one that stood at a key.
pub(crate) async fn get(at: &Snapshot, key: &[u8]) -> Result<Option<Aside>> {
    let key = keys::aside(key);
    Ok(at.get(&key).await?.map(|value| decode(&key, value)))
}

/// At most `limit` of them, by key, after `cursor`; and whether there are more.
pub(crate) async fn list(
    at: &Snapshot,
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<(Vec<Aside>, bool)> {
    let start = match cursor {
        Some(key) => Bound::Excluded(keys::aside(key).to_vec()),
        None => Bound::Included(vec![keys::ASIDE]),
    };
    let mut scan = at.scan(start, Some(vec![keys::ASIDE + 1])).await?;
    let mut all = Vec::new();
    while let Some(Row { key, value, .. }) = scan.next().await? {
        if all.len() == limit {
            return Ok((all, true));
        }
        all.push(decode(&key, value));
    }
    Ok((all, false))
}
