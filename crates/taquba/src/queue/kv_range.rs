//! Ranges of a caller's keys, and pages of its rows.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use bytes::Bytes;

use crate::store::keys;

/// One page of a scan of a caller's rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvPage {
    /// Keys and values, in the order that was asked for.
    pub entries: Vec<(Vec<u8>, Bytes)>,
    /// Whether more follow; go on from `(Bound::Excluded(last_key), end)`.
    pub more: bool,
}

/// A range of full keys: any Rust range over byte strings, or a pair of bounds.
pub trait KvRange {
    /// Where it starts.
    fn start_bound(&self) -> Bound<&[u8]>;
    /// Where it ends.
    fn end_bound(&self) -> Bound<&[u8]>;
}

macro_rules! ranges {
    ($($range:ty, $value:ident => $start:expr, $end:expr;)+) => {
        $(impl<K: AsRef<[u8]>> KvRange for $range {
            fn start_bound(&self) -> Bound<&[u8]> {
                let $value = self;
                $start
            }
            fn end_bound(&self) -> Bound<&[u8]> {
                let $value = self;
                $end
            }
        })+
    };
}

ranges! {
    Range<K>, r => Bound::Included(r.start.as_ref()), Bound::Excluded(r.end.as_ref());
    RangeInclusive<K>, r => Bound::Included(r.start().as_ref()), Bound::Included(r.end().as_ref());
    RangeFrom<K>, r => Bound::Included(r.start.as_ref()), { let _ = r; Bound::Unbounded };
    RangeTo<K>, r => { let _ = r; Bound::Unbounded }, Bound::Excluded(r.end.as_ref());
    RangeToInclusive<K>, r => { let _ = r; Bound::Unbounded }, Bound::Included(r.end.as_ref());
    (Bound<K>, Bound<K>), r => as_slice(&r.0), as_slice(&r.1);
}

impl KvRange for RangeFull {
    fn start_bound(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
    fn end_bound(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

fn as_slice<K: AsRef<[u8]>>(bound: &Bound<K>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key.as_ref()),
        Bound::Excluded(key) => Bound::Excluded(key.as_ref()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The stored keys of a range within a prefix: first bound, and the key before which it ends. `None` when no key can
/// lie in it.
pub(crate) fn stored(prefix: &[u8], range: &impl KvRange) -> Option<(Bound<Vec<u8>>, Vec<u8>)> {
    let prefix = keys::kv(prefix).to_vec();
    // The letter of the key space is no 0xff, so something follows every prefix.
    let prefix_end = keys::after_prefix(&prefix)?;
    let stored = |key: &[u8]| keys::kv(key).to_vec();
    let start = match range.start_bound() {
        Bound::Included(key) => Bound::Included(stored(key).max(prefix)),
        Bound::Excluded(key) if stored(key) >= prefix => Bound::Excluded(stored(key)),
        Bound::Excluded(_) | Bound::Unbounded => Bound::Included(prefix),
    };
    let end = match range.end_bound() {
        Bound::Excluded(key) => stored(key).min(prefix_end),
        // The first key after `key`.
        Bound::Included(key) => [stored(key), vec![0]].concat().min(prefix_end),
        Bound::Unbounded => prefix_end,
    };
    let empty = match &start {
        Bound::Included(from) => *from >= end,
        Bound::Excluded(after) => [after.as_slice(), &[0]].concat() >= end,
        Bound::Unbounded => false,
    };
    (!empty).then_some((start, end))
}
