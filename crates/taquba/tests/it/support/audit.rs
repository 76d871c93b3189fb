//! The raw rows of a store at rest, checked against each other: every index row has its record and every record its
//! index row, no payload, claim, dedup or signal row outlives its job, counters are a recount, no low-water mark lies
//! above a live job. It reads the layout of docs/layout.md with a decoder of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::TryStreamExt;
use slatedb_common::clock::{SystemClock, SystemClockTicker};
use taquba::Clock;
use taquba::object_store::ObjectStore;
use taquba::object_store::memory::InMemory;
use taquba::object_store::path::Path;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a record says, as far as the audit needs it.
#[derive(Debug)]
struct Record {
    state: u8,
    at: u64,
    order: u64,
    priority: u32,
    id: Vec<u8>,
    queue: Vec<u8>,
    dedup: Option<Vec<u8>>,
    signal_key: Option<Vec<u8>>,
    apart: bool,
    history: u64,
    expire_at: Option<u64>,
    object: Option<Object>,
}

/// A payload object as a record names it.
#[derive(Debug)]
struct Object {
    /// Its row's key after the letter: store, epoch, upload.
    name: Vec<u8>,
    size: u64,
}

impl Object {
    /// Where it is, below the payload path.
    fn path(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        format!("{}/{}-{}", hex(&self.name[..8]), hex(&self.name[8..16]), hex(&self.name[16..]))
    }
}

struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("a record ends early");
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = usize::try_from(self.number()).unwrap();
        self.fixed(len)
    }

    fn fixed(&mut self, len: usize) -> Vec<u8> {
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        head.to_vec()
    }
}

fn record(value: &[u8]) -> Record {
    let mut d = Decoder(value);
    assert_eq!(d.byte(), 1, "version");
    let state = d.byte();
    let flags = d.number();
    let (at, _enqueued, order) = (d.number(), d.number(), d.number());
    let priority = u32::try_from(d.number()).unwrap();
    let (_attempts, _max, _epoch) = (d.number(), d.number(), d.number());
    let (id, queue) = (d.bytes(), d.bytes());
    let mut text = |flag: u64| (flags & flag != 0).then(|| d.bytes());
    let _error = text(1);
    let (dedup, signal_key) = (text(2), text(8));
    if flags & 16 != 0 {
        d.number();
    }
    if flags & 32 != 0 {
        d.bytes();
    }
    let history = if flags & 256 != 0 { d.number() } else { 0 };
    let expire_at = if flags & 512 != 0 { expire_at(&mut d) } else { None };
    if flags & 1024 != 0 {
        d.bytes();
    }
    let _headers = d.bytes();
    let object = (flags & 128 != 0).then(|| {
        let (size, _crc, store) = (d.number(), d.fixed(4), d.fixed(8));
        let epoch = d.number().to_be_bytes().to_vec();
        Object { name: [store, epoch, d.fixed(16)].concat(), size }
    });
    let apart = flags & 64 != 0;
    Record {
        state,
        at,
        order,
        priority,
        id,
        queue,
        dedup,
        signal_key,
        apart,
        history,
        expire_at,
        object,
    }
}

/// The end of a waiting job in its rules.
fn expire_at(d: &mut Decoder) -> Option<u64> {
    let flags = d.byte();
    if flags & 3 != 0 {
        let _jitter = d.byte();
        let numbers = if flags & 1 != 0 { 2 } else { d.number() };
        for _ in 0..numbers {
            d.number();
        }
    }
    if flags & 4 != 0 {
        d.number();
    }
    (flags & 8 != 0).then(|| d.number())
}

fn in_queue(space: u8, queue: &[u8], tail: &[u8]) -> Vec<u8> {
    [&[space, u8::try_from(queue.len()).unwrap()], queue, tail].concat()
}

fn placed(space: u8, record: &Record) -> Vec<u8> {
    let tail = [&record.priority.to_be_bytes()[..], &record.order.to_be_bytes()].concat();
    in_queue(space, &record.queue, &tail)
}

/// A clock that no store is ahead of.
#[derive(Debug)]
struct Tomorrow;

