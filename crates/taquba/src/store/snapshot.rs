//! One moment of the store to read from: the owner's, or what a reader has caught up with.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use slatedb::config::ScanOptions;
use slatedb::{DbReader, DbSnapshot, IterationOrder};

use super::keys;
use super::scan::Scan;
use crate::error::Result;

/// See the module.
#[derive(Clone)]
pub(crate) struct Snapshot {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    Owner(Arc<DbSnapshot>),
    /// Each read is of one moment; between two of them the reader may have caught up with more.
    Reader(Arc<DbReader>),
}

impl Snapshot {
    pub(super) fn of_owner(inner: Arc<DbSnapshot>) -> Self {
        Self { inner: Inner::Owner(inner) }
    }

    pub(super) fn of_reader(inner: Arc<DbReader>) -> Self {
        Self { inner: Inner::Reader(inner) }
    }

    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(match &self.inner {
            Inner::Owner(snapshot) => snapshot.get(key).await?,
            Inner::Reader(reader) => reader.get(key).await?,
        })
    }

    /// The sequence that wrote a row.
    pub(crate) async fn seq(&self, key: &[u8]) -> Result<Option<u64>> {
        let row = match &self.inner {
            Inner::Owner(snapshot) => snapshot.get_key_value(key).await?,
            Inner::Reader(reader) => reader.get_key_value(key).await?,
        };
        Ok(row.map(|row| row.seq))
    }

    /// Rows from `from` to before `to` (`None`: to the end of all keys), reading ahead. All of one moment.
    pub(crate) async fn scan(&self, from: Bound<Vec<u8>>, to: Option<Vec<u8>>) -> Result<Scan> {
        self.scan_with(from, to, &read_ahead()).await
    }

    /// All rows whose keys start with `prefix`, in order. All of one moment.
    pub(crate) async fn scan_prefix(&self, prefix: &[u8]) -> Result<Scan> {
        self.scan(Bound::Included(prefix.to_vec()), keys::after_prefix(prefix)).await
    }

    /// As [`scan`](Self::scan), the last row first.
    pub(crate) async fn scan_back(
        &self,
        from: Bound<Vec<u8>>,
        to: Option<Vec<u8>>,
    ) -> Result<Scan> {
        self.scan_with(from, to, &read_ahead().with_order(IterationOrder::Descending)).await
    }

    async fn scan_with(
        &self,
        from: Bound<Vec<u8>>,
        to: Option<Vec<u8>>,
        options: &ScanOptions,
    ) -> Result<Scan> {
        let range = (from, to.map_or(Bound::Unbounded, Bound::Excluded));
        Ok(Scan::new(match &self.inner {
            Inner::Owner(snapshot) => snapshot.scan_with_options(range, options).await?,
            Inner::Reader(reader) => reader.scan_with_options(range, options).await?,
        }))
    }
}

fn read_ahead() -> ScanOptions {
    ScanOptions::default().with_read_ahead_bytes(1_024 * 1_024).with_max_fetch_tasks(4)
}
