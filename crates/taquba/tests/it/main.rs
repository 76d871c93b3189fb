//! The integration tests of the queue, in one binary.

mod backlog;
mod golden_path;
