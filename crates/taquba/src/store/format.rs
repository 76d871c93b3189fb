//! The store's format stamp: what a store of ours is known by, and who may read it.

use std::ops::Bound;

use super::keys;
use super::snapshot::Snapshot;
use crate::error::{Error, Result};

/// The store's format. A store of a higher number is refused.
pub(crate) const FORMAT: &[u8] = b"taquba 1";
const FORMAT_NAME: &[u8] = b"taquba ";

/// Whether a store is in use: false without rows, which is a new one, or one whose first open was cut short.
///
/// With rows it must be stamped, and with a format that this version knows; else it is refused.
pub(crate) async fn is_in_use(at: &Snapshot, path: &str) -> Result<bool> {
    let refuse = |reason: String| Err(Error::Format { path: path.to_owned(), reason });
    match at.get(keys::FORMAT).await? {
        Some(stamp) if stamp == FORMAT => Ok(true),
        Some(stamp) if stamp.starts_with(FORMAT_NAME) => refuse(format!(
            "its format is {:?}, newer than {:?}, which this version reads; upgrade the library",
            String::from_utf8_lossy(&stamp),
            String::from_utf8_lossy(FORMAT),
        )),
        Some(stamp) => refuse(format!(
            "its stamp {:?} is not one of a queue store",
            String::from_utf8_lossy(&stamp)
        )),
        None => match at.scan(Bound::Unbounded, None).await?.next().await? {
            None => Ok(false),
            Some(_) => refuse(
                "it holds rows but no format stamp, so it is not a queue store; use another path"
                    .to_owned(),
            ),
        },
    }
}
