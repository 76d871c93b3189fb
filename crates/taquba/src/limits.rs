//! Every size that a caller can meet, in one place, with the checks that refuse what is larger. Floors: none.

use std::collections::HashMap;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::object_store::path::Path;

/// Priority that is claimed before [`PRIORITY_NORMAL`]. Lower numbers are claimed earlier.
pub const PRIORITY_HIGH: u32 = 100;
/// The default priority.
pub const PRIORITY_NORMAL: u32 = 1_000;
/// Priority that is claimed after [`PRIORITY_NORMAL`].
pub const PRIORITY_LOW: u32 = 10_000;
/// Largest value that a caller's KV key holds, in bytes (256 KiB).
pub const MAX_KV_VALUE_SIZE: usize = 262_144;
/// Longest queue name, in bytes.
pub const MAX_QUEUE_NAME_LEN: usize = 255;
/// Largest inbox entry, in bytes (16 MiB), the job's payload and options in it.
pub const MAX_INBOX_ENTRY_SIZE: usize = 16 * 1_024 * 1_024;
/// Longest id of an inbox entry, in bytes.
pub const MAX_INBOX_ID_LEN: usize = 64;
/// How long an inbox entry that is listed and cannot be read is tried again before it is rejected (1 h), counted from the
/// owner's first try.
pub const INBOX_UNREADABLE_AFTER: Duration = Duration::from_secs(3_600);
/// Longest caller-supplied job id, in bytes.
pub(crate) const MAX_JOB_ID_LEN: usize = 128;
/// Longest dedup key, in bytes (1 KiB).
pub(crate) const MAX_DEDUP_KEY_LEN: usize = 1_024;
/// Longest caller's KV key, in bytes (1 KiB). Empty is legal.
pub(crate) const MAX_KV_KEY_LEN: usize = 1_024;
/// Longest signal key, in bytes.
pub(crate) const MAX_SIGNAL_KEY_LEN: usize = 256;
/// Largest header, name and value together, in bytes (8 KiB).
pub(crate) const MAX_HEADER_SIZE: usize = 8 * 1_024;
/// Largest set of headers of one job, in bytes (64 KiB).
pub(crate) const MAX_HEADERS_SIZE: usize = 64 * 1_024;
/// How much of an error text is kept, in bytes (8 KiB).
pub(crate) const MAX_ERROR_TEXT_LEN: usize = 8 * 1_024;
/// How much of a progress note is kept, in bytes (1 KiB).
pub(crate) const MAX_PROGRESS_NOTE_LEN: usize = 1_024;
/// Most entries (jobs, KV writes and deletes) of one effects set.
pub(crate) const MAX_EFFECTS: usize = 1_000;
/// Largest effects set, in bytes (4 MiB).
pub(crate) const MAX_EFFECTS_SIZE: usize = 4 * 1_024 * 1_024;
/// Most jobs of one batch call.
pub(crate) const MAX_BATCH: usize = 10_000;
/// Largest batch call, in bytes (64 MiB).
pub(crate) const MAX_BATCH_SIZE: usize = 64 * 1_024 * 1_024;
/// Largest payload that is kept in the store itself, in bytes (64 MiB): what one batch call may carry.
pub(crate) const MAX_PAYLOAD_SIZE: usize = MAX_BATCH_SIZE;

/// Largest payload in an object of its own, in bytes (256 MiB): it is written in one request, within
/// `store_request_timeout`, and a worker holds it in memory whole.
pub(crate) const MAX_OFFLOADED_SIZE: usize = 256 * 1_024 * 1_024;

/// Refuses `size` past `max`, naming `what` was too large.
pub(crate) fn check(what: &'static str, size: usize, max: usize) -> Result<()> {
    if size > max {
        return Err(Error::TooLarge { what, size, max });
    }
    Ok(())
}

/// Refuses an id that is not 1..=128 bytes of `[A-Za-z0-9_-]`.
pub(crate) fn check_job_id(id: &str) -> Result<()> {
    check_id(id, MAX_JOB_ID_LEN, "must be at most 128 bytes")
}

/// Refuses an id that is not 1..=64 bytes of `[A-Za-z0-9_-]`.
pub(crate) fn check_inbox_id(id: &str) -> Result<()> {
    check_id(id, MAX_INBOX_ID_LEN, "must be at most 64 bytes")
}

fn check_id(id: &str, max: usize, too_long: &'static str) -> Result<()> {
    let reason = if id.is_empty() {
        "must not be empty"
    } else if id.len() > max {
        too_long
    } else if !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        "may hold only A-Z, a-z, 0-9, '_' and '-'"
    } else {
        return Ok(());
    };
    Err(Error::InvalidId { id: id.to_owned(), reason })
}

/// Refuses a signal whose key or payload is past its cap.
pub(crate) fn check_signal(key: &str, payload: usize) -> Result<()> {
    check("signal key bytes", key.len(), MAX_SIGNAL_KEY_LEN)?;
    check("signal payload bytes", payload, MAX_EFFECTS_SIZE)
}

/// Refuses headers past their caps.
pub(crate) fn check_headers(headers: &HashMap<String, String>) -> Result<()> {
    let mut total = 0;
    for (name, value) in headers {
        let size = name.len() + value.len();
        if size > MAX_HEADER_SIZE {
            return Err(Error::HeaderTooLarge { header: name.clone(), size, max: MAX_HEADER_SIZE });
        }
        total += size;
    }
    check("header bytes in all", total, MAX_HEADERS_SIZE)
}

/// A store's path without its outer slashes. Refuses one that object stores would write in another way: SlateDB writes
/// some of its names twice over, so what it wrote under such a path it would not find.
pub(crate) fn check_path(path: &str) -> Result<&str> {
    let own = path.trim_matches('/');
    if Path::from(own).as_ref() == own {
        Ok(own)
    } else {
        Err(Error::InvalidPath { path: path.to_owned() })
    }
}

/// Refuses a KV key or value past its cap.
pub(crate) fn check_kv(key: &[u8], value: Option<&[u8]>) -> Result<()> {
    check("KV key bytes", key.len(), MAX_KV_KEY_LEN)?;
    match value {
        Some(v) if v.len() > MAX_KV_VALUE_SIZE => {
            Err(Error::KvValueTooLarge { size: v.len(), max: MAX_KV_VALUE_SIZE })
        }
        _ => Ok(()),
    }
}

/// Cuts an error text to its kept length.
pub(crate) fn clip_error(text: &str) -> &str {
    clip(text, MAX_ERROR_TEXT_LEN)
}

/// Cuts a text to at most `max` bytes, at a character boundary.
pub(crate) fn clip(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}
