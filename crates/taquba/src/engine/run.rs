//! The loop itself: gather, decide, write, go on. It waits for nothing but work and the store's memory.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;

use super::flush::Demand;
use super::found::{self, Read};
use super::request::{Answer, Request, answer};
use super::round::{Round, Scan};
use super::{Engine, InFlight, ROUND_REQUESTS};
use crate::env;
use crate::error::CloseReason;
use crate::lifecycle::Stamp;
use crate::name::QueueName;
use crate::state::reserve::Ticket;
use crate::store::db::{L0_MANY, Progress, fatal};
use crate::store::{keys, record};

/// How long the loop sleeps at most, as a safety net under its exact timers.
pub(crate) struct Nets {
    pub(crate) tick: Duration,
}

/// Why the loop ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The store ended, or failed for good.
    Lost(CloseReason),
    /// The handle was dropped.
    Abandoned,
    /// Everything accepted is durable and answered.
    Drained,
}

impl Engine {
    /// Runs until the store ends or the handle does.
    pub(crate) async fn run(mut self, nets: Nets) {
        let mut advanced = self.shared.clock.on_advance();
        let mut progress = self.store.progress();
        let mut open = self.open_round();
        let mut writing = None;
        let end = loop {
            let turn =
                self.turn(&nets, &mut progress, &mut advanced, &mut open, &mut writing).await;
            if let Err(end) = turn {
                break end;
            }
        };
        // What the open round and the write in flight hold is dropped: their callers hear the reason set below.
        match end {
            End::Lost(reason) => self.fail(reason),
            End::Abandoned => self.fail(CloseReason::Closed),
            End::Drained => self.finish().await,
        }
    }

    /// The store is lost. The reason is known before anything that waits is dropped.
    fn lost(&self, reason: CloseReason) -> End {
        self.shared.closed.send_replace(Some(reason.clone()));
        End::Lost(reason)
    }

    pub(crate) fn open_round(&self) -> Round {
        Round::new(self.round + 1, self.stamp(), self.shared.mono_ms())
    }

    fn stamp(&self) -> Stamp {
        Stamp { now_ms: self.shared.clock.now_ms(), epoch: self.mark.epoch }
    }

    /// Waits for work and does it. One write is in flight at most; what is decided meanwhile gathers in the open
    /// round, so the busier it is, the more share a batch.
    async fn turn(
        &mut self,
        nets: &Nets,
        progress: &mut Progress,
        advanced: &mut Option<watch::Receiver<u64>>,
        open: &mut Round,
        writing: &mut Option<Writing>,
    ) -> Result<(), End> {
        let mut requests = Vec::new();
        let due = Duration::from_millis(self.next_due_ms().unwrap_or(u64::MAX)).min(nets.tick);
        tokio::select! {
            biased;
            written = landing(writing), if writing.is_some() => self.written_back(written, writing)?,
            received = self.inbox.recv_many(&mut requests, ROUND_REQUESTS) => {
                if received == 0 {
                    return Err(End::Abandoned);
                }
            }
            changed = progress.changed() => changed.map_err(|reason| self.lost(reason))?,
            () = advance(advanced) => {}
            () = env::sleep(due) => {}
        }
        if let Some(reason) = progress.ended() {
            return Err(self.lost(reason));
        }
        let durable = progress.take_durable_seq();
        self.admit_while_there_is_room(progress);
        self.work(requests, durable, open)?;
        if writing.is_none() {
            // Everyone who can run now gets to send first: the busier it is, the more share the batch.
            if !open.batch.is_empty() {
                tokio::task::yield_now().await;
                self.gather(open)?;
            }
            *writing = self.seal(open);
        }
        self.tell_flusher();
        let idle = writing.is_none() && open.is_empty();
        if self.closing.is_some() && idle && self.is_drained() { Err(End::Drained) } else { Ok(()) }
    }

    /// Takes what has come, without waiting, into the open round.
    fn gather(&mut self, open: &mut Round) -> Result<(), End> {
        let mut requests = Vec::new();
        while requests.len() < ROUND_REQUESTS
            && let Ok(request) = self.inbox.try_recv()
        {
            requests.push(request);
        }
        if requests.is_empty() {
            return Ok(());
        }
        self.work(requests, self.durable_seq, open)
    }

    /// Decides what came, into the open round.
    fn work(&mut self, requests: Vec<Request>, durable: u64, round: &mut Round) -> Result<(), End> {
        round.stamp = self.stamp();
        round.mono_ms = self.shared.mono_ms();
        self.landed(durable, round);
        for request in requests {
            self.take(request, round)?;
        }
        self.store_held_claims(round);
        self.store_progress(round);
        self.expire_leases(round);
        self.promote_due(round);
        self.beat(round);
        self.sweep_kept(round);
        self.answer_ticks(round);
        // Serving may look at the queue again (a job whose payload is gone); each time there is one such job fewer.
        while let Some(queue) = round.look.pop_first() {
            self.serve(&queue, round);
            self.refill(&queue, round);
        }
        Ok(())
    }

