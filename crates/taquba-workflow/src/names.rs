//! The names that this crate keeps for itself: job headers and KV prefixes. Names only, no codec.

/// Prefix of the job headers that belong to this crate. A submission that carries one is refused.
pub const RESERVED_HEADER_PREFIX: &str = "workflow.";
/// Prefix of the KV keys that belong to this crate. An effect on such a key is refused.
pub const RESERVED_KV_PREFIX: &str = "workflow/";
/// Header of every step and notification job: the run's id.
pub const HEADER_RUN_ID: &str = "workflow.run_id";
/// Header of every step job: its step number, decimal, from 0.
pub const HEADER_STEP: &str = "workflow.step";
/// Header of a notification job: how the run ended, in lower case.
pub const HEADER_TERMINAL: &str = "workflow.terminal";
/// Header of a step job that waits for a signal: the signal's key. For people who read jobs; the wait itself is the
/// queue's.
pub const HEADER_SIGNAL_WAIT: &str = "workflow.signal_wait";
/// Kept reserved. A step's signal rides in its job's `wake_payload`, whether it came before or during the wait.
pub const HEADER_SIGNAL_DELIVERED: &str = "workflow.signal_delivered";
/// Longest run id, in bytes.
pub const MAX_RUN_ID_LEN: usize = 128;

/// Tells whether a header belongs to this crate.
pub(crate) fn is_reserved_header(name: &str) -> bool {
    name.starts_with(RESERVED_HEADER_PREFIX)
}

/// Tells whether a KV key belongs to this crate.
pub(crate) fn is_reserved_key(key: &[u8]) -> bool {
    key.starts_with(RESERVED_KV_PREFIX.as_bytes())
}
