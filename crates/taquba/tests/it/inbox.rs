//! The inbox: what another process leaves there is done once, in its order, and remembered; what is wrong with an entry
//! is that entry's alone; and it costs next to nothing while nothing comes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use taquba::object_store::memory::InMemory;
use taquba::object_store::path::Path;
use taquba::object_store::{ObjectStore, ObjectStoreExt};
use taquba::{
    CancelEntry, CancelOutcome, CloseReason, EnqueueEntry, EnqueueOptions, EnqueueResult,
    EntryKind, EntryRead, Error, InboxEntry, InboxOptions, InboxOutcome, InboxRecord, InboxSender,
    JobStatus, Knobs, MAX_INBOX_ENTRY_SIZE, MockClock, OpenOptions, Queue, Rejection,
    SignalDelivery, SignalEntry, default_inbox_path,
};

use crate::support::audit::audit;
use crate::support::kill::{Kill, KillStore};
use crate::support::rng::Rng;
use crate::support::shelf::{DELETE, LIST, PUT, Shelf};
use crate::support::toll::{Asked, Toll};
use crate::support::within;

const PATH: &str = "jobs";
const INBOX: &str = "jobs-inbox";
const DAY: Duration = Duration::from_secs(24 * 3_600);

fn inbox() -> InboxOptions {
    InboxOptions::new(["mail", "other"])
}

async fn open_with(store: Arc<dyn ObjectStore>, options: OpenOptions) -> Queue {
    within("open", Queue::open_with_options(store, PATH, options)).await.unwrap()
}

async fn open(store: &Arc<InMemory>) -> Queue {
    open_with(Arc::clone(store) as _, OpenOptions::default().inbox(inbox())).await
}

fn sender(store: &Arc<InMemory>) -> InboxSender {
    InboxSender::new(Arc::clone(store) as _, &default_inbox_path(PATH))
}

fn job(payload: &str) -> EnqueueEntry {
    EnqueueEntry::new(payload)
}

fn with_id(payload: &str, id: &str) -> EnqueueEntry {
    job(payload).options(EnqueueOptions::default().id_override(id))
}

fn waits(id: &str, key: &str) -> EnqueueEntry {
    let hour = std::time::UNIX_EPOCH + Duration::from_millis(u64::from(u32::MAX) * 1_000);
    let options = EnqueueOptions::default().id_override(id).signal_key(key).run_at(hour);
    job(id).options(options)
}

/// Lets virtual time pass: a paused test, whose clock runs when nothing else does.
async fn virtual_time(duration: Duration) {
    taquba::time::sleep(duration).await;
}

async fn apply(queue: &Queue) -> usize {
    within("a pass", queue.apply_inbox_now()).await.unwrap()
}

async fn outcome(queue: &Queue, name: &str, id: &str) -> InboxOutcome {
    let record: Option<InboxRecord> = queue.view().inbox_record(name, id).await.unwrap();
    record.unwrap_or_else(|| panic!("nothing is remembered of {id}")).outcome
}

async fn rejection(queue: &Queue, name: &str, id: &str) -> Rejection {
    match outcome(queue, name, id).await {
        InboxOutcome::Rejected(rejection) => rejection,
        other => panic!("{id} was not rejected: {other:?}"),
    }
}

async fn entries(store: &InMemory) -> BTreeSet<String> {
    let at = Path::from(format!("{INBOX}/v1"));
    let listed: Vec<_> = store.list(Some(&at)).try_collect().await.unwrap();
    listed.into_iter().map(|meta| meta.location.to_string()).collect()
}

async fn pending(queue: &Queue, name: &str) -> Vec<String> {
    let page = queue.view().list_jobs(name, JobStatus::Pending, None, 20_000).await.unwrap();
    page.jobs.into_iter().map(|job| String::from_utf8(job.payload).unwrap()).collect()
}

async fn stats(queue: &Queue, name: &str) -> (i64, i64) {
    let stats = queue.view().stats(name).await.unwrap();
    (stats.pending, stats.scheduled)
}

fn new(id: &str) -> InboxOutcome {
    InboxOutcome::Enqueue(EnqueueResult::New(id.into()))
}

const REMOVED: InboxOutcome = InboxOutcome::Cancel(CancelOutcome::Removed);
const DELIVERED: InboxOutcome = InboxOutcome::Signal(SignalDelivery::Delivered);
const BUFFERED: InboxOutcome = InboxOutcome::Signal(SignalDelivery::Buffered);

