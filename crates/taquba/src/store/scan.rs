//! Rows in key order, each with the sequence that wrote it.

use bytes::Bytes;
use slatedb::DbIterator;

use crate::error::Result;

/// One row.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    /// The sequence of the batch that wrote it.
    pub(crate) seq: u64,
}

/// A running scan.
pub(crate) struct Scan {
    inner: DbIterator,
}

impl Scan {
    pub(crate) fn new(inner: DbIterator) -> Self {
        Self { inner }
    }

    /// The next row; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Row>> {
        let row = self.inner.next().await?;
        Ok(row.map(|row| Row { key: row.key, value: row.value, seq: row.seq }))
    }
}
