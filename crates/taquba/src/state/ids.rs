//! Ids that never go back: ULIDs whose time is the queue's clock, counted on where the clock stands still or steps
//! back, and floored at what the store says was issued before.

use std::sync::{Mutex, PoisonError};

use ulid::Ulid;

/// See the module. Shared between the engine and callers who ask for an id; the lock spans a few instructions.
#[derive(Debug)]
pub(crate) struct Ids {
    last: Mutex<u128>,
    entropy: fn() -> u128,
}

const RANDOM_BITS: u32 = 80;

impl Ids {
    /// Continues after `last`. `entropy` gives 80 random bits.
    pub(crate) fn after(last: u128, entropy: fn() -> u128) -> Self {
        Self { last: Mutex::new(last), entropy }
    }

    /// The next id, as its number.
    pub(crate) fn next(&self, now_ms: u64) -> u128 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let time = u128::from(now_ms) << RANDOM_BITS;
        let id = if time >> RANDOM_BITS > *last >> RANDOM_BITS {
            // The top random bit stays clear, so that counting on within a millisecond has room.
            time | ((self.entropy)() & ((1 << (RANDOM_BITS - 1)) - 1))
        } else {
            last.saturating_add(1)
        };
        *last = id;
        id
    }

    /// The highest id issued so far.
    pub(crate) fn last(&self) -> u128 {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An id as text.
pub(crate) fn text(id: u128) -> String {
    Ulid::from(id).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_while_the_clock_repeats_and_steps_back() {
        let ids = Ids::after(0, || 7);
        let made: Vec<String> =
            [5, 5, 6, 1, 0, 7].into_iter().map(|now| text(ids.next(now))).collect();
        let mut sorted = made.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(made, sorted);
    }
}
