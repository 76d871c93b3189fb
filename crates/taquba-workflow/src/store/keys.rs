//! The KV keys of a run: one row while it is active, one record after its end. Keys only.
//!
//! ```text
//! workflow/{queue}/runs/{run id}       the active run           (record::RunRow)
//! workflow/{queue}/outcomes/{run id}   how its last run ended   (record::TerminalRecord)
//! ```
//!
//! A queue's name may hold slashes, a run id and the two words do not: read from its end, a key has one meaning.

use crate::names::RESERVED_KV_PREFIX;
use crate::run_id::RunId;

/// The two keys of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunKeys {
    pub(crate) row: Vec<u8>,
    pub(crate) outcome: Vec<u8>,
}

impl RunKeys {
    /// Makes the keys of a run of a queue.
    pub(crate) fn new(queue: &str, run_id: &RunId) -> Self {
        let key = |kind: &str| format!("{RESERVED_KV_PREFIX}{queue}/{kind}/{run_id}").into_bytes();
        Self { row: key("runs"), outcome: key("outcomes") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_keys() {
        let keys = RunKeys::new("workflow-steps", &RunId::new("invoice-118").unwrap());
        assert_eq!(keys.row, b"workflow/workflow-steps/runs/invoice-118");
        assert_eq!(keys.outcome, b"workflow/workflow-steps/outcomes/invoice-118");
    }

    #[test]
    fn two_queues_never_share_a_key() {
        let run = RunId::new("r").unwrap();
        let keys: Vec<_> = ["a", "a/runs", "a/outcomes", "", "/"]
            .iter()
            .map(|queue| RunKeys::new(queue, &run))
            .flat_map(|keys| [keys.row, keys.outcome])
            .collect();
        for (i, a) in keys.iter().enumerate() {
            assert!(!keys[i + 1..].contains(a), "{}", String::from_utf8_lossy(a));
        }
    }

    #[test]
    fn the_longest_names_fit_a_kv_key() {
        let run = RunId::new("r".repeat(128)).unwrap();
        assert!(RunKeys::new(&"q".repeat(255), &run).outcome.len() <= 1_024);
    }
}
