//! The integration tests of the queue, in one binary.

mod backlog;
mod fencing;
mod golden_path;
mod hazards;
mod kill_at_every_call;
mod low_marks;
mod model;
mod races;
mod storm;
mod support;
