//! Opening: take the store over, check its format, read back what memory needs, requeue what the last owner held.
//! What is read does not grow with the backlog: the marks, one row per queue, one per priority in use, the claims.

use std::collections::HashMap;
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::close::{Obituary, flushed};
use super::flush::{self, Demand, FlushPolicy};
use super::moves::Ready;
use super::owner::{self, Ownership};
use super::prepare::Configs;
use super::request::Request;
use super::run::{End, Nets};
use super::shared::Shared;
use super::{Engine, Timers, upkeep};
use crate::config::OpenOptions;
use crate::env;
use crate::error::{Error, Result};
use crate::lifecycle::job::{Job, State};
use crate::lifecycle::settle;
use crate::lifecycle::term::Kind;
use crate::limits;
use crate::name::QueueName;
use crate::object_store::ObjectStore;
use crate::state::ids::Ids;
use crate::state::queues::Queues;
use crate::state::window::Window;
use crate::store::clock::StoreClock;
use crate::store::db::{Location, Snapshot, Store};
use crate::store::record::{self, Counters, Mark};
use crate::store::trouble::Opening;
use crate::store::{find, keys};

/// The store's format. A store of a higher number is refused.
const FORMAT: &[u8] = b"taquba 1";
const FORMAT_NAME: &[u8] = b"taquba ";
/// SlateDB's clock starts this far past the last time the store saw, which covers what was written after the mark
/// in the same batch.
const CLOCK_MARGIN_MS: u64 = 1_000;

/// Opens the store and starts its tasks. Gives up when the object store refuses for want of permission or answers
/// nothing for the call timeout: SlateDB would try for ever. As long as requests succeed it goes on, so that a long
/// replay has its time.
pub(crate) async fn open(
    object_store: Arc<dyn ObjectStore>,
    path: &str,
    options: OpenOptions,
) -> Result<Arc<Shared>> {
    let path = limits::check_path(path)?;
    let configs = Configs::new(&options)?;
    let location = Location::new(
        path,
        object_store,
        options.wal_object_store.clone(),
        options.store_request_timeout,
    );
    let (start, trouble) = (env::now(), Arc::clone(&location.trouble));
    let opening = Opening::new(&trouble);
    tokio::select! {
        biased;
        opened = open_at(location, configs, &options) => {
            let shared = opened.map_err(|error| error.at_open(path))?;
            opening.done();
            return Ok(shared);
        }
        () = trouble.refused() => {}
        () = trouble.silent_for(options.call_timeout) => {}
    }
    Err(Error::StoreUnreachable {
        path: path.to_owned(),
        waited_ms: super::prepare::millis(env::now().duration_since(start)),
        last_error: trouble.last_since(start).unwrap_or_default(),
    })
}

async fn open_at(
    location: Location,
    configs: Configs,
    options: &OpenOptions,
) -> Result<Arc<Shared>> {
    let path = location.path.clone();
    let proof = env::now();
    let knobs = options.knobs;
    let store_clock = StoreClock::behind(super::prepare::millis(knobs.host_behind));
    let store = Store::open(location, store_clock, knobs.memtable_bytes).await?;
    let found = read(&store, &path).await?;
    store.clock.raise(found.mark.time_ms.saturating_add(CLOCK_MARGIN_MS));

    let (mailbox, inbox) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared::new(
        mailbox,
        Ids::after(found.mark.id, env::id_entropy),
        Arc::clone(&options.clock),
        configs,
        store,
        options.call_timeout,
    ));
    let ownership = Arc::new(Ownership::new());
    ownership.proved(proof);
    let (demand, demanded) = watch::channel(Demand::default());
    let mut engine = Engine::new(&found, &shared, inbox, Arc::clone(&ownership), demand, options);
    engine.queues = found.queues;
    for (queue, kind, low) in found.kept {
        let keep_ms = shared.configs.keep_ms(&queue, kind);
        engine.retention.restore((queue, kind), low, keep_ms);
    }
    engine.queues.set_band_bytes(knobs.band_bytes);
    let (landed, flushes) = watch::channel(0);
    tokio::spawn(upkeep::run(shared.store.clone(), flushes, shared.closed.subscribe()));
    engine.recover(found.claimed, found.stray_claims).await?;
    begin(engine, &shared, ownership, demanded, landed, options);
    Ok(shared)
}