    /// Does what one request asks.
    fn take(&mut self, request: Request, round: &mut Round) -> Result<(), End> {
        match request {
            Request::Command(command) => self.accept(*command, round),
            Request::Claim(request) if self.closing.is_none() => self.want(request, round),
            Request::Claim(_) => {}
            Request::Release(claims) => self.take_back(claims, round),
            Request::Progress(claim) => self.progress(claim),
            Request::LookAtLease(claim) => self.look_at_lease(claim),
            Request::ForgetClaims(queue) => self.forget_claims(&queue),
            Request::ForgetWatch(id, watcher) => {
                if let Some(watchers) = self.watchers.get_mut(&id) {
                    watchers.retain(|(number, _)| *number != watcher);
                    if watchers.is_empty() {
                        self.watchers.remove(&id);
                    }
                }
            }
            Request::Loaded(ticket, found) => self.loaded(ticket, *found, round),
            Request::ReadyPage(queue, priority, page) => {
                self.ready_page(queue, priority, page, round);
            }
            Request::ScheduledPage(page) => self.scheduled_page(page, round),
            Request::KeptPage(shelf, until, page) => self.kept_page(shelf, until, page, round),
            Request::Stats(queue, reply) => {
                let counters = self.queues.counters(&queue);
                // A caller that went away does not need its answer.
                drop(reply.send(Ok(counters)));
            }
            Request::AwaitJobs(queue, waiter) => {
                self.awaiting.entry(queue.clone()).or_default().push(waiter);
                round.look.insert(queue);
            }
            Request::Deaths(queue, listener) => {
                self.deaths.entry(queue).or_default().push(listener);
            }
            Request::KeepEntries(keep_ms) => self.keep_entries(keep_ms),
            Request::Barrier(reply) => round.durable.push(answer(reply, Ok(()))),
            Request::Sample => self.sample(round.stamp.now_ms),
            Request::Tick(reply) => self.ticks.push(reply),
            Request::Close(reply) => self.begin_close(reply, round),
            Request::Lost(reason) => return Err(self.lost(reason)),
            Request::Abandon => return Err(End::Abandoned),
        }
        Ok(())
    }

    /// Answers what has become durable, and lets workers look at queues whose new jobs are ready with it.
    fn landed(&mut self, durable: u64, round: &mut Round) {
        self.durable_seq = durable;
        while let Some(flight) = self.in_flight.front() {
            if flight.seq.is_none_or(|seq| seq > durable) {
                break;
            }
            if let Some(flight) = self.in_flight.pop_front() {
                self.durable_round = flight.round;
                round.look.extend(flight.fed);
            }
        }
        while self.gated.front().is_some_and(|(no, _)| *no <= self.durable_round) {
            for answer in self.gated.pop_front().map(|(_, answers)| answers).unwrap_or_default() {
                answer(None);
            }
        }
    }

    /// Closes the open round and begins to write it. A round without changes has nothing to write: with no write in
    /// flight, what waited for the store's memory need not wait.
    pub(crate) fn seal(&mut self, open: &mut Round) -> Option<Writing> {
        if open.batch.is_empty() {
            let answers = std::mem::take(&mut open.durable);
            self.gate(self.round, answers);
            self.in_memory(
                std::mem::take(&mut open.written),
                std::mem::take(&mut open.loads),
                std::mem::take(&mut open.scans),
            );
            return None;
        }
        self.add_own_rows(open);
        self.round = open.no;
        let next = self.open_round();
        let Round { no, batch, durable, written, loads, scans, fed, .. } =
            std::mem::replace(open, next);
        let (bytes, memory) = (batch.size, batch.memory());
        self.in_flight.push_back(InFlight {
            round: no,
            seq: None,
            written_at: env::now(),
            bytes,
            fed,
        });
        self.gate(no, durable);
        let store = self.store.clone();
        Some(Writing {
            write: Box::pin(async move { store.write(batch).await }),
            memory,
            written,
            loads,
            scans,
        })
    }

    /// The write in flight is in the store's memory.
    pub(crate) fn written_back(
        &mut self,
        written: crate::error::Result<u64>,
        writing: &mut Option<Writing>,
    ) -> Result<(), End> {
        let seq = match written {
            Ok(seq) => seq,
            Err(error) => {
                let lost = fatal(&error);
                return Err(End::Lost(
                    lost.unwrap_or_else(|| CloseReason::Failed(error.to_string())),
                ));
            }
        };
        self.written = seq;
        if let Some(flight) = self.in_flight.back_mut() {
            flight.seq = Some(seq);
        }
        if let Some(done) = writing.take() {
            self.unstored.rounds.push_back((seq, done.memory));
            self.unstored.bytes += done.memory;
            self.in_memory(done.written, done.loads, done.scans);
        }
        Ok(())
    }

