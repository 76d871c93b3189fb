//! What callers and the loop share: the mailbox and its limits, leases, ids, clock, and the news that it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::offload::Offload;
use super::prepare::Configs;
use super::request::{Command, Op, Prepared, Reply, Request};
use crate::clock::Clock;
use crate::env;
use crate::error::{CloseReason, Error, Result};
use crate::state::ids::Ids;
use crate::state::leases::Leases;
use crate::store::db::Store;

/// The mailbox holds this much undurable work of callers at once (16 MiB in units of 1 KiB, each command at least
/// one): with its copy in the log's buffer and a memtable it stays below where SlateDB stops taking writes. What is
/// more waits its turn outside. Settlements have as much room of their own, so that neither enqueues nor a crowd of
/// calls by id that wait for a slow read can crowd them out; the latter have a quarter of it.
const ROOM_UNITS: u32 = 16 * 1_024;
const ASK_UNITS: u32 = ROOM_UNITS / 4;
const UNIT: usize = 1_024;

/// Which room a command takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// New work.
    Intake,
    /// Ends of claims.
    Settle,
    /// What operators and other code ask of jobs by id or signal key; each reads the store first.
    Ask,
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) mailbox: mpsc::UnboundedSender<Request>,
    intake: Arc<Semaphore>,
    settle: Arc<Semaphore>,
    ask: Arc<Semaphore>,
    pub(crate) leases: Leases,
    pub(crate) ids: Ids,
    pub(crate) clock: Arc<dyn Clock>,
    mono_high: AtomicU64,
    pub(crate) configs: Configs,
    pub(crate) store: Store,
    pub(crate) offload: Arc<Offload>,
    pub(crate) closed: watch::Sender<Option<CloseReason>>,
    /// How the loop ended, once it has: whether by a clean close.
    pub(crate) signed_off: watch::Sender<Option<bool>>,
    /// Whether new work waits: the store's memory is full of what is in no table yet, or has too many tables.
    pub(crate) full: watch::Sender<bool>,
    call_timeout: Duration,
    next_watcher: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        mailbox: mpsc::UnboundedSender<Request>,
        ids: Ids,
        clock: Arc<dyn Clock>,
        configs: Configs,
        store: Store,
        offload: Offload,
        call_timeout: Duration,
    ) -> Self {
        let room = |units| Arc::new(Semaphore::new(units as usize));
        Self {
            mailbox,
            intake: room(ROOM_UNITS),
            settle: room(ROOM_UNITS),
            ask: room(ASK_UNITS),
            leases: Leases::default(),
            ids,
            clock,
            mono_high: AtomicU64::new(0),
            configs,
            store,
            offload: Arc::new(offload),
            closed: watch::Sender::new(None),
            signed_off: watch::Sender::new(None),
            full: watch::Sender::new(false),
            call_timeout,
            next_watcher: AtomicU64::new(0),
        }
    }

    /// Monotonic milliseconds that leases are judged by. A clock that steps back stands still here.
    pub(crate) fn mono_ms(&self) -> u64 {
        let now = self.clock.monotonic_ms();
        self.mono_high.fetch_max(now, Ordering::SeqCst).max(now)
    }

    /// A number for one who waits for a job's end.
    pub(crate) fn watcher(&self) -> u64 {
        self.next_watcher.fetch_add(1, Ordering::Relaxed)
    }

    /// Why the handle serves no more, as an error.
    pub(crate) fn closed_error(&self) -> Error {
        Error::Closed(self.closed.borrow().clone().unwrap_or(CloseReason::Closed))
    }

    /// Refuses when the handle serves no more.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.borrow().is_some() { Err(self.closed_error()) } else { Ok(()) }
    }

    /// Waits until the loop has ended; an error unless that was a clean close.
    pub(crate) async fn closed_cleanly(&self) -> Result<()> {
        let mut signed_off = self.signed_off.subscribe();
        let clean =
            signed_off.wait_for(Option::is_some).await.is_ok_and(|clean| *clean == Some(true));
        if clean { Ok(()) } else { Err(self.closed_error()) }
    }

    /// Sends a request that needs no room.
    pub(crate) fn post(&self, request: Request) -> Result<()> {
        self.check_open()?;
        self.mailbox.send(request).map_err(|_| self.closed_error())
    }

    /// Uploads the large payloads of a command that is about to be sent.
    pub(crate) async fn upload(&self, what: &mut Prepared) -> Result<()> {
        self.check_open()?;
        self.offload.upload(what, self.clock.now_ms()).await
    }

    async fn room(&self, lane: Lane, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let (room, most) = match lane {
            Lane::Intake => (&self.intake, ROOM_UNITS),
            Lane::Settle => (&self.settle, ROOM_UNITS),
            Lane::Ask => (&self.ask, ASK_UNITS),
        };
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(most);
        let units = units.clamp(1, most);
        let must_wait = lane == Lane::Intake && *self.full.borrow();
        if !must_wait && let Ok(permit) = Arc::clone(room).try_acquire_many_owned(units) {
            return Ok(permit);
        }
        let admitted = async {
            if lane == Lane::Intake {
                let mut full = self.full.subscribe();
                full.wait_for(|full| !full).await.map_err(|_| self.closed_error())?;
            }
            let permit = Arc::clone(room).acquire_many_owned(units).await;
            permit.map_err(|_| self.closed_error())
        };
        let mut closed = self.closed.subscribe();
        tokio::select! {
            permit = admitted => permit,
            _ = closed.wait_for(Option::is_some) => Err(self.closed_error()),
        }
    }

    /// Sends a command and waits for its answer, at most the call timeout. Dropped before it is accepted, nothing
    /// happened; after that, it happens all the same.
    pub(crate) async fn call<T>(
        &self,
        lane: Lane,
        bytes: usize,
        op: impl FnOnce(Reply<T>) -> Op,
    ) -> Result<T> {
        self.in_time(async {
            let answer = self.send(lane, bytes, op).await?;
            self.answer(answer).await
        })
        .await
    }

    /// Waits for what a call does, at most the call timeout.
    pub(crate) async fn in_time<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.confirmed_within(self.call_timeout, call).await
    }

    /// What `call` answers within `limit`; past it, that it is not confirmed, and what the store last said meanwhile.
    pub(crate) async fn confirmed_within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let start = env::now();
        match env::within(limit, call).await {
            Some(result) => result,
            None => Err(Error::NotConfirmed {
                waited_ms: crate::env::millis(limit),
                cause: self.store.location.trouble.last_since(start),
            }),
        }
    }

    /// Sends a command and waits for its answer as long as it takes: for loops that wait an outage out.
    pub(crate) async fn call_patiently<T>(
        &self,
        bytes: usize,
        op: impl FnOnce(Reply<T>) -> Op,
    ) -> Result<T> {
        let answer = self.send(Lane::Settle, bytes, op).await?;
        self.answer(answer).await
    }

    /// Sends a command when there is room, and answers where its answer will come: for those whose commands must be
    /// accepted in the order that they are sent in.
    pub(crate) async fn send<T>(
        &self,
        lane: Lane,
        bytes: usize,
        op: impl FnOnce(Reply<T>) -> Op,
    ) -> Result<oneshot::Receiver<Result<T>>> {
        let (reply, answer) = oneshot::channel();
        self.check_open()?;
        let room = self.room(lane, bytes).await?;
        self.post(Request::Command(Box::new(Command { op: op(reply), room: Some(room) })))?;
        Ok(answer)
    }

    /// Waits for an answer. The loop drops its replies when it ends.
    pub(crate) async fn answer<T>(&self, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        answer.await.unwrap_or_else(|_| Err(self.closed_error()))
    }
}
