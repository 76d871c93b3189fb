//! How a run lives: plain values and pure functions from what happened to what follows. Knows no store, no clock and
//! no async; whoever calls it commits what it says.
//!
//! ```text
//!  submit ─► step 0 ── Continue ─► step 1 ── Continue ─► … ── Succeed | Fail | Cancel ─► ended
//!              │  ▲                  │
//!              │  └── transient ─────┤ (the same job again, after the queue's backoff)
//!              │                     └── permanent, or out of attempts ───────────────► ended: Failed
//!              └── cancel requested, or cancelled while its job waits ────────────────► ended: Cancelled
//! ```
//!
//! Between two steps a run is one waiting job: at once, after a delay, or for a signal.

pub(crate) mod address;
pub(crate) mod cancel;
pub(crate) mod limits;
pub(crate) mod outcome;
pub(crate) mod run;
pub(crate) mod settle;
pub(crate) mod submit;
