//! Opening: take the store over, check its format, read back what memory needs, requeue what the last owner held.
//! What is read does not grow with the backlog: the marks, one row per queue, one per priority in use, the claims.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::bin::{self, Bin};
use super::close::{Obituary, flushed};
use super::flush::{self, Demand, FlushPolicy};
use super::heartbeat::Heartbeat;
use super::moves::Ready;
use super::offload::Offload;
use super::owner::{self, Ownership};
use super::prepare::Configs;
use super::request::{Reply, Request};
use super::run::{End, Nets};
use super::shared::Shared;
use super::sweep::{self, Sweeper, Timetable};
use super::upkeep::{self, Duties};
use super::{Engine, Timers, sample, takeover};
use crate::config::OpenOptions;
use crate::env;
use crate::error::{CloseReason, Error, Result};
use crate::lifecycle::job::{Job, State};
use crate::lifecycle::settle;
use crate::lifecycle::term::Kind;
use crate::limits;
use crate::liveness::WriterHeartbeat;
use crate::name::QueueName;
use crate::object_store::ObjectStore;
use crate::record::OrphanSweep;
use crate::state::ids::Ids;
use crate::state::queues::Queues;
use crate::state::window::Window;
use crate::store::clock::StoreClock;
use crate::store::db::{Location, Store};
use crate::store::objects::Objects;
use crate::store::quarantine::Bad;
use crate::store::record::{self, Counters, Mark};
use crate::store::snapshot::Snapshot;
use crate::store::trouble::Opening;
use crate::store::{beat, find, format, keys};

/// SlateDB's clock starts this far past the last time the store saw, which covers what was written after the mark
/// in the same batch.
const CLOCK_MARGIN_MS: u64 = 1_000;

/// When orphaned payload objects are looked for first (1 min): after the rush of an opening, and when what the last
/// owner had under way has landed.
const FIRST_SWEEP: Duration = Duration::from_secs(60);

/// Opens the store when it is its turn, and starts its tasks. Gives up when the object store refuses for want of permission or answers
/// nothing for the call timeout: SlateDB would try for ever. As long as requests succeed it goes on, so that a long
/// replay has its time.
pub(crate) async fn open(
    object_store: Arc<dyn ObjectStore>,
    path: &str,
    options: OpenOptions,
) -> Result<Arc<Shared>> {
    let path = limits::check_path(path)?;
    takeover::check(&options)?;
    // Before anything is waited for.
    let configs = Configs::new(&options)?;
    if options.orphan_sweep_interval.is_some_and(|every| every.is_zero()) {
        let reason = "must not be zero; None switches sweeps off";
        return Err(Error::InvalidOption { option: "orphan_sweep_interval", reason });
    }
    let location = Location::new(
        path,
        object_store,
        options.wal_object_store.clone(),
        options.store_request_timeout,
    );
    let objects = objects(&location, &options)?;
    // In all attempts: none must try on behind one that gave up.
    let opening = Opening::new(&location.trouble);
    loop {
        let after = takeover::turn(&location, &options).await?;
        let taken = Box::pin(take(&location, &objects, &configs, after, &options));
        match answering(&location, options.call_timeout, taken).await {
            // Nobody closes a store that is being opened: the engine below says closed, too, when it was fenced and had
            // ended before the reason was asked for.
            Err(Error::Closed(CloseReason::Fenced | CloseReason::Closed)) => match after {
                // Of those who waited for the same owner, another was quicker; it is the one to wait for now.
                Some(_) => {}
                None => return Err(Error::Closed(CloseReason::Fenced)),
            },
            Ok(shared) => {
                opening.done();
                return Ok(shared);
            }
            Err(error) => return Err(error.at_open(path)),
        }
    }
}

/// Ends an opening that the store refuses for want of permission, or leaves without an answer for `patience`.
async fn answering<T>(
    location: &Location,
    patience: Duration,
    opening: impl Future<Output = Result<T>>,
) -> Result<T> {
    let (start, trouble) = (env::now(), &location.trouble);
    tokio::select! {
        biased;
        opened = opening => return opened,
        () = trouble.refused() => {}
        () = trouble.silent_for(patience) => {}
    }
    Err(Error::StoreUnreachable {
        path: location.path.clone(),
        waited_ms: crate::env::millis(env::now().duration_since(start)),
        last_error: trouble.last_since(start).unwrap_or_default(),
    })
}

