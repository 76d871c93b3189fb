//! The integration tests of the queue, in one binary.

mod golden_path;
