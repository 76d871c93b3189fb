//! Entries of one queue that go to the engine in one command: as many as follow each other and name nothing in common.

use std::collections::HashSet;
use std::sync::Arc;

use crate::engine::inbox::{Arrival, Wish};
use crate::engine::prepare::size_of;
use crate::object_store::path::Path;

/// Entries of one command, so that ten thousand are a few.
const ENTRIES: usize = 1_000;
/// Bytes of one command (4 MiB), but for a single larger entry.
const BYTES: usize = 4 * 1_024 * 1_024;
/// What an entry takes in the mailbox beside its bytes.
const OVERHEAD: usize = 256;

/// Something that two entries may not both name in one command.
#[derive(PartialEq, Eq, Hash)]
enum Name {
    Entry(Arc<str>),
    Job(Arc<str>),
    Dedup(Arc<str>),
    Signal(Arc<str>),
}

/// See the module.
#[derive(Default)]
pub(super) struct Group {
    pub(super) arrivals: Vec<Arrival>,
    /// The objects that the entries are in.
    pub(super) objects: Vec<Path>,
    pub(super) bytes: usize,
    names: HashSet<Name>,
}

impl Group {
    /// Whether an entry may join.
    pub(super) fn takes(&self, arrival: &Arrival) -> bool {
        self.arrivals.is_empty()
            || (self.arrivals.len() < ENTRIES
                && self.bytes + bytes(&arrival.wish) <= BYTES
                && names(arrival).iter().all(|name| !self.names.contains(name)))
    }

    /// Takes an entry in.
    pub(super) fn add(&mut self, arrival: Arrival, object: Path) {
        self.bytes += bytes(&arrival.wish);
        self.names.extend(names(&arrival));
        self.arrivals.push(arrival);
        self.objects.push(object);
    }
}

fn bytes(wish: &Wish) -> usize {
    OVERHEAD
        + match wish {
            Wish::Enqueue(what) => size_of(what),
            Wish::Signal { payload, .. } => payload.len(),
            Wish::Cancel(_) | Wish::Reject(_) => 0,
        }
}

fn names(arrival: &Arrival) -> Vec<Name> {
    let mut names = vec![Name::Entry(Arc::clone(&arrival.id))];
    match &arrival.wish {
        Wish::Enqueue(what) => {
            for job in &what.jobs {
                names.extend(job.id.clone().map(Name::Job));
                names.extend(job.dedup.clone().map(Name::Dedup));
                names.extend(job.signal_key.clone().map(Name::Signal));
            }
        }
        Wish::Cancel(id) => names.push(Name::Job(Arc::clone(id))),
        Wish::Signal { key, .. } => names.push(Name::Signal(Arc::clone(key))),
        Wish::Reject(_) => {}
    }
    names
}