/// Takes the store over.
async fn take(
    location: &Location,
    objects: &Objects,
    configs: &Configs,
    after: Option<u64>,
    options: &OpenOptions,
) -> Result<Arc<Shared>> {
    let proof = env::now();
    let knobs = options.knobs;
    let store_clock = StoreClock::behind(crate::env::millis(knobs.host_behind));
    let store = Store::open(location.clone(), store_clock, after, knobs.memtable_bytes).await?;
    let found = read(&store, &location.path).await?;
    store.clock.raise(found.mark.time_ms.saturating_add(CLOCK_MARGIN_MS));

    let (mailbox, inbox) = mpsc::unbounded_channel();
    let (sweeps, asked) = mpsc::unbounded_channel();
    let (bin, thrown) = Bin::new();
    let opening = (found.store, found.mark.epoch + 1);
    tokio::spawn(bin::run(objects.clone(), thrown));
    let shared = Arc::new(Shared::new(
        mailbox,
        Ids::after(found.mark.id, env::id_entropy),
        Arc::clone(&options.clock),
        configs.clone(),
        store,
        Offload::new(objects.clone(), options.payload_offload_threshold, opening, bin, sweeps),
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
    let duties = Duties {
        compacts: options.in_process_compactor,
        collects: options.in_process_garbage_collector,
    };
    tokio::spawn(upkeep::run(shared.store.clone(), duties, flushes, shared.closed.subscribe()));
    engine.recover(found.claimed, found.stray_claims, found.bad_claims).await?;
    begin(engine, &shared, ownership, demanded, landed, options);
    start_sweeps(&shared, asked, options);
    if let Some(every) = options.metrics_sample_interval {
        tokio::spawn(sample::run(Arc::clone(&shared), every));
    }
    Ok(shared)
}

/// Where payload objects are, checked.
fn objects(location: &Location, options: &OpenOptions) -> Result<Objects> {
    let chosen = (options.payload_store.clone(), options.payload_path.as_deref());
    Objects::of(location, chosen, options.store_request_timeout)
}

/// Starts the sweeps of orphaned payload objects: this opening's number is durable.
fn start_sweeps(
    shared: &Shared,
    asked: mpsc::UnboundedReceiver<Reply<OrphanSweep>>,
    options: &OpenOptions,
) {
    let sweeper = Sweeper {
        store: shared.store.clone(),
        offload: Arc::clone(&shared.offload),
        mailbox: shared.mailbox.clone(),
    };
    let timetable = Timetable { first: FIRST_SWEEP, every: options.orphan_sweep_interval };
    tokio::spawn(sweep::run(sweeper, timetable, asked, shared.closed.subscribe()));
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
    /// The number that names the store in its payload objects; drawn now if it has none.
    store: u64,
    unclean: bool,
    heartbeat: Option<WriterHeartbeat>,
    low_scheduled: u64,
    queues: Queues,
    any_scheduled: bool,
    /// Which queues have jobs whose time runs, and from when at the earliest.
    kept: Vec<(QueueName, Kind, u64)>,
    claimed: Vec<Job>,
    /// Claim rows whose job is gone.
    stray_claims: Vec<u32>,
    /// Claimed jobs that cannot be decoded, with their claims' slots.
    bad_claims: Vec<(Option<u32>, Bad)>,
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
    format::is_in_use(&at, path).await?;
    let mark = match at.get(keys::MARK).await? {
        Some(value) => Mark::decode(value).map_err(|e| find::undecodable(keys::MARK, e))?,
        None => Mark::default(),
    };
    let low_scheduled = match at.get(keys::LOW_SCHEDULED).await? {
        Some(value) => low_or_all(keys::LOW_SCHEDULED, &value),
        None => 0,
    };
    let store = match at.get(keys::STORE).await? {
        Some(value) => record::decode_low(&value).map_err(|e| find::undecodable(keys::STORE, e))?,
        None => env::store_number(),
    };
    let mut found = Found {
        mark,
        store,
        unclean: at.get(keys::UNCLEAN).await?.is_some(),
        heartbeat: beat::last(&at).await?,
        low_scheduled,
        queues: Queues::default(),
        any_scheduled: false,
        kept: Vec::new(),
        claimed: Vec::new(),
        stray_claims: Vec::new(),
        bad_claims: Vec::new(),
    };
    read_queues(&at, &mut found).await?;
    read_kept(&at, &mut found).await?;
    read_claims(&at, &mut found).await?;
    Ok(found)
}

/// A low-water mark; when it cannot be decoded, one below everything, which costs a longer scan and no job.
fn low_or_all(key: &[u8], value: &[u8]) -> u64 {
    record::decode_low(value).unwrap_or_else(|e| {
        tracing::error!(error = %find::undecodable(key, e), "everything is looked through");
        0
    })
}

/// Counters of every queue, the low-water marks of its priorities, and whether it is paused.
async fn read_queues(at: &Snapshot, found: &mut Found) -> Result<()> {
    let mut lows: HashMap<String, Vec<(u32, u64)>> = HashMap::new();
    let mut scan = at.scan_prefix(&[keys::LOW]).await?;
    while let Some(row) = scan.next().await? {
        let queue = keys::queue_of(&row.key).unwrap_or_default();
        let low = low_or_all(&row.key, &row.value);
        if let Some(priority) = keys::low_priority(queue, &row.key) {
            lows.entry(queue.to_owned()).or_default().push((priority, low));
        }
    }
    let mut scan = at.scan_prefix(&[keys::COUNTERS]).await?;
    while let Some(row) = scan.next().await? {
        let queue = keys::queue_of(&row.key).unwrap_or_default().to_owned();
        let counters = match Counters::decode(row.value) {
            Ok(counters) => counters,
            Err(e) => {
                tracing::error!(error = %find::undecodable(&row.key, e), "counted anew");
                find::recount(at, &queue).await?
            }
        };
        found.any_scheduled |= counters.scheduled > 0;
        let lows = lows.remove(&queue).unwrap_or_default();
        found.queues.restore(QueueName::new(queue)?, counters, lows);
    }
    let mut scan = at.scan_prefix(&[keys::PAUSED]).await?;
    while let Some(row) = scan.next().await? {
        let queue = keys::queue_of(&row.key).unwrap_or_default().to_owned();
        found.queues.set_paused(&QueueName::new(queue)?, true);
    }
    Ok(())
}

/// From when on queues have jobs whose time runs.
async fn read_kept(at: &Snapshot, found: &mut Found) -> Result<()> {
    let mut scan = at.scan_prefix(&[keys::KEPT_LOW]).await?;
    while let Some(row) = scan.next().await? {
        let queue = keys::queue_of(&row.key).unwrap_or_default();
        let low = low_or_all(&row.key, &row.value);
        if let Some(kind) = keys::kept_low_kind(queue, &row.key) {
            found.kept.push((QueueName::new(queue)?, kind, low));
        }
    }
    Ok(())
}

/// The jobs that the last owner held. One that cannot be decoded is put aside; the others recover.
async fn read_claims(at: &Snapshot, found: &mut Found) -> Result<()> {
    for claim in find::claims(at).await? {
        match find::record_at(at, &claim.main).await {
            Ok(Some(mut job)) => {
                job.state = State::Claimed(claim.hold);
                found.claimed.push(job);
            }
            Ok(None) => found.stray_claims.extend(claim.hold.slot),
            Err(Error::Deserialization(_)) => {
                if let Some(value) = at.get(&claim.main).await?
                    && let Err(reason) = record::decode_job(value.clone())
                {
                    let bad = Bad { key: claim.main, value, reason };
                    found.bad_claims.push((claim.hold.slot, bad));
                }
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
            entries_kept_ms: None,
            held_back: Default::default(),
            reported: Default::default(),
            deferred_max: options.deferred_flush_max,
            idle: HashMap::new(),
            awaiting: HashMap::new(),
            watchers: HashMap::new(),
            deaths: HashMap::new(),
            aside: Default::default(),
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
            heartbeat: Heartbeat::new(takeover::heartbeat(options), found.heartbeat),
            closing: None,
            ticks: Vec::new(),
            knobs: options.knobs,
        }
    }

    /// The first round: stamp a new store, note that it is in use, requeue what was held. Durable on return, so this
    /// opening's number is taken before anything happens under it.
    async fn recover(
        &mut self,
        claimed: Vec<Job>,
        stray_claims: Vec<u32>,
        bad_claims: Vec<(Option<u32>, Bad)>,
    ) -> Result<()> {
        let mut round = self.open_round();
        let stamp = round.stamp;
        round.batch.put(keys::FORMAT.into(), format::FORMAT.into());
        round.batch.put(keys::UNCLEAN.into(), bytes::Bytes::new());
        self.first_beat(&mut round);
        round.batch.put(keys::STORE.into(), record::encode_low(self.shared.offload.store));
        for slot in stray_claims {
            round.batch.delete(&keys::claim(slot));
        }
        for (slot, bad) in bad_claims {
            if let Some(slot) = slot {
                round.batch.delete(&keys::claim(slot));
            }
            self.put_one_aside(&bad, true, &mut round);
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