/// Starts the loop and the tasks beside it.
fn begin(
    engine: Engine,
    shared: &Arc<Shared>,
    ownership: Arc<Ownership>,
    demanded: watch::Receiver<Demand>,
    landed: watch::Sender<u64>,
    options: &OpenOptions,
) {
    let store = || shared.store.clone();
    let closed = || shared.closed.subscribe();
    let policy =
        FlushPolicy { interval: options.flush_interval, deferred_max: options.deferred_flush_max };
    let (owner, lost) = (Arc::clone(&ownership), shared.mailbox.clone());
    tokio::spawn(flush::run(store(), policy, demanded, owner, landed, lost));
    tokio::spawn(owner::run(store(), ownership, options.fence_check_interval, closed()));
    let tick = options.reaper_interval.min(options.scheduler_interval);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let run = pin!(engine.run(Nets { tick }));
        // Dropped before the loop, so that who hears from the loop's end hears its reason.
        let _obituary = Obituary(shared);
        run.await;
    });
}

/// What the store says at open.
struct Found {
    mark: Mark,
    unclean: bool,
    low_scheduled: u64,
    queues: Queues,
    any_scheduled: bool,
    /// Which queues have jobs whose time runs, and from when at the earliest.
    kept: Vec<(QueueName, Kind, u64)>,
    claimed: Vec<Job>,
    /// Claim rows whose job is gone.
    stray_claims: Vec<u32>,
}

impl Found {
    fn timers(&self) -> Timers {
        let window = match self.any_scheduled {
            true => Window::unloaded((self.low_scheduled, 0)),
            false => Window::empty(),
        };
        Timers { window, stored_low: self.low_scheduled }
    }
}

async fn read(store: &Store, path: &str) -> Result<Found> {
    let at = store.snapshot()?;
    check_format(&at, path).await?;
    let mark = match at.get(keys::MARK).await? {
        Some(value) => Mark::decode(value).map_err(|e| find::undecodable(keys::MARK, e))?,
        None => Mark::default(),
    };
    let low_scheduled = match at.get(keys::LOW_SCHEDULED).await? {
        Some(value) => {
            record::decode_low(&value).map_err(|e| find::undecodable(keys::LOW_SCHEDULED, e))?
        }
        None => 0,
    };
    let mut found = Found {
        mark,
        unclean: at.get(keys::UNCLEAN).await?.is_some(),
        low_scheduled,
        queues: Queues::default(),
        any_scheduled: false,
        kept: Vec::new(),
        claimed: Vec::new(),
        stray_claims: Vec::new(),
    };
    read_queues(&at, &mut found).await?;
    read_kept(&at, &mut found).await?;
    read_claims(&at, &mut found).await?;
    Ok(found)
}

/// A store with no rows is new (or its first open was cut short); with rows it must be stamped, and with a format
/// that this version knows.
async fn check_format(at: &Snapshot, path: &str) -> Result<()> {
    let refuse = |reason: String| Err(Error::Format { path: path.to_owned(), reason });
    match at.get(keys::FORMAT).await? {
        Some(stamp) if stamp == FORMAT => Ok(()),
        Some(stamp) if stamp.starts_with(FORMAT_NAME) => refuse(format!(
            "its format is {:?}, newer than {:?}, which this version reads; upgrade the library",
            String::from_utf8_lossy(&stamp),
            String::from_utf8_lossy(FORMAT),
        )),
        Some(stamp) => refuse(format!(
            "its stamp {:?} is not one of a queue store",
            String::from_utf8_lossy(&stamp)
        )),
        None => match at.scan(Bound::Unbounded, None).await?.next().await? {
            None => Ok(()),
            Some(_) => refuse(
                "it holds rows but no format stamp, so it is not a queue store; use another path"
                    .to_owned(),
            ),
        },
    }
}

/// Counters of every queue, the low-water marks of its priorities, and whether it is paused.
async fn read_queues(at: &Snapshot, found: &mut Found) -> Result<()> {
    let mut lows: HashMap<String, Vec<(u32, u64)>> = HashMap::new();
    let mut scan = at.scan(Bound::Included(vec![keys::LOW]), Some(vec![keys::LOW + 1])).await?;
    while let Some(row) = scan.next().await? {
        let queue = keys::queue_of(&row.key).unwrap_or_default();
        let low = record::decode_low(&row.value).map_err(|e| find::undecodable(&row.key, e))?;
        if let Some(priority) = keys::low_priority(queue, &row.key) {
            lows.entry(queue.to_owned()).or_default().push((priority, low));
        }
    }
    let range = (Bound::Included(vec![keys::COUNTERS]), Some(vec![keys::COUNTERS + 1]));
    let mut scan = at.scan(range.0, range.1).await?;
    while let Some(row) = scan.next().await? {
        let queue = keys::queue_of(&row.key).unwrap_or_default().to_owned();
        let counters = Counters::decode(row.value).map_err(|e| find::undecodable(&row.key, e))?;
        found.any_scheduled |= counters.scheduled > 0;
        let lows = lows.remove(&queue).unwrap_or_default();
        found.queues.restore(QueueName::new(queue)?, counters, lows);
    }
    let range = (Bound::Included(vec![keys::PAUSED]), Some(vec![keys::PAUSED + 1]));
    let mut scan = at.scan(range.0, range.1).await?;
    while let Some(row) = scan.next().await? {
        let queue = keys::queue_of(&row.key).unwrap_or_default().to_owned();
        found.queues.set_paused(&QueueName::new(queue)?, true);
    }
    Ok(())
}

