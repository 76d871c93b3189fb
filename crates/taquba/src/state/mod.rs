//! What the process remembers between commits: windows of the ready and scheduled jobs, claims and leases, counters,
//! who waits for what. Plain structs that only the engine's loop changes; nothing here reads or writes the store.

pub(crate) mod claims;
pub(crate) mod ids;
pub(crate) mod leases;
pub(crate) mod queues;
pub(crate) mod reserve;
pub(crate) mod retention;
pub(crate) mod window;
