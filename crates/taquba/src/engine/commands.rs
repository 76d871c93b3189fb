//! How a command gets its facts: at once when it needs none, else parked with its keys reserved while a task reads.
//!
//! Order closes the races: keys are reserved before the read begins and held until the decision; the read begins after
//! the round's batch is in the store's memory; a move that touches a reserved key in between makes the read stale, and
//! a stale read is done again. So a decision never acts on what is no longer true.

use super::Engine;
use super::found::{Found, Read};
use super::request::{Command, Op};
use super::round::Round;
use crate::error::Result;
use crate::lifecycle::job::JobId;
use crate::state::leases::ClaimNo;
use crate::state::reserve::{Key, Ticket};

impl Engine {
    /// Takes a command in: decides it at once, or parks it.
    pub(crate) fn accept(&mut self, command: Command, round: &mut Round) {
        let reads = self.reads(&command.op);
        if reads.is_empty() && self.reservations.is_empty() {
            return self.decide(command, &Found::default(), round);
        }
        let mut keys: Vec<Key> = reads.iter().map(Read::key).collect();
        keys.extend(command.op.touches(|claim| self.id_of_claim(claim)));
        if reads.is_empty() && !self.reservations.contends(&keys) {
            return self.decide(command, &Found::default(), round);
        }
        self.park(command, keys, reads, round);
    }

    fn park(&mut self, command: Command, keys: Vec<Key>, reads: Vec<Read>, round: &mut Round) {
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        let first = self.reservations.enter(ticket, keys);
        self.parked.insert(ticket, command);
        if first {
            self.begin(vec![(ticket, reads)], round);
        }
    }

    /// Goes on with commands that are first in all their lines: those that read begin to, the others are decided, and
    /// whoever waited for them goes on in turn.
    fn begin(&mut self, mut ready: Vec<(Ticket, Vec<Read>)>, round: &mut Round) {
        while let Some((ticket, reads)) = ready.pop() {
            if reads.is_empty() {
                ready.extend(self.decide_parked(ticket, &Found::default(), round));
            } else {
                // Whatever touched the keys while it stood in line came before this read.
                self.reservations.take_stale(ticket);
                round.loads.push((ticket, reads));
            }
        }
    }

    /// Decides a parked command; answers who can go on now.
    fn decide_parked(
        &mut self,
        ticket: Ticket,
        found: &Found,
        round: &mut Round,
    ) -> Vec<(Ticket, Vec<Read>)> {
        if let Some(command) = self.parked.remove(&ticket) {
            self.decide(command, found, round);
        }
        self.leave_line(ticket)
    }

    fn leave_line(&mut self, ticket: Ticket) -> Vec<(Ticket, Vec<Read>)> {
        let next = self.reservations.leave(ticket);
        next.into_iter()
            .map(|ticket| {
                let reads = self.parked.get(&ticket).map(|command| self.reads(&command.op));
                (ticket, reads.unwrap_or_default())
            })
            .collect()
    }

    /// A parked command's facts have come.
    pub(crate) fn loaded(&mut self, ticket: Ticket, found: Result<Found>, round: &mut Round) {
        let next = match found {
            Err(error) => {
                if let Some(command) = self.parked.remove(&ticket) {
                    self.refuse(command, error, round);
                }
                self.leave_line(ticket)
            }
            Ok(_) if self.reservations.take_stale(ticket) => {
                let reads = self.parked.get(&ticket).map(|command| self.reads(&command.op));
                round.loads.extend(reads.map(|reads| (ticket, reads)));
                return;
            }
            Ok(found) if !self.reservations.holds(ticket, &found.also) => {
                self.line_up_again(ticket, found, round)
            }
            Ok(found) => self.decide_parked(ticket, &found, round),
        };
        self.begin(next, round);
    }

    /// The facts depend on keys that are not held: let go, line up again for all of them, read again. Nothing is
    /// waited for while something is held, so nobody deadlocks.
    fn line_up_again(
        &mut self,
        ticket: Ticket,
        found: Found,
        round: &mut Round,
    ) -> Vec<(Ticket, Vec<Read>)> {
        let command = self.parked.remove(&ticket);
        let next = self.leave_line(ticket);
        if let Some(command) = command {
            let reads = self.reads(&command.op);
            let mut keys: Vec<Key> = reads.iter().map(Read::key).collect();
            keys.extend(command.op.touches(|claim| self.id_of_claim(claim)));
            keys.extend(found.also);
            self.park(command, keys, reads, round);
        }
        next
    }

    fn reads(&self, op: &Op) -> Vec<Read> {
        op.reads(|claim| {
            let job = self.claims.get(claim)?;
            Some(Read::Dedup(job.queue().clone(), job.dedup.clone()?))
        })
    }

    fn id_of_claim(&self, claim: ClaimNo) -> Option<JobId> {
        self.claims.get(claim).map(|job| job.id().clone())
    }
}
