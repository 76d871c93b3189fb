//! The adapter for the crate of this repository.

crate::adapter::adapter!(Ours, ours);