impl SystemClock for Tomorrow {
    fn now(&self) -> DateTime<Utc> {
        let tomorrow = taquba::SystemClock.now_ms() + 24 * 3_600 * 1_000;
        DateTime::from_timestamp_millis(i64::try_from(tomorrow).unwrap()).unwrap()
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(taquba::time::sleep(duration))
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}

/// Copies a store at rest, and reads all rows of the copy.
async fn rows(store: &InMemory, path: &str) -> Rows {
    let copy: Arc<dyn ObjectStore> = Arc::new(store.fork());
    let settings = slatedb::Settings {
        l0_max_ssts: 1_000,
        l0_max_ssts_per_key: 1_000,
        compactor_options: None,
        garbage_collector_options: None,
        ..slatedb::Settings::default()
    };
    let builder = slatedb::Db::builder(path, copy).with_settings(settings);
    let db = builder.with_system_clock(Arc::new(Tomorrow)).build().await.unwrap();
    let mut scan = db.scan(..).await.unwrap();
    let mut rows = Rows::new();
    while let Some(row) = scan.next().await.unwrap() {
        rows.insert(row.key.to_vec(), row.value.to_vec());
    }
    drop(scan);
    db.close().await.unwrap();
    rows
}

/// The payload objects of a store, with their sizes.
async fn objects(store: &InMemory, path: &str) -> BTreeMap<String, u64> {
    let folder = format!("{path}-payloads");
    let listed: Vec<_> = store.list(Some(&folder.as_str().into())).try_collect().await.unwrap();
    let below = |path: &Path| path.as_ref()[folder.len() + 1..].to_owned();
    listed.iter().map(|meta| (below(&meta.location), meta.size)).collect()
}

/// Checks all rows of a store at rest, and that every payload object that a record names is there; panics at what does
/// not fit. `closed` says whether it was closed cleanly; `None` when that cannot be known. Answers which payload objects
/// no record names: those a crash may leave behind.
pub(crate) async fn audit(store: &InMemory, path: &str, closed: Option<bool>) -> BTreeSet<String> {
    let mut objects = objects(store, path).await;
    let rows = rows(store, path).await;
    if rows.is_empty() {
        assert_ne!(closed, Some(true), "a store that was closed cleanly has rows");
        return objects.into_keys().collect();
    }
    assert_eq!(rows.get(b"Mformat".as_slice()).map(Vec::as_slice), Some(b"taquba 1".as_slice()));
    let unclean = rows.contains_key(b"Munclean".as_slice());
    assert_eq!(unclean, !closed.unwrap_or(!unclean), "the unclean mark");
    if let Some(beat) = rows.get(b"Mheartbeat".as_slice()) {
        // Only the last beat of a clean close says that nobody has the store.
        assert_eq!(beat[..2], [1, u8::from(!unclean)], "the last beat");
    }
    let space = |letter: u8| rows.iter().filter(move |(key, _)| key[0] == letter);

    let claimed: BTreeSet<Vec<u8>> = space(b'C').map(|(_, value)| claimed_main(value)).collect();
    assert_eq!(claimed.len(), space(b'C').count(), "two claims on one job");
    let (mut index, mut others) = (BTreeMap::new(), BTreeSet::new());
    let mut orders = BTreeSet::new();
    let mut counted: BTreeMap<Vec<u8>, [u64; 4]> = BTreeMap::new();
    for (key, value) in rows.iter().filter(|(key, _)| b"PSDX".contains(&key[0])) {
        let record = record(value);
        assert_eq!(*key, main_key(&record), "a record stands where its state says");
        assert!(orders.insert(record.order), "order number {} twice", record.order);
        let other = index.insert([b"I", &record.id[..]].concat(), key.clone());
        assert_eq!(other, None, "two records of one job");
        for entry in record.history.saturating_sub(100)..record.history {
            let entry = u32::try_from(entry).unwrap().to_be_bytes();
            others.insert([b"H", &record.order.to_be_bytes()[..], &entry].concat());
        }
        if record.state == 3 {
            let timed = [record.at.to_be_bytes(), record.order.to_be_bytes()].concat();
            others.insert(in_queue(b'Y', &record.queue, &timed));
        }
        if record.apart {
            others.insert(placed(b'B', &record));
        }
        if let Some(object) = &record.object {
            let size = objects.remove(&object.path());
            assert_eq!(size, Some(object.size), "the payload object {} of {key:?}", object.path());
            let row = [b"O", &object.name[..]].concat();
            assert_eq!(rows.get(&row), Some(&record.id), "the row of a payload object");
            others.insert(row);
        }
        let held = claimed.contains(key);
        if record.state <= 1 && !held {
            others.extend(record.dedup.as_ref().map(|key| in_queue(b'U', &record.queue, key)));
        }
        if record.state == 1 {
            others.extend(record.signal_key.as_ref().map(|key| in_queue(b'W', &record.queue, key)));
        }
        if let Some(expire_at) = record.expire_at.filter(|_| record.state <= 1 && !held) {
            let timed = [expire_at.to_be_bytes(), record.order.to_be_bytes()].concat();
            others.insert(in_queue(b'Z', &record.queue, &timed));
            let mark =
                rows.get(&in_queue(b'R', &record.queue, b"Z")).expect("a mark of what expires");
            assert!(u64::from_be_bytes(mark.as_slice().try_into().unwrap()) <= expire_at);
        }
        let counts = counted.entry(record.queue.clone()).or_default();
        let which = match (record.state, held) {
            (0, true) => 2,
            (0, false) => 0,
            (1, _) => 1,
            (3, _) => 3,
            _ => continue,
        };
        counts[which] += 1;
        check_low(&rows, &record, held);
    }
    let shown: BTreeMap<_, _> = space(b'I').map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(show(shown.keys()), show(index.keys()), "the index rows");
    assert_eq!(shown, index, "where the index rows point");
    let shown = rows.keys().filter(|key| b"BHOUWYZ".contains(&key[0]));
    assert_eq!(
        show(shown),
        show(others.iter()),
        "payload, object, history, dedup, wait, dead-by-time and expiring rows"
    );
    check_entries(&rows);
    for main in &claimed {
        assert!(rows.contains_key(main), "a claim on a job that is gone");
    }
    for (key, value) in space(b'N') {
        let queue = key[2..].to_vec();
        let counts = counted.remove(&queue).unwrap_or_default();
        let mut d = Decoder(&value[1..]);
        let (pending, scheduled, held) = (d.number(), d.number(), d.number());
        let (_done, dead) = (d.number(), d.number());
        let name = String::from_utf8_lossy(&queue).into_owned();
        assert_eq!([pending, scheduled, held, dead], counts, "the counters of {name}");
    }
    assert!(counted.is_empty(), "a queue without counters");
    objects.into_keys().collect()
}

fn main_key(record: &Record) -> Vec<u8> {
    let timed = [record.at.to_be_bytes(), record.order.to_be_bytes()].concat();
    match record.state {
        0 => placed(b'P', record),
        1 => [b"S", &timed[..]].concat(),
        2 => in_queue(b'D', &record.queue, &timed),
        3 => in_queue(b'X', &record.queue, &record.id),
        other => panic!("a record in state {other}"),
    }
}

/// The record key in a claim's row.
fn claimed_main(value: &[u8]) -> Vec<u8> {
    let mut d = Decoder(value);
    let (_version, flags, _claimed_at) = (d.byte(), d.byte(), d.number());
    if flags & 2 != 0 {
        let (_percent, _at, _note) = (d.byte(), d.number(), d.bytes());
    }
    d.0.to_vec()
}

/// What is remembered of an inbox entry has its row by time, no other row of that kind is there, and no mark of a queue
/// lies above one.
fn check_entries(rows: &Rows) {
    let mut by_time = BTreeSet::new();
    for (key, value) in rows.iter().filter(|(key, _)| key[0] == b'E') {
        let (queue, id) = key[2..].split_at(usize::from(key[1]));
        let mut d = Decoder(value);
        assert_eq!(d.byte(), 1, "version");
        let since = d.number().to_be_bytes();
        by_time.insert(in_queue(b'T', queue, &[&since[..], id].concat()));
        let mark = rows.get(&in_queue(b'R', queue, b"E")).expect("a mark of entries");
        assert!(mark.as_slice() <= since.as_slice(), "a mark above an entry");
    }
    let shown: BTreeSet<_> = rows.keys().filter(|key| key[0] == b'T').cloned().collect();
    assert_eq!(show(shown.iter()), show(by_time.iter()), "the rows of entries by time");
}

/// No low-water mark lies above a live job.
fn check_low(rows: &Rows, record: &Record, held: bool) {
    let mark = match record.state {
        0 if !held => in_queue(b'L', &record.queue, &record.priority.to_be_bytes()),
        1 => b"Mlow-scheduled".to_vec(),
        2 => in_queue(b'R', &record.queue, b"D"),
        3 => in_queue(b'R', &record.queue, b"X"),
        _ => return,
    };
    let position = if record.state == 0 { record.order } else { record.at };
    let low = rows.get(&mark).map(|value| u64::from_be_bytes(value.as_slice().try_into().unwrap()));
    match low {
        Some(low) => assert!(low <= position, "a mark at {low} above a job at {position}"),
        // Without a mark of their own, scheduled jobs are looked for from the start.
        None => assert_eq!(record.state, 1, "a live or kept job has no mark"),
    }
}

fn show<'a>(keys: impl Iterator<Item = &'a Vec<u8>>) -> Vec<String> {
    keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}