#[tokio::test]
async fn what_a_sender_asks_for_is_done_and_remembered_and_its_object_is_gone() {
    let store = Arc::new(InMemory::new());
    let queue = open(&store).await;
    let sender = sender(&store);
    let doomed = queue.enqueue("mail", b"doomed".to_vec()).await.unwrap();
    let options = EnqueueOptions::default().priority(7).header("a", "b").max_attempts(9);
    let id = sender.send("mail", job("hello").options(options)).await.unwrap();
    sender.send_with_id("mail", "c", CancelEntry::new(&doomed)).await.unwrap();
    sender.send_with_id("other", "s", SignalEntry::new("key", "early")).await.unwrap();
    let found = sender.pending("mail").await.unwrap();
    let kinds: Vec<_> = found.iter().map(|entry| (entry.id(), entry.kind())).collect();
    assert_eq!(kinds, [(id.as_str(), &EntryKind::Enqueue), ("c", &EntryKind::Cancel)]);
    assert!(found[0].queue() == "mail" && found[0].sent_at_ms() > 0 && found[0].size() > 0);
    let read = sender.read(&found[1]).await.unwrap();
    assert_eq!(read, EntryRead::Entry(InboxEntry::Cancel(CancelEntry::new(&doomed))));

    assert_eq!(apply(&queue).await, 3);
    assert_eq!(entries(&store).await, BTreeSet::new());
    assert_eq!(sender.read(&found[1]).await.unwrap(), EntryRead::Missing);
    let InboxOutcome::Enqueue(EnqueueResult::New(new)) = outcome(&queue, "mail", &id).await else {
        panic!("no job")
    };
    let record = queue.view().get_job(&new).await.unwrap().unwrap();
    assert_eq!((record.payload.as_slice(), record.priority), (b"hello".as_slice(), 7));
    assert_eq!((record.headers["a"].as_str(), record.max_attempts), ("b", 9));
    assert_eq!(outcome(&queue, "mail", "c").await, REMOVED);
    assert_eq!(outcome(&queue, "other", "s").await, BUFFERED);
    assert_eq!(stats(&queue, "mail").await, (1, 0));
    assert!(queue.inbox_accepts("mail") && !queue.inbox_accepts("else"));
    assert_eq!(queue.inbox_record_retention(), Some(7 * DAY));
    queue.close().await.unwrap();
    audit(&store, PATH, Some(true)).await;
}

#[tokio::test]
async fn what_waits_at_open_is_there_before_anything_is_handed_out() {
    let store = Arc::new(InMemory::new());
    let sender = sender(&store);
    sender.send("mail", with_id("old", "own")).await.unwrap();
    sender.send("mail", CancelEntry::new("own")).await.unwrap();
    sender.send("mail", job("next")).await.unwrap();
    let queue = open(&store).await;
    let claim = queue.claim_next("mail").await.unwrap().expect("a job is waiting");
    assert_eq!(claim.payload, b"next");
}

/// Each entry does what its place in line lets it: what one makes, the next can end.
#[tokio::test]
async fn entries_of_a_queue_are_applied_in_the_order_in_which_they_were_sent() {
    let store = Arc::new(InMemory::new());
    let queue = open(&store).await;
    let sender = sender(&store);
    let asked: [(&str, InboxEntry, InboxOutcome); 10] = [
        ("01", with_id("a", "j").into(), new("j")),
        ("02", CancelEntry::new("j").into(), REMOVED),
        ("03", with_id("b", "j").into(), new("j")),
        ("04", with_id("c", "j").into(), InboxOutcome::Rejected(Rejection::DuplicateJobId)),
        ("05", waits("w", "k").into(), new("w")),
        ("06", waits("v", "k").into(), InboxOutcome::Rejected(Rejection::SignalKeyTaken)),
        ("07", SignalEntry::new("k", "1").into(), DELIVERED),
        ("08", SignalEntry::new("k", "2").into(), BUFFERED),
        ("09", waits("u", "k").into(), new("u")),
        ("10", CancelEntry::new("w").into(), REMOVED),
    ];
    // Ids against the order, so that only the order of sending can be it.
    for (number, (id, entry, _)) in asked.iter().enumerate() {
        let name = format!("{:02}-{id}", 99 - number);
        sender.send_with_id("mail", &name, entry.clone()).await.unwrap();
    }
    for number in 0..300 {
        sender.send("other", job(&format!("{number:03}"))).await.unwrap();
    }
    assert_eq!(apply(&queue).await, 310);
    for (number, (id, _, expected)) in asked.iter().enumerate() {
        let name = format!("{:02}-{id}", 99 - number);
        assert_eq!(outcome(&queue, "mail", &name).await, *expected, "{id}");
    }
    assert_eq!(pending(&queue, "mail").await, ["b", "u"]);
    let numbers: Vec<_> = (0..300).map(|number| format!("{number:03}")).collect();
    assert_eq!(pending(&queue, "other").await, numbers);
}

