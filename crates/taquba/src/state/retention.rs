//! Which kept jobs are the oldest of their queue, and which waiting ones expire next, so that the loop knows without a
//! read when some are over. Of each queue and kind it holds one time that none lies before; the rows stay in the store.

use std::collections::{BTreeMap, BTreeSet};

use crate::lifecycle::term::Kind;
use crate::name::QueueName;

/// Such jobs of one kind in one queue.
pub(crate) type Shelf = (QueueName, Kind);

#[derive(Debug)]
struct Kept {
    /// No job of the shelf has an earlier time.
    low: u64,
    /// The same as the store has it; `None` when it has no row yet.
    stored: Option<u64>,
    /// How long they are kept from there; `None`: until further notice.
    keep_ms: Option<u64>,
    /// While a look is on its way, the earliest time that came in since it began.
    scan: Option<u64>,
}

impl Kept {
    fn due(&self) -> Option<u64> {
        if self.scan.is_some() { None } else { Some(self.low.saturating_add(self.keep_ms?)) }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    shelves: BTreeMap<Shelf, Kept>,
    by_due: BTreeSet<(u64, Shelf)>,
    /// Shelves whose rows are to be written with this round.
    moved: BTreeSet<Shelf>,
    scans: usize,
}

impl Retention {
    /// Takes in what the store says at open.
    pub(crate) fn restore(&mut self, shelf: Shelf, low: u64, keep_ms: Option<u64>) {
        self.put(shelf, Kept { low, stored: Some(low), keep_ms, scan: None });
    }

    fn put(&mut self, shelf: Shelf, kept: Kept) {
        self.by_due.extend(kept.due().map(|due| (due, shelf.clone())));
        self.shelves.insert(shelf, kept);
    }

    fn take(&mut self, shelf: &Shelf) -> Option<Kept> {
        let kept = self.shelves.remove(shelf)?;
        if let Some(due) = kept.due() {
            self.by_due.remove(&(due, shelf.clone()));
        }
        Some(kept)
    }

    /// How long what lies on all shelves of a kind is kept, from now on.
    pub(crate) fn keep(&mut self, kind: Kind, keep_ms: u64) {
        let shelves: Vec<Shelf> = self.shelves.keys().filter(|s| s.1 == kind).cloned().collect();
        for shelf in shelves {
            if let Some(kept) = self.take(&shelf) {
                self.put(shelf, Kept { keep_ms: Some(keep_ms), ..kept });
            }
        }
    }

    /// A job came to a shelf.
    pub(crate) fn insert(&mut self, shelf: Shelf, at: u64, keep_ms: impl Fn() -> Option<u64>) {
        match self.shelves.get_mut(&shelf) {
            Some(kept) if kept.scan.is_some() => kept.scan = kept.scan.map(|since| since.min(at)),
            Some(kept) if kept.low <= at => return,
            _ => {}
        }
        let before = self.take(&shelf);
        let kept = match before {
            Some(kept) => Kept { low: kept.low.min(at), ..kept },
            None => Kept { low: at, stored: None, keep_ms: keep_ms(), scan: None },
        };
        self.moved.insert(shelf.clone());
        self.put(shelf, kept);
    }

    /// When the next job may be due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// Whether something is due or being looked at.
    pub(crate) fn is_busy(&self, now_ms: u64) -> bool {
        self.scans > 0 || self.next_due().is_some_and(|due| due <= now_ms)
    }

    /// Begins a look at a shelf that may have due jobs: which one, from which time on, and up to which.
    pub(crate) fn begin(&mut self, now_ms: u64) -> Option<(Shelf, u64, u64)> {
        let (_, shelf) = self.by_due.first().filter(|(due, _)| *due <= now_ms)?.clone();
        let mut kept = self.take(&shelf)?;
        kept.scan = Some(u64::MAX);
        self.scans += 1;
        let (from, until) = (kept.low, now_ms.saturating_sub(kept.keep_ms.unwrap_or(u64::MAX)));
        self.put(shelf.clone(), kept);
        Some((shelf, from, until))
    }

