//! The loop itself: gather, decide, write, go on. It waits for nothing but work and the store's memory.

use std::time::Duration;

use tokio::sync::watch;

use super::flush::Demand;
use super::found;
use super::request::{Request, answer};
use super::round::Round;
use super::{Engine, InFlight, ROUND_REQUESTS};
use crate::env;
use crate::error::CloseReason;
use crate::lifecycle::Stamp;
use crate::store::db::{Progress, fatal};
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
        let end = loop {
            if let Err(end) = self.turn(&nets, &mut progress, &mut advanced).await {
                break end;
            }
        };
        match end {
            End::Lost(reason) => self.fail(reason),
            End::Abandoned => self.fail(CloseReason::Closed),
            End::Drained => self.finish().await,
        }
    }

    /// Waits for work and does one round of it.
    async fn turn(
        &mut self,
        nets: &Nets,
        progress: &mut Progress,
        advanced: &mut Option<watch::Receiver<u64>>,
    ) -> Result<(), End> {
        let mut requests = Vec::new();
        let due = Duration::from_millis(self.next_due_ms().unwrap_or(u64::MAX)).min(nets.tick);
        tokio::select! {
            biased;
            received = self.inbox.recv_many(&mut requests, ROUND_REQUESTS) => {
                if received == 0 {
                    return Err(End::Abandoned);
                }
            }
            changed = progress.changed() => changed.map_err(End::Lost)?,
            () = advance(advanced) => {}
            () = env::sleep(due) => {}
        }
        if let Some(reason) = progress.ended() {
            return Err(End::Lost(reason));
        }
        let durable = progress.take_durable_seq();
        self.work(requests, durable).await
    }

    /// One round.
    async fn work(&mut self, requests: Vec<Request>, durable: u64) -> Result<(), End> {
        let stamp = Stamp {
            now_ms: self.shared.clock.now_ms(),
            epoch: self.mark.epoch,
        };
        let mut round = Round::new(self.round + 1, stamp, self.shared.mono_ms());
        self.landed(durable, &mut round);
        for request in requests {
            self.take(request, &mut round)?;
        }
        self.expire_leases(&mut round);
        self.promote_due(&mut round);
        // Serving may feed or look at further queues (a job whose payload is gone); they are few and strictly fewer.
        while let Some(queue) = round.look.pop_first() {
            self.serve(&queue, &mut round);
            self.refill(&queue);
        }
        self.write(round).await?;
        if self.closing.is_some() && self.is_drained() {
            Err(End::Drained)
        } else {
            Ok(())
        }
    }

    /// Does what one request asks.
    fn take(&mut self, request: Request, round: &mut Round) -> Result<(), End> {
        match request {
            Request::Command(command) => self.accept(*command, round),
            Request::Claim(request) if self.closing.is_none() => self.want(request, round),
            Request::Claim(_) => {}
            Request::Release(claims) => self.take_back(claims, round),
            Request::ForgetClaims(queue) => self.forget_claims(&queue),
            Request::ForgetWatch(id, watcher) => {
                if let Some(watchers) = self.watchers.get_mut(&id) {
                    watchers.retain(|(number, _)| *number != watcher);
                    if watchers.is_empty() {
                        self.watchers.remove(&id);
                    }
                }
            }
            Request::Loaded(ticket, found) => self.loaded(ticket, found, round),
            Request::ReadyPage(queue, priority, page) => {
                self.ready_page(queue, priority, page, round);
            }
            Request::ScheduledPage(page) => self.scheduled_page(page),
            Request::Deaths(queue, listener) => {
                self.deaths.entry(queue).or_default().push(listener);
            }
            Request::Tick(reply) => round.durable.push(answer(reply, Ok(()))),
            Request::Close(reply) => self.begin_close(reply, round),
            Request::Lost(reason) => return Err(End::Lost(reason)),
            Request::Abandon => return Err(End::Abandoned),
        }
        Ok(())
    }

    /// Answers what has become durable, and lets workers look at queues whose new jobs are ready with it.
    fn landed(&mut self, durable: u64, round: &mut Round) {
        while let Some(flight) = self.in_flight.front() {
            if flight.seq > durable {
                break;
            }
            if let Some(flight) = self.in_flight.pop_front() {
                self.durable_round = flight.round;
                round.look.extend(flight.fed);
            }
        }
        while self.gated.front().is_some_and(|(seq, _)| *seq <= durable) {
            for answer in self
                .gated
                .pop_front()
                .map(|(_, answers)| answers)
                .unwrap_or_default()
            {
                answer(None);
            }
        }
    }

    /// Writes the round's batch and sends off what waited for it.
    pub(crate) async fn write(&mut self, mut round: Round) -> Result<(), End> {
        if !round.batch.is_empty() {
            self.add_own_rows(&mut round);
            let bytes = round.batch.size;
            let written = self.store.write(std::mem::take(&mut round.batch)).await;
            match written {
                Ok(seq) => self.written = seq,
                Err(error) => {
                    let lost = fatal(&error);
                    let lost = lost.unwrap_or_else(|| CloseReason::Failed(error.to_string()));
                    for answer in round.durable.into_iter().chain(round.written) {
                        answer(Some(&lost));
                    }
                    return Err(End::Lost(lost));
                }
            }
            self.round = round.no;
            let (seq, written_at) = (self.written, env::now());
            let fed = round.fed;
            self.in_flight.push_back(InFlight {
                round: round.no,
                seq,
                written_at,
                bytes,
                fed,
            });
        }
        for answer in round.written {
            answer(None);
        }
        for (ticket, reads) in round.loads {
            let (store, mailbox) = (self.store.clone(), self.shared.mailbox.clone());
            tokio::spawn(async move {
                let found = found::load(&store, &reads).await;
                // If the engine is gone, nobody needs the facts.
                drop(mailbox.send(Request::Loaded(ticket, found)));
            });
        }
        self.gate(round.durable);
        self.tell_flusher();
        Ok(())
    }

    /// Holds answers until everything written when they were decided is durable.
    fn gate(&mut self, answers: Vec<super::request::Answer>) {
        if answers.is_empty() {
            return;
        }
        if self.in_flight.is_empty() {
            for answer in answers {
                answer(None);
            }
        } else {
            self.gated.push_back((self.written, answers));
        }
    }

    /// Somebody waits for what is durable: callers for their answers, and idle workers for jobs that become ready.
    fn tell_flusher(&self) {
        let feeds_idle =
            |flight: &&InFlight| flight.fed.iter().any(|queue| self.idle.contains_key(queue));
        let for_workers = self
            .in_flight
            .iter()
            .rev()
            .find(feeds_idle)
            .map_or(0, |flight| flight.seq);
        let for_callers = self.gated.back().map_or(0, |(seq, _)| *seq);
        let demand = Demand {
            written: self.written,
            wanted: for_callers.max(for_workers),
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
        self.mark.time_ms = self.mark.time_ms.max(self.store.clock.now_ms());
        self.mark.id = self.shared.ids.last();
        round.batch.put(keys::MARK.into(), self.mark.encode());
    }

    /// Whether nothing is left to decide, to become durable or to answer.
    fn is_drained(&self) -> bool {
        self.parked.is_empty() && self.in_flight.is_empty() && self.gated.is_empty()
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
