//! The integration tests of the queue, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may be blunt, their helpers included"
)]

mod backlog;
mod bulk;
mod clumsy;
mod corners;
mod corners_store;
mod docs;
mod edges;
mod examples;
mod expiry;
mod fencing;
#[cfg(feature = "metrics")]
mod figures;
mod fixture;
mod golden_path;
mod hazards;
mod history;
mod host_behind;
mod idle;
mod inbox;
mod kill_at_every_call;
mod low_marks;
mod model;
mod orphans;
mod payloads;
mod quarantine;
mod races;
mod reader;
mod replicas;
mod retention;
mod rules;
mod storm;
mod support;
mod takeover;
mod turns;