    /// A look has ended and what was due is gone: the first job left has the time `next`; `None` when there is none.
    pub(crate) fn finish(&mut self, shelf: Shelf, next: Option<u64>) {
        self.scans = self.scans.saturating_sub(1);
        let Some(mut kept) = self.take(&shelf) else { return };
        let since = kept.scan.take().filter(|since| *since < u64::MAX);
        self.moved.insert(shelf.clone());
        if let Some(low) = next.into_iter().chain(since).min() {
            self.put(shelf, Kept { low, ..kept });
        }
    }

    /// A look failed: the shelf is as it was before.
    pub(crate) fn abort(&mut self, shelf: Shelf) {
        self.scans = self.scans.saturating_sub(1);
        if let Some(mut kept) = self.take(&shelf) {
            kept.scan = None;
            self.put(shelf, kept);
        }
    }

    /// The rows to write with this round: `None` deletes one. A row is lowered in the very round that keeps a job below
    /// it, so no crash can leave a kept job that is never looked for.
    pub(crate) fn take_moved(&mut self) -> Vec<(Shelf, Option<u64>)> {
        let moved = std::mem::take(&mut self.moved);
        let rows = moved.into_iter().filter_map(|shelf| match self.shelves.get_mut(&shelf) {
            Some(kept) if kept.stored == Some(kept.low) => None,
            Some(kept) => {
                kept.stored = Some(kept.low);
                Some((shelf, Some(kept.low)))
            }
            None => Some((shelf, None)),
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(kind: Kind) -> Shelf {
        (QueueName::new("q").unwrap(), kind)
    }

    #[test]
    fn a_shelf_is_due_when_its_oldest_job_has_been_kept_long_enough() {
        let mut all = Retention::default();
        all.insert(shelf(Kind::Dead), 100, || Some(50));
        all.insert(shelf(Kind::Dead), 120, || Some(50));
        all.insert(shelf(Kind::Done), 10, || None);
        assert_eq!(all.take_moved().len(), 2);
        assert_eq!((all.next_due(), all.is_busy(149), all.is_busy(150)), (Some(150), false, true));
        assert_eq!(all.begin(149), None);
        assert_eq!(all.begin(150), Some((shelf(Kind::Dead), 100, 100)));
        assert_eq!((all.next_due(), all.is_busy(0)), (None, true), "one look at a time");
        all.finish(shelf(Kind::Dead), Some(120));
        assert_eq!(all.take_moved(), [(shelf(Kind::Dead), Some(120))]);
        assert_eq!(all.next_due(), Some(170));
    }

    #[test]
    fn what_is_not_due_until_further_notice_is_once_it_comes() {
        let mut all = Retention::default();
        all.restore(shelf(Kind::Entry), 100, None);
        all.insert(shelf(Kind::Dead), 100, || None);
        assert_eq!(all.begin(u64::MAX), None);
        all.keep(Kind::Entry, 50);
        assert_eq!(all.next_due(), Some(150));
        assert_eq!(all.begin(150), Some((shelf(Kind::Entry), 100, 100)));
    }

    #[test]
    fn a_job_that_comes_in_during_a_look_is_not_forgotten_by_it() {
        let mut all = Retention::default();
        all.insert(shelf(Kind::Dead), 100, || Some(50));
        all.begin(200).unwrap();
        all.insert(shelf(Kind::Dead), 90, || Some(50));
        assert_eq!(all.take_moved(), [(shelf(Kind::Dead), Some(90))], "lowered in this round");
        all.finish(shelf(Kind::Dead), None);
        assert_eq!(all.next_due(), Some(140));
        all.begin(200).unwrap();
        all.finish(shelf(Kind::Dead), None);
        assert_eq!((all.next_due(), all.take_moved()), (None, vec![(shelf(Kind::Dead), None)]));
        all.insert(shelf(Kind::Dead), 300, || Some(50));
        assert_eq!(all.take_moved(), [(shelf(Kind::Dead), Some(300))]);
    }
}
