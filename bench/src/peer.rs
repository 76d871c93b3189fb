//! The adapter for the published peer.

crate::adapter::adapter!(Peer, peer);
