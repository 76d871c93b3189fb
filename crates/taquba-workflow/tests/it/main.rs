//! The integration tests of workflows, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may be blunt, their helpers included"
)]

mod bounds;
mod cancel;
mod crash;
mod ends;
mod golden_path;
mod kill;
#[expect(dead_code, reason = "the queue's tests use more of it")]
#[path = "../../../taquba/tests/it/support/kill.rs"]
mod kill_store;
mod programs;
mod reconcile;
mod signals;
mod steps;
mod submit;
mod world;