/// More entries than one command takes, where the first command must wait for the bucket and the second need not.
#[tokio::test]
async fn a_command_that_waits_for_the_bucket_is_not_overtaken() {
    for seed in 0..5 {
        println!("seed {seed}");
        let bytes = Arc::new(InMemory::new());
        let shelf = Shelf::new(Arc::clone(&bytes) as _, Rng::new(seed), 20);
        let knobs = Knobs { memtable_bytes: Some(1_500), ..Knobs::default() };
        let own = Arc::clone(&bytes) as Arc<dyn ObjectStore>;
        let options = || {
            OpenOptions { knobs, ..OpenOptions::default() }
                .inbox(inbox().object_store(Arc::clone(&own)))
        };
        let queue = open_with(Arc::new(shelf.clone()), options()).await;
        let cold: Vec<_> = (0..100).map(|number| format!("cold-{number}")).collect();
        for id in &cold {
            queue.enqueue_with("mail", vec![0; 100], with_id("", id).options).await.unwrap();
        }
        queue.close().await.unwrap();
        let queue = open_with(Arc::new(shelf), options()).await;
        let sender = sender(&bytes);
        for id in &cold {
            sender.send("mail", CancelEntry::new(id)).await.unwrap();
        }
        let numbers: Vec<_> = (0..1_200).map(|number| format!("{number:04}")).collect();
        for number in &numbers {
            sender.send("mail", job(number)).await.unwrap();
        }
        assert_eq!(apply(&queue).await, 1_300);
        assert!(pending(&queue, "mail").await == numbers, "not in the order of sending");
    }
}

/// What one entry does to a job shows to the next ones, also by names of the job's that they do not share.
#[tokio::test]
async fn entries_of_one_command_see_what_the_ones_before_them_did() {
    let store = Arc::new(InMemory::new());
    let queue = open(&store).await;
    let sender = sender(&store);
    let dedup = |id: &str| {
        let options = EnqueueOptions::default().id_override(id).dedup_key("d");
        InboxEntry::from(job(id).options(options))
    };
    sender.send("mail", dedup("holder")).await.unwrap();
    sender.send("mail", waits("waits", "k")).await.unwrap();
    sender.send("mail", waits("waits too", "l")).await.unwrap();
    sender.send("mail", waits("waits-too", "l")).await.unwrap();
    apply(&queue).await;
    // One command: none of these names what another one does.
    let asked: [(&str, InboxEntry, InboxOutcome); 6] = [
        ("frees-d", CancelEntry::new("holder").into(), REMOVED),
        ("takes-d", dedup("next"), new("next")),
        ("wakes", SignalEntry::new("k", "1").into(), DELIVERED),
        ("ends-woken", CancelEntry::new("waits").into(), REMOVED),
        ("frees-l", CancelEntry::new("waits-too").into(), REMOVED),
        ("is-kept", SignalEntry::new("l", "1").into(), BUFFERED),
    ];
    for (id, entry, _) in &asked {
        sender.send_with_id("mail", id, entry.clone()).await.unwrap();
    }
    assert_eq!(apply(&queue).await, asked.len());
    for (id, _, expected) in &asked {
        assert_eq!(outcome(&queue, "mail", id).await, *expected, "{id}");
    }
    assert_eq!(stats(&queue, "mail").await, (1, 0));
    queue.close().await.unwrap();
    audit(&store, PATH, Some(true)).await;
}

/// Puts an object that no sender of this version writes.
async fn plant(store: &InMemory, at: &str, bytes: impl Into<Vec<u8>>) {
    store
        .put(&Path::parse(format!("{INBOX}/v1/{at}")).unwrap(), bytes.into().into())
        .await
        .unwrap();
}

