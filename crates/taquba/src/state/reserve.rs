//! Who waits for which key: commands that read the store hold their keys from before the read until their decision,
//! and later commands on those keys queue behind them, in order. No key is ever waited for while another is taken
//! out of order, so there is no deadlock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A key that a command can hold, as a 64-bit fingerprint. Two keys of one fingerprint only wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    fn of(parts: impl Hash) -> Self {
        // Default keys, so that a seed replays.
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// A job, whatever rows it has.
    pub(crate) fn job(id: &str) -> Self {
        Self::of((0_u8, id))
    }

    /// A dedup key.
    pub(crate) fn dedup(queue: &str, key: &str) -> Self {
        Self::of((1_u8, queue, key))
    }

    /// A signal key: its waiter and its buffer.
    pub(crate) fn signal(queue: &str, key: &str) -> Self {
        Self::of((2_u8, queue, key))
    }

    /// A row that was put aside.
    pub(crate) fn aside(key: &[u8]) -> Self {
        Self::of((4_u8, key))
    }

    /// What is remembered of an inbox entry.
    pub(crate) fn entry(queue: &str, id: &str) -> Self {
        Self::of((6_u8, queue, id))
    }

    /// The line of a queue's inbox entries, so that they are decided in their order.
    pub(crate) fn inbox(queue: &str) -> Self {
        Self::of((5_u8, queue))
    }

    /// A caller's KV row.
    pub(crate) fn kv(key: &[u8]) -> Self {
        Self::of((3_u8, key))
    }
}

/// A command's place in all the queues it stands in.
pub(crate) type Ticket = u64;

#[derive(Debug, Default)]
struct Held {
    keys: Vec<Key>,
    /// A move touched one of its keys after it began to read.
    stale: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    lines: HashMap<Key, VecDeque<Ticket>>,
    held: BTreeMap<Ticket, Held>,
}

impl Reservations {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether any of `keys` is held or waited for.
    pub(crate) fn contends(&self, keys: &[Key]) -> bool {
        !self.held.is_empty() && keys.iter().any(|key| self.lines.contains_key(key))
    }

    /// Lines `ticket` up for `keys`; true when it is first in every line and may go on.
    pub(crate) fn enter(&mut self, ticket: Ticket, mut keys: Vec<Key>) -> bool {
        keys.sort_unstable();
        keys.dedup();
        for key in &keys {
            self.lines.entry(*key).or_default().push_back(ticket);
        }
        self.held.insert(ticket, Held { keys, stale: false });
        self.is_first(ticket)
    }

    fn is_first(&self, ticket: Ticket) -> bool {
        self.held.get(&ticket).is_some_and(|held| {
            held.keys
                .iter()
                .all(|key| self.lines.get(key).and_then(VecDeque::front) == Some(&ticket))
        })
    }

    /// A move touched `key`: whoever reads it now must read again.
    pub(crate) fn touch(&mut self, key: Key) {
        if let Some(ticket) = self.lines.get(&key).and_then(VecDeque::front)
            && let Some(held) = self.held.get_mut(ticket)
        {
            held.stale = true;
        }
    }

    /// Whether `ticket`'s facts are out of date; asking makes it clean for the next read.
    pub(crate) fn take_stale(&mut self, ticket: Ticket) -> bool {
        self.held.get_mut(&ticket).is_some_and(|held| std::mem::take(&mut held.stale))
    }

    /// Whether `ticket` holds all of `keys`.
    pub(crate) fn holds(&self, ticket: Ticket, keys: &[Key]) -> bool {
        self.held.get(&ticket).is_some_and(|held| keys.iter().all(|key| held.keys.contains(key)))
    }

    /// Lets go of everything; answers the tickets that are first in all their lines now.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Vec<Ticket> {
        let Some(held) = self.held.remove(&ticket) else {
            return Vec::new();
        };
        let mut next = Vec::new();
        for key in held.keys {
            let Some(line) = self.lines.get_mut(&key) else {
                continue;
            };
            line.retain(|waiting| *waiting != ticket);
            match line.front() {
                Some(first) => next.push(*first),
                None => drop(self.lines.remove(&key)),
            }
        }
        next.sort_unstable();
        next.dedup();
        next.retain(|ticket| self.is_first(*ticket));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_commands_wait_in_order_and_nobody_deadlocks() {
        let mut r = Reservations::default();
        let (a, b, c) = (Key::job("a"), Key::job("b"), Key::kv(b"a"));
        assert!(r.enter(1, vec![a, b]));
        assert!(!r.enter(2, vec![b, c]));
        assert!(!r.enter(3, vec![c, a]));
        assert!(r.contends(&[c]));
        r.touch(a);
        assert!(r.take_stale(1));
        assert!(!r.take_stale(1));
        assert_eq!(r.leave(1), vec![2]);
        assert_eq!(r.leave(2), vec![3]);
        assert_eq!(r.leave(3), Vec::<Ticket>::new());
        assert!(r.is_empty() && r.lines.is_empty());
    }
}
