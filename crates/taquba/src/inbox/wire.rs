//! The bytes of an entry: a MessagePack map with named fields. One with a field that is not known is refused: to leave out
//! what the sender asked for would be to do something else.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::entry::{EntryKind, InboxEntry};
use super::outcome::Rejection;
use crate::config::EnqueueOptions;
use crate::env::{epoch_ms, millis};
use crate::limits::clip_error;
use crate::retry::{Delays, RetryPolicy};

impl InboxEntry {
    /// Its bytes; else what is wrong with it, in words.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let bytes = match self {
            Self::Enqueue(entry) => rmp_serde::to_vec_named(entry),
            Self::Cancel(entry) => rmp_serde::to_vec_named(entry),
            Self::Signal(entry) => rmp_serde::to_vec_named(entry),
        };
        bytes.map_err(|e| e.to_string())
    }

    /// The entry of a kind in these bytes.
    pub(crate) fn decode(kind: &EntryKind, bytes: &[u8]) -> Result<Self, Rejection> {
        match kind {
            EntryKind::Enqueue => whole(bytes).map(Self::Enqueue),
            EntryKind::Cancel => whole(bytes).map(Self::Cancel),
            EntryKind::Signal => whole(bytes).map(Self::Signal),
            EntryKind::Unknown(_) => Err(Rejection::UnknownKind),
        }
    }
}

fn whole<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Rejection> {
    let malformed =
        |detail: String| Rejection::Malformed { detail: clip_error(&detail).to_owned() };
    let mut reader = rmp_serde::Deserializer::new(Cursor::new(bytes));
    let value = T::deserialize(&mut reader).map_err(|e| malformed(e.to_string()))?;
    match reader.get_ref().position() == bytes.len() as u64 {
        true => Ok(value),
        false => Err(malformed("it goes on past its end".to_owned())),
    }
}

/// [`EnqueueOptions`] as they are written: what is not set is not there, times are milliseconds (since the Unix epoch).
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OptionsWire {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup_key: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_override: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryWire>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_run: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_at: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryWire {
    /// Base and longest delay of a doubling one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    doubling: Option<(u64, u64)>,
    /// The delays of a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    delays: Vec<u64>,
    #[serde(default)]
    jitter_percent: u8,
}

/// The farthest time that the host can tell, for one that lies past it.
fn time(at: u64) -> SystemTime {
    let farthest = UNIX_EPOCH + Duration::from_secs(u64::from(u32::MAX));
    UNIX_EPOCH.checked_add(Duration::from_millis(at)).unwrap_or(farthest)
}

impl From<EnqueueOptions> for OptionsWire {
    fn from(options: EnqueueOptions) -> Self {
        let retry = |retry: RetryPolicy| {
            let jitter_percent = retry.jitter_percent;
            match retry.delays {
                Delays::Exponential { base_ms, max_ms } => RetryWire {
                    doubling: Some((base_ms, max_ms)),
                    delays: Vec::new(),
                    jitter_percent,
                },
                Delays::List(delays) => RetryWire { doubling: None, delays, jitter_percent },
            }
        };
        Self {
            max_attempts: options.max_attempts,
            priority: options.priority,
            run_at: options.run_at.map(epoch_ms),
            dedup_key: options.dedup_key,
            headers: options.headers.into_iter().collect(),
            id_override: options.id_override,
            signal_key: options.signal_key,
            retry: options.retry.map(retry),
            max_run: options.max_run.map(millis),
            expire_at: options.expire_at.map(epoch_ms),
        }
    }
}

impl From<OptionsWire> for EnqueueOptions {
    fn from(wire: OptionsWire) -> Self {
        let retry = |retry: RetryWire| {
            let delays = match retry.doubling {
                Some((base_ms, max_ms)) => Delays::Exponential { base_ms, max_ms },
                None => Delays::List(retry.delays),
            };
            RetryPolicy::from(delays).jitter(retry.jitter_percent)
        };
        Self {
            max_attempts: wire.max_attempts,
            priority: wire.priority,
            run_at: wire.run_at.map(time),
            dedup_key: wire.dedup_key,
            headers: wire.headers.into_iter().collect::<HashMap<_, _>>(),
            id_override: wire.id_override,
            signal_key: wire.signal_key,
            retry: wire.retry.map(retry),
            max_run: wire.max_run.map(Duration::from_millis),
            expire_at: wire.expire_at.map(time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::{CancelEntry, EnqueueEntry, SignalEntry};

    fn all_options() -> EnqueueOptions {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        EnqueueOptions {
            max_attempts: Some(4),
            priority: Some(5),
            run_at: Some(at(300)),
            dedup_key: Some("d".into()),
            headers: [("a".to_owned(), "1".to_owned())].into(),
            id_override: Some("own".into()),
            signal_key: Some("s".into()),
            retry: Some(RetryPolicy::list([Duration::from_millis(7)]).jitter(20)),
            max_run: Some(Duration::from_millis(8)),
            expire_at: Some(at(9)),
        }
    }

    #[test]
    fn entries_have_these_bytes_and_come_back() {
        let cases: [(InboxEntry, &str); 4] = [
            (EnqueueEntry::new("hi").into(), r"\x82\xa7payload\xc4\x02hi\xa7options\x80"),
            (
                EnqueueEntry::new("hi").options(all_options()).into(),
                r"\x82\xa7payload\xc4\x02hi\xa7options\x8a\xacmax_attempts\x04\xa8priority\x05\xa6run_at\xcd\x01,\xa9dedup_key\xa1d\xa7headers\x81\xa1a\xa11\xabid_override\xa3own\xaasignal_key\xa1s\xa5retry\x82\xa6delays\x91\x07\xaejitter_percent\x14\xa7max_run\x08\xa9expire_at\t",
            ),
            (CancelEntry::new("01J").into(), r"\x81\xa6job_id\xa301J"),
            (SignalEntry::new("k", "w").into(), r"\x82\xa3key\xa1k\xa7payload\xc4\x01w"),
        ];
        for (entry, shown) in cases {
            let bytes = entry.encode().unwrap();
            assert_eq!(bytes.escape_ascii().to_string(), shown);
            let kind = entry.kind();
            assert_eq!(InboxEntry::decode(&kind, &bytes), Ok(entry));
            for end in 0..bytes.len() {
                assert!(InboxEntry::decode(&kind, &bytes[..end]).is_err(), "cut at {end}");
            }
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= 1 << bit;
                    // Any answer will do, so long as it is one.
                    drop(InboxEntry::decode(&kind, &bytes));
                }
            }
            let longer = [&bytes[..], b"\xc0"].concat();
            assert!(InboxEntry::decode(&kind, &longer).is_err());
        }
    }

    #[test]
    fn a_doubling_retry_comes_back_and_an_unknown_option_is_refused() {
        let second = Duration::from_secs(1);
        let retry = RetryPolicy::exponential(second, 9 * second);
        let options = EnqueueOptions::default().retry(retry);
        let entry = InboxEntry::from(EnqueueEntry::new("x").options(options));
        let bytes = entry.encode().unwrap();
        assert_eq!(InboxEntry::decode(&EntryKind::Enqueue, &bytes), Ok(entry));
        let later = b"\x82\xa7payload\xc4\x01x\xa7options\x81\xa3new\x01";
        let refused = InboxEntry::decode(&EntryKind::Enqueue, later);
        assert!(matches!(refused, Err(Rejection::Malformed { .. })), "{refused:?}");
    }
}