#[tokio::test]
async fn each_bad_entry_is_rejected_with_its_reason_and_stops_nobody() {
    const ULID: &str = "01J00000000000000000000000";
    let store = Arc::new(InMemory::new());
    let queue = open(&store).await;
    let sender = sender(&store);
    let elsewhere = queue.enqueue("other", b"elsewhere".to_vec()).await.unwrap();
    queue.enqueue_with("mail", b"taken".to_vec(), with_id("", "taken").options).await.unwrap();
    plant(&store, &format!("mail/fly/{ULID}.kind"), "x").await;
    plant(&store, "mail/enqueue/unordered", "x").await;
    plant(&store, &format!("mail/enqueue/{ULID}.malformed"), "x").await;
    plant(&store, &format!("mail/enqueue/{ULID}.empty"), "").await;
    plant(&store, &format!("mail/cancel/{ULID}.large"), vec![0; MAX_INBOX_ENTRY_SIZE + 1]).await;
    plant(&store, &format!("mail/enqueue/{ULID}.bad=id"), "x").await;
    plant(&store, &format!("mail/enqueue/{ULID}.{}", "l".repeat(65)), "x").await;
    plant(&store, "no entry at all", "x").await;
    for (queue, id, entry) in [
        ("strange/queue", "not-accepted", job("x").into()),
        ("mail", "elsewhere", CancelEntry::new(&elsewhere).into()),
        ("mail", "bad-job-id", with_id("x", "bad id").into()),
        ("mail", "taken-id", with_id("x", "taken").into()),
        ("mail", "no-timeout", job("x").options(EnqueueOptions::default().signal_key("k")).into()),
        ("mail", "waits", waits("w", "k").into()),
        ("mail", "key-taken", waits("v", "k").into()),
        ("mail", "failed", job("x").options(EnqueueOptions::default().max_attempts(0)).into()),
        ("mail", "long-key", SignalEntry::new("k".repeat(257), "x").into()),
        ("mail", "good", InboxEntry::from(job("good"))),
    ] {
        sender.send_with_id(queue, id, entry).await.unwrap();
    }
    let found = sender.pending("mail").await.unwrap();
    let large = found.iter().find(|entry| entry.id() == "large").unwrap();
    let too_large = Rejection::TooLarge { size: MAX_INBOX_ENTRY_SIZE as u64 + 1 };
    assert_eq!(sender.read(large).await.unwrap(), EntryRead::Rejected(too_large.clone()));

    assert_eq!(apply(&queue).await, 17);
    let left = format!("{INBOX}/v1/no entry at all");
    assert_eq!(entries(&store).await, BTreeSet::from([left]));
    let of = |id: &'static str| rejection(&queue, "mail", id);
    assert_eq!(of("kind").await, Rejection::UnknownKind);
    assert_eq!(of("unordered").await, Rejection::Unordered);
    assert!(matches!(of("malformed").await, Rejection::Malformed { .. }));
    assert!(matches!(of("empty").await, Rejection::Malformed { .. }));
    assert_eq!(of("large").await, too_large);
    assert!(matches!(of("bad=id").await, Rejection::InvalidId { .. }));
    let long = rejection(&queue, "mail", &"l".repeat(65)).await;
    assert!(matches!(long, Rejection::InvalidId { .. }));
    let refused = rejection(&queue, "strange/queue", "not-accepted").await;
    assert_eq!(refused, Rejection::QueueNotAccepted);
    assert_eq!(of("elsewhere").await, Rejection::OtherQueue { job_queue: "other".into() });
    assert!(matches!(of("bad-job-id").await, Rejection::InvalidId { .. }));
    assert_eq!(of("taken-id").await, Rejection::DuplicateJobId);
    assert_eq!(of("no-timeout").await, Rejection::SignalKeyWithoutTimeout);
    assert_eq!(of("key-taken").await, Rejection::SignalKeyTaken);
    assert!(matches!(of("failed").await, Rejection::Failed { .. }));
    assert!(matches!(of("long-key").await, Rejection::Failed { .. }));
    assert_eq!(outcome(&queue, "mail", "waits").await, new("w"));
    assert_eq!(pending(&queue, "mail").await, ["taken", "good"]);
    assert_eq!(stats(&queue, "other").await, (1, 0));
    queue.close().await.unwrap();
    audit(&store, PATH, Some(true)).await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_entry_is_rejected_after_an_hour_and_holds_nobody_up() {
    let bytes = Arc::new(InMemory::new());
    let toll = Toll::new(Arc::clone(&bytes) as _);
    let options =
        OpenOptions::default().inbox(inbox().object_store(toll.clone() as Arc<dyn ObjectStore>));
    let queue = open_with(Arc::clone(&bytes) as _, options).await;
    toll.hide(".stuck");
    let sender = sender(&bytes);
    sender.send_with_id("mail", "stuck", job("stuck")).await.unwrap();
    sender.send_with_id("mail", "free", job("free")).await.unwrap();
    assert_eq!(apply(&queue).await, 1);
    assert_eq!(pending(&queue, "mail").await, ["free"]);
    virtual_time(Duration::from_secs(3_599)).await;
    apply(&queue).await;
    assert_eq!(queue.view().inbox_record("mail", "stuck").await.unwrap(), None);
    virtual_time(Duration::from_secs(10)).await;
    apply(&queue).await;
    let unreadable = rejection(&queue, "mail", "stuck").await;
    assert!(matches!(unreadable, Rejection::Unreadable { .. }), "{unreadable:?}");
    assert_eq!(entries(&bytes).await, BTreeSet::new());
    assert_eq!(pending(&queue, "mail").await, ["free"]);
}

#[tokio::test]
async fn an_entry_that_comes_again_happens_once() {
    let store = Arc::new(InMemory::new());
    let queue = open(&store).await;
    let first = sender(&store);
    first.send_with_id("mail", "order-7", job("ship it")).await.unwrap();
    let object = entries(&store).await.pop_first().unwrap();
    let bytes = store.get(&Path::parse(&object).unwrap()).await.unwrap().bytes().await.unwrap();
    // Sent twice before it was looked at, by a sender that died in between.
    sender(&store).send_with_id("mail", "order-7", job("ship it")).await.unwrap();
    assert_eq!(apply(&queue).await, 2);
    // Sent again afterwards, and its object put again by a retry that came late.
    first.send_with_id("mail", "order-7", job("and something else")).await.unwrap();
    store.put(&Path::parse(&object).unwrap(), bytes.clone().into()).await.unwrap();
    assert_eq!(apply(&queue).await, 2);
    assert_eq!(pending(&queue, "mail").await, ["ship it"]);
    drop(queue);
    store.put(&Path::parse(&object).unwrap(), bytes.into()).await.unwrap();
    let queue = open(&store).await;
    assert_eq!(pending(&queue, "mail").await, ["ship it"]);
    assert_eq!(entries(&store).await, BTreeSet::new());
    // An id belongs to its queue.
    first.send_with_id("other", "order-7", job("another")).await.unwrap();
    apply(&queue).await;
    assert_eq!(pending(&queue, "other").await, ["another"]);
}

/// A queue at a time of the test's own, whose inbox is reached through a shelf that can refuse.
fn through(shelf: &Shelf, clock: &MockClock) -> OpenOptions {
    let inbox = inbox().object_store(Arc::new(shelf.clone()) as Arc<dyn ObjectStore>);
    OpenOptions { clock: Arc::new(clock.clone()), ..OpenOptions::default() }.inbox(inbox)
}

#[tokio::test]
async fn an_entry_is_remembered_for_its_retention_and_as_long_as_its_object_stays() {
    let bytes = Arc::new(InMemory::new());
    let shelf = Shelf::new(Arc::clone(&bytes) as _, Rng::new(0), 0);
    let clock = MockClock::new(1_000_000);
    let options = || through(&shelf, &clock);
    let queue = open_with(Arc::clone(&bytes) as _, options()).await;
    let sender = sender(&bytes);
    sender.send_with_id("mail", "gone", job("gone")).await.unwrap();
    apply(&queue).await;
    shelf.refuse(DELETE, 0);
    sender.send_with_id("mail", "stays", job("stays")).await.unwrap();
    let known = async |queue: &Queue| {
        queue.reap_now().await.unwrap();
        let of = async |id| queue.view().inbox_record("mail", id).await.unwrap().is_some();
        (of("gone").await, of("stays").await)
    };
    for day in 0..6 {
        assert_eq!(apply(&queue).await, 1, "day {day}");
        assert_eq!(known(&queue).await, (true, true), "day {day}");
        clock.advance(DAY);
    }
    clock.advance(DAY - Duration::from_millis(1));
    assert_eq!(known(&queue).await, (true, true));
    clock.advance(Duration::from_millis(1));
    assert_eq!(known(&queue).await, (false, true), "after seven days");
    // A month in which nobody looked. The next owner looks at the inbox before it forgets, so the entry that stayed there
    // is not applied again.
    queue.close().await.unwrap();
    clock.advance(30 * DAY);
    let queue = open_with(Arc::clone(&bytes) as _, options()).await;
    assert_eq!(known(&queue).await, (false, true));
    assert_eq!(pending(&queue, "mail").await, ["gone", "stays"]);
    queue.close().await.unwrap();
    audit(&bytes, PATH, Some(true)).await;
    shelf.refuse(0, 0);
    let queue = open_with(Arc::clone(&bytes) as _, options()).await;
    clock.advance(8 * DAY);
    assert_eq!(known(&queue).await, (false, false));
    assert_eq!(pending(&queue, "mail").await, ["gone", "stays"]);
    queue.close().await.unwrap();
    audit(&bytes, PATH, Some(true)).await;
}

/// As long as the inbox cannot be listed nobody knows what is still there, so nothing is forgotten; and an opening goes on.
#[tokio::test]
async fn an_inbox_out_of_reach_stops_neither_the_queue_nor_its_opening() {
    let bytes = Arc::new(InMemory::new());
    let shelf = Shelf::new(Arc::clone(&bytes) as _, Rng::new(0), 0);
    let clock = MockClock::new(1_000_000);
    let options = || through(&shelf, &clock);
    let queue = open_with(Arc::clone(&bytes) as _, options()).await;
    shelf.refuse(DELETE, 0);
    sender(&bytes).send_with_id("mail", "e", job("e")).await.unwrap();
    apply(&queue).await;
    queue.close().await.unwrap();
    clock.advance(30 * DAY);
    shelf.refuse(LIST, 0);
    let queue = open_with(Arc::clone(&bytes) as _, options()).await;
    queue.enqueue("mail", b"by hand".to_vec()).await.unwrap();
    queue.reap_now().await.unwrap();
    assert!(matches!(queue.apply_inbox_now().await, Err(Error::InboxStore(_))));
    shelf.refuse(0, 0);
    assert_eq!(apply(&queue).await, 1);
    queue.reap_now().await.unwrap();
    assert_eq!(pending(&queue, "mail").await, ["e", "by hand"]);
    // What cannot be sent says so; that the touch failed is no failure.
    let sender = InboxSender::new(Arc::new(shelf.clone()), INBOX);
    shelf.refuse(PUT, 0);
    assert!(matches!(sender.send("mail", job("x")).await, Err(Error::InboxStore(_))));
    shelf.refuse(PUT, 1);
    sender.send("mail", job("untouched")).await.unwrap();
    shelf.refuse(0, 0);
    apply(&queue).await;
    assert_eq!(pending(&queue, "mail").await, ["e", "by hand", "untouched"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_inbox_costs_a_head_each_touch_interval_and_a_list_each_interval() {
    let bytes = Arc::new(InMemory::new());
    let toll = Toll::new(Arc::clone(&bytes) as _);
    let inbox = inbox().object_store(toll.clone() as Arc<dyn ObjectStore>);
    let queue = open_with(Arc::clone(&bytes) as _, OpenOptions::default().inbox(inbox)).await;
    assert_eq!(toll.take(), Asked { heads: 1, lists: 1, ..Asked::default() }, "at open");
    virtual_time(Duration::from_millis(600_500)).await;
    let asked = toll.take();
    assert_eq!((asked.lists, asked.gets, asked.puts, asked.deletes), (10, 0, 0, 0));
    assert!((280..=300).contains(&asked.heads), "{} HEADs in ten minutes", asked.heads);

    // A sender costs two PUTs, its entry a LIST, a GET and a deletion, within the touch interval.
    let mails = Toll::new(Arc::clone(&bytes) as _);
    let sender = InboxSender::new(mails.clone(), INBOX);
    sender.send("mail", job("hello")).await.unwrap();
    assert_eq!(mails.take(), Asked { puts: 2, ..Asked::default() });
    virtual_time(Duration::from_millis(2_100)).await;
    let asked = toll.take();
    assert_eq!((asked.lists, asked.gets, asked.deletes), (1, 1, 1), "{asked:?}");
    assert_eq!(pending(&queue, "mail").await, ["hello"]);
}

#[tokio::test(start_paused = true)]
async fn an_untouched_entry_is_found_at_the_next_listing() {
    let store = Arc::new(InMemory::new());
    let options = OpenOptions::default().inbox(inbox().touch_poll_interval(None));
    let queue = open_with(Arc::clone(&store) as _, options).await;
    sender(&store).send("mail", job("late")).await.unwrap();
    virtual_time(Duration::from_secs(50)).await;
    assert_eq!(stats(&queue, "mail").await, (0, 0));
    virtual_time(Duration::from_secs(11)).await;
    assert_eq!(stats(&queue, "mail").await, (1, 0));
}

#[tokio::test]
async fn thousands_of_entries_are_a_few_commits() {
    const ENTRIES: usize = 3_000;
    let main = Arc::new(InMemory::new());
    let toll = Toll::new(Arc::clone(&main) as _);
    let inbox_bytes = Arc::new(InMemory::new());
    let inbox = inbox().object_store(Arc::clone(&inbox_bytes) as Arc<dyn ObjectStore>);
    let queue = open_with(toll.clone() as _, OpenOptions::default().inbox(inbox)).await;
    let sender = InboxSender::new(Arc::clone(&inbox_bytes) as _, INBOX);
    let mut cancels = Vec::new();
    for number in 0..ENTRIES / 2 {
        let id = format!("job-{number}");
        sender.send("mail", with_id(&id, &id)).await.unwrap();
        cancels.push(id);
    }
    for id in &cancels {
        sender.send("mail", CancelEntry::new(id)).await.unwrap();
    }
    toll.take();
    assert_eq!(apply(&queue).await, ENTRIES);
    let puts = toll.take().puts;
    assert!(puts < 60, "{ENTRIES} entries took {puts} PUTs");
    assert_eq!(stats(&queue, "mail").await, (0, 0));
    assert_eq!(entries(&inbox_bytes).await, BTreeSet::new());
}

#[tokio::test]
async fn a_large_payload_goes_the_way_of_large_payloads() {
    let store = Arc::new(InMemory::new());
    let queue = open(&store).await;
    let large = "x".repeat(300 * 1_024);
    sender(&store).send_with_id("mail", "large", job(&large)).await.unwrap();
    sender(&store).send_with_id("mail", "large", job(&large)).await.unwrap();
    apply(&queue).await;
    let claim = queue.claim_next("mail").await.unwrap().unwrap();
    assert!(claim.payload_ref.is_some());
    assert_eq!(claim.payload, large.as_bytes());
    assert!(queue.claim_next("mail").await.unwrap().is_none());
    queue.ack(&claim).await.unwrap();
    queue.close().await.unwrap();
    let orphans = audit(&store, PATH, Some(true)).await;
    assert_eq!(orphans, BTreeSet::new(), "the upload of the entry that came again is gone");
}

#[tokio::test]
async fn an_inbox_that_overlaps_its_store_or_never_looks_is_refused() {
    let store = || Arc::new(InMemory::new());
    let open = async |inbox| {
        let options = OpenOptions::default().inbox(inbox);
        Queue::open_with_options(store(), PATH, options).await.unwrap_err()
    };
    for path in ["jobs", "jobs/inbox", "/jobs/inbox/", ""] {
        let error = open(inbox().path(path)).await;
        assert!(matches!(error, Error::InboxPathWithinQueue { .. }), "{path}: {error}");
    }
    for inbox in [
        inbox().interval(Duration::ZERO),
        inbox().touch_poll_interval(Duration::ZERO),
        inbox().record_retention(Duration::ZERO),
    ] {
        assert!(matches!(open(inbox).await, Error::InvalidOption { .. }));
    }
    let error = open(InboxOptions::new(["x".repeat(256)])).await;
    assert!(matches!(error, Error::InvalidQueueName { .. }));
    let sender = InboxSender::new(store(), INBOX);
    let bad = sender.send_with_id("mail", "bad id", job("x")).await.unwrap_err();
    assert!(matches!(bad, Error::InvalidId { .. }));
    let large = sender.send("mail", job(&"x".repeat(MAX_INBOX_ENTRY_SIZE))).await.unwrap_err();
    assert!(matches!(large, Error::TooLarge { .. }));
    let queue = Queue::open(store(), PATH).await.unwrap();
    assert_eq!(queue.apply_inbox_now().await.unwrap(), 0, "without an inbox");
    assert_eq!((queue.inbox_accepts("mail"), queue.inbox_record_retention()), (false, None));
}

#[tokio::test]
async fn a_fenced_owner_applies_nothing() {
    let store = Arc::new(InMemory::new());
    let first = open(&store).await;
    let options = OpenOptions::default();
    let second = open_with(Arc::clone(&store) as _, options).await;
    sender(&store).send_with_id("mail", "e", job("e")).await.unwrap();
    let refused = within("a pass of the fenced", first.apply_inbox_now()).await;
    assert!(matches!(refused, Err(Error::Closed(CloseReason::Fenced))), "{refused:?}");
    assert_eq!(entries(&store).await.len(), 1, "its object is for the owner");
    assert_eq!(stats(&second, "mail").await, (0, 0));
    let third = open(&store).await;
    assert_eq!(pending(&third, "mail").await, ["e"]);
}

/// What was sent, with what must come of it: a second effect of any shows in the outcome of that or another one.
fn script() -> Vec<(&'static str, InboxEntry, InboxOutcome)> {
    vec![
        ("a", with_id("a", "job-a").into(), new("job-a")),
        ("b", CancelEntry::new("job-a").into(), REMOVED),
        ("c", waits("job-c", "k").into(), new("job-c")),
        ("d", SignalEntry::new("k", "1").into(), DELIVERED),
        ("e", with_id("e", "job-e").into(), new("job-e")),
        ("f", SignalEntry::new("k", "2").into(), BUFFERED),
        (
            "g",
            job(&"large".repeat(60_000))
                .options(EnqueueOptions::default().id_override("job-g"))
                .into(),
            new("job-g"),
        ),
        ("h", CancelEntry::new("job-c").into(), REMOVED),
        ("i", with_id("i", "job-e").into(), InboxOutcome::Rejected(Rejection::DuplicateJobId)),
    ]
}

async fn send_script(store: &Arc<InMemory>) {
    let sender = sender(store);
    for (id, entry, _) in script() {
        sender.send_with_id("mail", id, entry).await.unwrap();
    }
    // Twice would show as two jobs.
    sender.send_with_id("mail", "z", job("z")).await.unwrap();
}

async fn check_script(queue: &Queue) {
    for (id, _, expected) in script() {
        assert_eq!(outcome(queue, "mail", id).await, expected, "{id}");
    }
    let page = queue.view().list_jobs("mail", JobStatus::Pending, None, 100).await.unwrap();
    let ids: Vec<_> = page.jobs.iter().map(|job| job.id.as_str()).take(2).collect();
    assert_eq!(ids, ["job-e", "job-g"]);
    assert_eq!(stats(queue, "mail").await, (3, 0));
    assert!(queue.clear_signal("mail", "k").await.unwrap(), "the second signal is kept");
}

#[test]
fn a_kill_at_any_call_leaves_every_entry_to_happen_once() {
    kill_everywhere(Kill::At);
}

#[test]
fn a_kill_that_takes_the_answer_of_any_change_leaves_every_entry_to_happen_once() {
    kill_everywhere(Kill::AfterEffect);
}

fn kill_everywhere(kill: fn(u64) -> Kill) {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    for k in 0..1_000 {
        let bytes = Arc::new(InMemory::new());
        let store = KillStore::new(Arc::clone(&bytes), kill(k));
        runtime().block_on(async {
            send_script(&bytes).await;
            let options = OpenOptions::default().inbox(inbox());
            let opened = Queue::open_with_options(Arc::new(store.clone()), PATH, options).await;
            assert!(opened.is_ok() || store.is_dead(), "open fails on a healthy store");
            if let Ok(queue) = opened {
                let passed = within("a pass", queue.apply_inbox_now()).await;
                assert!(passed.is_ok() || store.is_dead(), "{passed:?}");
            }
        });
        runtime().block_on(async {
            let queue = open(&bytes).await;
            let context = format!("kill {:?}", kill(k));
            assert_eq!(entries(&bytes).await, BTreeSet::new(), "{context}");
            check_script(&queue).await;
            within("a sweep", queue.sweep_orphans_now()).await.unwrap();
            queue.close().await.unwrap();
            assert_eq!(audit(&bytes, PATH, Some(true)).await, BTreeSet::new(), "{context}");
        });
        if !store.is_dead() {
            assert!(k >= 8, "the scenario makes {k} calls");
            return;
        }
    }
    panic!("the scenario has no end");
}

/// Owners that take the store from each other in the midst of their passes.
#[tokio::test]
async fn owners_that_race_apply_every_entry_once() {
    for seed in 0..40 {
        println!("seed {seed}");
        let bytes = Arc::new(InMemory::new());
        let mut rng = Rng::new(seed);
        send_script(&bytes).await;
        let owners = (0..3).map(|_| {
            let shelf = Shelf::new(Arc::clone(&bytes) as _, Rng::new(rng.next()), 8);
            let late = rng.below(200);
            // One that cannot delete leaves all that it has done to the others.
            shelf.refuse(if rng.chance(50) { DELETE } else { 0 }, 0);
            async move {
                for _ in 0..late {
                    tokio::task::yield_now().await;
                }
                let options = OpenOptions::default().inbox(inbox());
                let opened = Queue::open_with_options(Arc::new(shelf), PATH, options).await;
                if let Ok(queue) = &opened {
                    // It may have been fenced by now.
                    drop(queue.apply_inbox_now().await);
                }
                opened
            }
        });
        let handles = within("the owners", join_all(owners)).await;
        assert!(handles.iter().any(Result::is_ok), "one of them got it");
        drop(handles);
        let queue = open(&bytes).await;
        assert_eq!(entries(&bytes).await, BTreeSet::new());
        check_script(&queue).await;
        queue.close().await.unwrap();
        audit(&bytes, PATH, Some(true)).await;
    }
}
