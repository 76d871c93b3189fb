//! The bytes of a run: its KV keys, its records, its objects, and how a plan becomes one set of changes. Decides
//! nothing and knows no runtime.

pub(crate) mod changes;
pub(crate) mod digest;
pub(crate) mod keys;
pub(crate) mod memo;
pub(crate) mod record;
pub(crate) mod results;
