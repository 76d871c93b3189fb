//! The row of the owner's heartbeat.

use std::time::Duration;

use bytes::Bytes;

use super::keys;
use super::snapshot::Snapshot;
use super::wire::{Malformed, Reader, put_u64};
use crate::error::Result;
use crate::liveness::WriterHeartbeat;

const VERSION: u8 = 1;

/// Encodes a beat.
pub(crate) fn encode(beat: &WriterHeartbeat) -> Bytes {
    let mut out = vec![VERSION, u8::from(beat.closed)];
    let interval_ms = crate::env::millis(beat.interval);
    for number in [beat.counter, beat.at_ms, interval_ms, beat.writer_epoch] {
        put_u64(&mut out, number);
    }
    out.into()
}

/// Decodes a beat.
pub(crate) fn decode(value: Bytes) -> Result<WriterHeartbeat, Malformed> {
    let mut r = Reader::new(value);
    if r.u8()? != VERSION {
        return Err("it has an unknown version");
    }
    let closed = match r.u8()? {
        0 => false,
        1 => true,
        _ => return Err("it is neither open nor closed"),
    };
    let beat = WriterHeartbeat {
        closed,
        counter: r.u64()?,
        at_ms: r.u64()?,
        interval: Duration::from_millis(r.u64()?),
        writer_epoch: r.u64()?,
    };
    r.end()?;
    Ok(beat)
}

/// The last beat; `None` when no owner ever beat.
pub(crate) async fn last(at: &Snapshot) -> Result<Option<WriterHeartbeat>> {
    let value = at.get(keys::HEARTBEAT).await?;
    let beat = value.map(decode).transpose();
    beat.map_err(|e| super::find::undecodable(keys::HEARTBEAT, e))
}
