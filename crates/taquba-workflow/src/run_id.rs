//! The id of a run: its legal form and the conversions that callers expect. No storage encoding here.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::names::MAX_RUN_ID_LEN;

/// A run's id: 1..=128 bytes of `[A-Za-z0-9_-]`, so that it can be a path segment, a header and a key as it is.
///
/// It names one run within one runtime's queue; runtimes of other queues never see it. Clones share the text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Arc<str>);

impl RunId {
    /// Checks and takes an id.
    ///
    /// # Errors
    /// [`Error::InvalidRunId`] with what is wrong.
    pub fn new(id: impl Into<String>) -> Result<Self> {
        let id = id.into();
        let reason = if id.is_empty() {
            "must not be empty"
        } else if id.len() > MAX_RUN_ID_LEN {
            "must be at most 128 bytes"
        } else if !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            "may hold only A-Z, a-z, 0-9, '_' and '-'"
        } else {
            return Ok(Self(id.into()));
        };
        Err(Error::InvalidRunId { run_id: id, reason })
    }

    /// The id of runs that exist only in a runner's own tests.
    pub(crate) fn detached() -> Self {
        Self("detached".into())
    }

    /// Returns the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id as an owned string.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0.as_ref().to_owned()
    }
}

impl Deref for RunId {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for RunId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for RunId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RunId {
    type Err = Error;
    fn from_str(id: &str) -> Result<Self> {
        Self::new(id)
    }
}

impl PartialEq<str> for RunId {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for RunId {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for RunId {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.into_string()
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_to_128_bytes_of_its_alphabet() {
        for good in ["a", "A-z_0", &"x".repeat(128)] {
            assert_eq!(RunId::new(good).unwrap(), *good);
        }
        for (bad, why) in [
            ("", "must not be empty"),
            ("a/b", "may hold only"),
            ("ä", "may hold only"),
            (&"x".repeat(129), "at most 128"),
        ] {
            match RunId::new(bad) {
                Err(Error::InvalidRunId { run_id, reason }) => {
                    assert_eq!(run_id, bad);
                    assert!(reason.contains(why), "{bad}: {reason}");
                }
                other => panic!("{bad} gave {other:?}"),
            }
        }
    }

    #[test]
    fn a_stored_id_is_checked_when_it_is_read() {
        let id = RunId::new("run-1").unwrap();
        let bytes = rmp_serde::to_vec(&id).unwrap();
        assert_eq!(rmp_serde::from_slice::<RunId>(&bytes).unwrap(), id);
        let bad = rmp_serde::to_vec("not/legal").unwrap();
        assert!(rmp_serde::from_slice::<RunId>(&bad).is_err());
    }
}