    /// New work waits outside while memory holds much that is in no table yet: were SlateDB to stop taking writes,
    /// settlements and timers would stand still too. What is admitted already and what they add fits in the rest. It
    /// also waits while compaction is far behind, which would make every read slower and slower.
    fn admit_while_there_is_room(&mut self, progress: &Progress) {
        let stored_seq = progress.stored_seq();
        while let Some((seq, bytes)) = self.unstored.rounds.front()
            && *seq <= stored_seq
        {
            self.unstored.bytes -= bytes;
            self.unstored.rounds.pop_front();
        }
        let full = self.unstored.bytes > self.store.unflushed_max / 8 * 5
            || progress.l0_tables() >= L0_MANY;
        self.shared.full.send_if_modified(|was| std::mem::replace(was, full) != full);
    }

    /// Gives the answers that waited for the store's memory, and begins the reads that must see it.
    fn in_memory(&self, answers: Vec<Answer>, loads: Vec<(Ticket, Vec<Read>)>, scans: Vec<Scan>) {
        for scan in scans {
            tokio::spawn(scan);
        }
        for answer in answers {
            answer(None);
        }
        for (ticket, reads) in loads {
            let (store, mailbox) = (self.store.clone(), self.shared.mailbox.clone());
            tokio::spawn(async move {
                let found = found::load(&store, &reads).await;
                // If the engine is gone, nobody needs the facts.
                drop(mailbox.send(Request::Loaded(ticket, Box::new(found))));
            });
        }
    }

    /// Holds answers until everything up to a round is durable: all that was written when they were decided.
    fn gate(&mut self, round: u64, answers: Vec<Answer>) {
        if answers.is_empty() {
            return;
        }
        if round <= self.durable_round || self.in_flight.is_empty() {
            for answer in answers {
                answer(None);
            }
        } else {
            self.gated.push_back((round, answers));
        }
    }

    /// Somebody waits for what is durable: callers for their answers, and idle workers for jobs that become ready.
    fn tell_flusher(&self) {
        let waited_for =
            |queue: &QueueName| self.idle.contains_key(queue) || self.awaiting.contains_key(queue);
        let feeds_idle = |flight: &&InFlight| flight.fed.iter().any(waited_for);
        let for_workers =
            self.in_flight.iter().rev().find(feeds_idle).map_or(0, |flight| flight.round);
        let for_callers = self.gated.back().map_or(0, |(round, _)| *round);
        let wanted_round = for_callers.max(for_workers);
        let wanted = self.in_flight.iter().rev().filter(|flight| flight.round <= wanted_round);
        let demand = Demand {
            written: self.written,
            wanted: wanted.filter_map(|flight| flight.seq).next().unwrap_or(0),
            oldest: self.in_flight.front().map(|flight| flight.written_at),
            bytes: self.in_flight.iter().map(|flight| flight.bytes).sum(),
        };
        self.demand.send_if_modified(|last| {
            let news = last.written != demand.written || last.wanted != demand.wanted;
            *last = demand;
            news
        });
    }

    /// The rows that every batch carries: counters of touched queues, low-water marks, the mark.
    fn add_own_rows(&mut self, round: &mut Round) {
        for (queue, counters) in self.queues.take_counted() {
            round.batch.put(keys::counters(&queue), counters.encode());
        }
        for row in self.queues.take_lows(self.mark.order + 1) {
            let key = keys::low(&row.queue, row.priority);
            match row.low {
                Some(low) => round.batch.put(key, record::encode_low(low)),
                None => round.batch.delete(&key),
            }
        }
        self.mark_scheduled(round);
        for ((queue, kind), low) in self.retention.take_moved() {
            let key = keys::kept_low(&queue, kind);
            match low {
                Some(low) => round.batch.put(key, record::encode_low(low)),
                None => round.batch.delete(&key),
            }
        }
        self.mark.time_ms = self.mark.time_ms.max(self.store.clock.now_ms());
        self.mark.id = self.shared.ids.last();
        round.batch.put(keys::MARK.into(), self.mark.encode());
    }

    /// Whether nothing is left to decide, to become durable or to answer; the open round apart.
    fn is_drained(&self) -> bool {
        self.parked.is_empty() && self.in_flight.is_empty() && self.gated.is_empty()
    }
}

/// A batch on its way into the store's memory, with what waits for that.
pub(crate) struct Writing {
    pub(crate) write: Pin<Box<dyn Future<Output = crate::error::Result<u64>> + Send>>,
    /// What it takes in a memtable.
    memory: usize,
    written: Vec<Answer>,
    loads: Vec<(Ticket, Vec<Read>)>,
    scans: Vec<Scan>,
}

async fn landing(writing: &mut Option<Writing>) -> crate::error::Result<u64> {
    match writing {
        Some(writing) => writing.write.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Returns when a clock that is moved by hand was moved.
async fn advance(advanced: &mut Option<watch::Receiver<u64>>) {
    match advanced {
        Some(watch) => {
            if watch.changed().await.is_err() {
                *advanced = None;
            }
        }
        None => std::future::pending().await,
    }
}
