//! The one loop that turns requests into commits. One writer owns the store, so there is nothing to conflict with: no
//! transactions, no retries, no lock around a decision or IO.
//!
//! ```text
//! callers ─► mailbox ─► reserve keys, load cold facts outside ─► decide (pure) ─► one batch ─► SlateDB's memory
//!   answers ◄── durable watermark ◄── log PUT ◄── one flusher ◄──────────────────────────────────┘
//! ```

mod bin;
mod bulk;
mod claims;
mod close;
mod commands;
mod decide;
mod flush;
mod found;
mod heartbeat;
pub(crate) mod inbox;
mod moves;
mod offload;
mod open;
mod owner;
mod plan;
pub(crate) mod prepare;
mod quarantine;
mod refill;
pub(crate) mod request;
mod retention;
mod round;
mod run;
mod sample;
pub(crate) mod shared;
mod signals;
mod sweep;
mod takeover;
mod timers;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use flush::Demand;
use heartbeat::Heartbeat;
use owner::Ownership;
use request::{Answer, ClaimRequest, Command, Reply, Request, Watched};

use crate::config::Knobs;
use crate::env::Instant;
use crate::lifecycle::job::JobId;
use crate::name::QueueName;
use crate::state::claims::Claims;
use crate::state::leases::ClaimNo;
use crate::state::queues::Queues;
use crate::state::reserve::{Reservations, Ticket};
use crate::state::retention::Retention;
use crate::state::window::Window;
use crate::store::db::Store;
use crate::store::record::Mark;

pub(crate) use open::open;
pub(crate) use shared::{Lane, Shared};

/// A round that is not durable yet.
struct InFlight {
    round: u64,
    /// Known once the batch is in the store's memory.
    seq: Option<u64>,
    written_at: Instant,
    bytes: usize,
    /// Queues whose new jobs become ready with it.
    fed: BTreeSet<QueueName>,
}

/// Rounds that are in memory and in no table yet, by their sequences, oldest first.
#[derive(Default)]
struct Unstored {
    rounds: VecDeque<(u64, usize)>,
    bytes: usize,
}

/// The scheduled jobs that come next.
struct Timers {
    window: Window<(u64, u64)>,
    /// The low-water mark as the store has it.
    stored_low: u64,
}

/// The loop's whole memory.
pub(crate) struct Engine {
    store: Store,
    shared: Arc<Shared>,
    inbox: mpsc::UnboundedReceiver<Request>,
    ownership: Arc<Ownership>,
    demand: watch::Sender<Demand>,

    queues: Queues,
    timers: Timers,
    claims: Claims,
    retention: Retention,
    /// How long inbox entries are remembered; `None` until a look at the whole inbox has shown which are still there.
    entries_kept_ms: Option<u64>,
    /// Claims without a row, each with when it must get one.
    held_back: VecDeque<(Instant, ClaimNo)>,
    deferred_max: Duration,
    /// Attempts that said how far they are, each with when that is stored.
    reported: VecDeque<(Instant, ClaimNo)>,
    /// Workers that wait for jobs, in order.
    idle: HashMap<QueueName, VecDeque<ClaimRequest>>,
    /// Callers that wait until a job can be claimed.
    awaiting: HashMap<QueueName, Vec<oneshot::Sender<()>>>,
    /// Callers that wait for a job's end.
    watchers: HashMap<JobId, Vec<(u64, Reply<Watched>)>>,
    /// Who is told of jobs that die without a worker's word.
    deaths: HashMap<QueueName, Vec<mpsc::UnboundedSender<String>>>,
    /// Where rows stood that this opening put aside.
    aside: HashSet<Bytes>,
    reservations: Reservations,
    parked: BTreeMap<Ticket, Command>,
    next_ticket: Ticket,

    mark: Mark,
    /// The store was not closed cleanly: claims of jobs that were there at open wait for durability.
    after_crash: bool,
    round: u64,
    durable_round: u64,
    /// Everything up to this sequence is durable.
    durable_seq: u64,
    /// The last sequence written.
    written: u64,
    /// What is in memory and in no table yet.
    unstored: Unstored,
    in_flight: VecDeque<InFlight>,
    /// Answers by the round that they wait for.
    gated: VecDeque<(u64, Vec<Answer>)>,
    heartbeat: Heartbeat,
    closing: Option<Reply<()>>,
    /// Who waits until nothing is overdue.
    ticks: Vec<Reply<()>>,
    knobs: Knobs,
}

/// Rounds take at most this many requests, and this many due timers and expired leases each, so that ten thousand
/// of a kind are a few batches and nobody else waits for all of them.
const ROUND_REQUESTS: usize = 1_024;
const ROUND_TIMERS: usize = 1_024;
