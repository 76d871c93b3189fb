//! Bytes: the key layout, the record codecs, one batch per round, reads, and the engine below (SlateDB), which no other
//! floor names. Knows nothing of leases, workers or the loop.

pub(crate) mod beat;
pub(crate) mod clock;
pub(crate) mod compact;
pub(crate) mod db;
pub(crate) mod deadline;
pub(crate) mod find;
pub(crate) mod format;
pub(crate) mod history;
pub(crate) mod inbox;
pub(crate) mod kept;
pub(crate) mod keys;
pub(crate) mod objects;
pub(crate) mod outside;
pub(crate) mod quarantine;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod rows;
mod rules;
pub(crate) mod scan;
pub(crate) mod shape;
pub(crate) mod snapshot;
pub(crate) mod trouble;
pub(crate) mod wire;

#[cfg(test)]
mod golden;