/// From when on queues have jobs whose time runs.
async fn read_kept(at: &Snapshot, found: &mut Found) -> Result<()> {
    let range = (Bound::Included(vec![keys::KEPT_LOW]), Some(vec![keys::KEPT_LOW + 1]));
    let mut scan = at.scan(range.0, range.1).await?;
    while let Some(row) = scan.next().await? {
        let queue = keys::queue_of(&row.key).unwrap_or_default();
        let low = record::decode_low(&row.value).map_err(|e| find::undecodable(&row.key, e))?;
        if let Some(kind) = keys::kept_low_kind(queue, &row.key) {
            found.kept.push((QueueName::new(queue)?, kind, low));
        }
    }
    Ok(())
}

/// The jobs that the last owner held. One that cannot be read stays as it is, with a warning; the others recover.
async fn read_claims(at: &Snapshot, found: &mut Found) -> Result<()> {
    for claim in find::claims(at).await? {
        match find::record_at(at, &claim.main).await {
            Ok(Some(mut job)) => {
                job.state = State::Claimed(claim.hold);
                found.claimed.push(job);
            }
            Ok(None) => found.stray_claims.extend(claim.hold.slot),
            Err(error @ Error::Deserialization(_)) => {
                tracing::error!(%error, "a claimed job cannot be read and is left in place");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Engine {
    /// An engine that remembers what `found` says, its queues apart, and has done nothing yet.
    fn new(
        found: &Found,
        shared: &Arc<Shared>,
        inbox: mpsc::UnboundedReceiver<Request>,
        ownership: Arc<Ownership>,
        demand: watch::Sender<Demand>,
        options: &OpenOptions,
    ) -> Self {
        Self {
            store: shared.store.clone(),
            shared: Arc::clone(shared),
            inbox,
            ownership,
            demand,
            timers: found.timers(),
            queues: Queues::default(),
            mark: Mark { epoch: found.mark.epoch + 1, ..found.mark },
            after_crash: found.unclean,
            claims: Default::default(),
            retention: Default::default(),
            held_back: Default::default(),
            deferred_max: options.deferred_flush_max,
            idle: HashMap::new(),
            awaiting: HashMap::new(),
            watchers: HashMap::new(),
            deaths: HashMap::new(),
            reservations: Default::default(),
            parked: Default::default(),
            next_ticket: 0,
            round: 0,
            durable_round: 0,
            durable_seq: 0,
            written: 0,
            unstored: Default::default(),
            in_flight: Default::default(),
            gated: Default::default(),
            closing: None,
            ticks: Vec::new(),
            knobs: options.knobs,
        }
    }

    /// The first round: stamp a new store, note that it is in use, requeue what was held. Durable on return, so this
    /// opening's number is taken before anything happens under it.
    async fn recover(&mut self, claimed: Vec<Job>, stray_claims: Vec<u32>) -> Result<()> {
        let mut round = self.open_round();
        let stamp = round.stamp;
        round.batch.put(keys::FORMAT.into(), FORMAT.into());
        round.batch.put(keys::UNCLEAN.into(), bytes::Bytes::new());
        for slot in stray_claims {
            round.batch.delete(&keys::claim(slot));
        }
        for job in claimed {
            let change = settle::interrupt(&Arc::new(job), stamp);
            self.apply(change, Ready::WhenDurable, &mut round);
        }
        let mut writing = self.seal(&mut round);
        if let Some(first) = &mut writing {
            let written = first.write.as_mut().await;
            if let Err(End::Lost(reason)) = self.written_back(written, &mut writing) {
                return Err(Error::Closed(reason));
            }
        }
        flushed(&self.store, self.written).await?;
        let mut next = self.open_round();
        self.refill_timers(&mut next);
        self.seal(&mut next);
        Ok(())
    }
}
