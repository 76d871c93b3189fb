//! A bounded view of the front of a long ordered row space: what is next, held in memory, refilled from the store in
//! pages. It knows positions and jobs, not keys; the caller scans.
//!
//! Invariant: `entries` holds every live row below `loaded_to`, or every live row when `loaded_to` is `None`.
//! A scan begins at `loaded_to` and takes a while; every insert and removal at or past its start is logged meanwhile,
//! and the merge is the scan's rows corrected by the log. So a row that arrives, leaves or comes back at any point of
//! a scan is seen exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::lifecycle::job::Job;

/// A position in the row space.
pub(crate) trait Position: Ord + Copy {
    /// The smallest position after this one.
    fn next(self) -> Self;
}

impl Position for u64 {
    fn next(self) -> Self {
        self.saturating_add(1)
    }
}

impl Position for (u64, u64) {
    fn next(self) -> Self {
        (self.0, self.1.saturating_add(1))
    }
}

/// A job in a window.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) job: Arc<Job>,
    /// The round whose durability makes it ready; 0 when it is durable already.
    pub(crate) ready_round: u64,
}

impl Entry {
    /// What it costs in memory, roughly: bytes of its own and the bookkeeping around them.
    fn cost(&self) -> usize {
        let body = &self.job.body;
        320 + body.headers.len() + body.payload.bytes().map_or(0, |bytes| bytes.len())
    }
}

#[derive(Debug)]
struct Scan<K> {
    from: K,
    log: BTreeMap<K, Option<Entry>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Window<K> {
    entries: BTreeMap<K, Entry>,
    loaded_to: Option<K>,
    bytes: usize,
    scan: Option<Scan<K>>,
    /// The durable round at which nothing in memory was ready; spares looking again before it moves.
    nothing_ready_at: Option<u64>,
}

impl<K: Position> Window<K> {
    /// A window onto a row space that has no rows.
    pub(crate) fn empty() -> Self {
        Self {
            entries: BTreeMap::new(),
            loaded_to: None,
            bytes: 0,
            scan: None,
            nothing_ready_at: None,
        }
    }

    /// A window onto rows that lie at `from` or later, none of them loaded yet.
    pub(crate) fn unloaded(from: K) -> Self {
        Self { loaded_to: Some(from), ..Self::empty() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether every live row is in memory.
    pub(crate) fn is_complete(&self) -> bool {
        self.loaded_to.is_none() && self.scan.is_none()
    }

    /// The position that no live row lies below; `None` when there is no live row.
    pub(crate) fn low(&self) -> Option<K> {
        let logged = self.scan.as_ref().map(|scan| scan.from);
        self.entries.keys().next().copied().or(logged).or(self.loaded_to)
    }

    /// The first job in memory, ready or not.
    pub(crate) fn first(&self) -> Option<(K, &Entry)> {
        self.entries.iter().next().map(|(key, entry)| (*key, entry))
    }

    /// A row came to be at `key`. Over `cap` bytes the far end leaves memory again.
    pub(crate) fn insert(&mut self, key: K, entry: Entry, cap: usize) {
        if let Some(scan) = &mut self.scan
            && key >= scan.from
        {
            scan.log.insert(key, Some(entry));
            return;
        }
        if self.loaded_to.is_some_and(|end| key >= end) {
            return;
        }
        self.nothing_ready_at = None;
        self.place(key, entry);
        self.trim(cap);
    }

    fn place(&mut self, key: K, entry: Entry) {
        self.bytes += entry.cost();
        if let Some(old) = self.entries.insert(key, entry) {
            self.bytes -= old.cost();
        }
    }

    /// Drops the far end until the window fits. Not during a scan: the scan's start must stay the window's end.
    fn trim(&mut self, cap: usize) {
        while self.bytes > cap && self.entries.len() > 1 && self.scan.is_none() {
            if let Some((key, entry)) = self.entries.pop_last() {
                self.bytes -= entry.cost();
                self.loaded_to = Some(key);
            }
        }
    }

    /// The row at `key` is gone or moved on.
    pub(crate) fn remove(&mut self, key: K) {
        if let Some(scan) = &mut self.scan
            && key >= scan.from
        {
            scan.log.insert(key, None);
        }
        if let Some(entry) = self.entries.remove(&key) {
            self.bytes -= entry.cost();
        }
    }

    /// The first job whose row is durable by `durable_round`. It stays in the window: its move removes it.
    pub(crate) fn first_ready(&mut self, durable_round: u64) -> Option<&Arc<Job>> {
        if self.nothing_ready_at == Some(durable_round) {
            return None;
        }
        let ready = self.entries.values().find(|entry| entry.ready_round <= durable_round);
        if ready.is_none() {
            self.nothing_ready_at = Some(durable_round);
        }
        ready.map(|entry| &entry.job)
    }

    /// Whether jobs may lie in the store that come before anything a caller could be told about the end.
    pub(crate) fn awaits_store(&self) -> bool {
        self.entries.is_empty() && !self.is_complete()
    }

    /// Begins a scan when less than half of `cap` is in memory and the store has more; answers where from.
    pub(crate) fn begin_scan(&mut self, cap: usize) -> Option<K> {
        if self.scan.is_some() || self.bytes > cap / 2 {
            return None;
        }
        let from = self.loaded_to?;
        self.scan = Some(Scan { from, log: BTreeMap::new() });
        Some(from)
    }

    /// A scan failed: its log is forgotten and the window is as before it began, so what was inserted stays found by
    /// the next scan.
    pub(crate) fn abort_scan(&mut self) {
        self.scan = None;
    }

    /// Takes a scan's page: its rows, in order, and whether it reached the end. `end` is the position after the last
    /// row looked at. `live` refuses rows that a claim holds.
    pub(crate) fn merge(
        &mut self,
        rows: Vec<(K, Entry)>,
        end: Option<K>,
        live: impl Fn(K) -> bool,
    ) {
        let Some(scan) = self.scan.take() else { return };
        self.nothing_ready_at = None;
        for (key, entry) in rows {
            if !scan.log.contains_key(&key) && live(key) {
                self.place(key, entry);
            }
        }
        self.loaded_to = end;
        for (key, logged) in scan.log {
            match logged {
                Some(entry) if end.is_none_or(|end| key < end) => self.place(key, entry),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
