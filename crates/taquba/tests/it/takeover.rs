//! Who owns a store, and how others know that it lives: beats, opens that create nothing, opens that wait for silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use taquba::object_store::ObjectStore;
use taquba::object_store::memory::InMemory;
use taquba::{CloseReason, Error, OpenOptions, Queue, QueueReader, Takeover, WriterHeartbeat};
use tokio::sync::mpsc;

use crate::support::kill::{Kill, KillStore};
use crate::support::read_only::ReadOnly;
use crate::support::{now, within};

const PATH: &str = "jobs";
const SILENCE: Duration = Duration::from_secs(1);
const A_BIT: Duration = Duration::from_millis(50);

fn bucket() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

async fn open(bucket: &Arc<dyn ObjectStore>, options: OpenOptions) -> Queue {
    Queue::open_with_options(bucket.clone(), PATH, options).await.unwrap()
}

fn waiting() -> OpenOptions {
    OpenOptions::default().takeover(Takeover::WhenSilent(SILENCE))
}

fn beating(every: Duration) -> OpenOptions {
    OpenOptions::default().liveness_heartbeat(every)
}

async fn beat(queue: &Queue) -> WriterHeartbeat {
    queue.view().writer_heartbeat().await.unwrap().unwrap()
}

/// Lets virtual time pass in steps, so that what is due in between happens in between.
async fn pass(time: Duration) {
    let until = now() + time;
    while now() < until {
        taquba::time::sleep(A_BIT).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_beats_from_its_open_to_its_close_and_the_count_goes_on() {
    let bucket = bucket();
    let every = Duration::from_secs(5);
    let queue = open(&bucket, beating(every)).await;
    let first = beat(&queue).await;
    assert_eq!((first.counter, first.interval, first.closed), (1, every, false));
    pass(every * 4 + A_BIT).await;
    let fifth = beat(&queue).await;
    assert_eq!((fifth.counter, fifth.writer_epoch), (5, first.writer_epoch));
    queue.close().await.unwrap();
    let reader = QueueReader::open(bucket.clone(), PATH).await.unwrap();
    let last = reader.writer_heartbeat().await.unwrap().unwrap();
    assert_eq!((last.counter, last.closed, last.writer_epoch), (6, true, 1));
    reader.close().await.unwrap();

    // The next owner dies; the one after it does not beat, and says so.
    let queue = open(&bucket, beating(every)).await;
    let next = beat(&queue).await;
    assert_eq!((next.counter, next.closed, next.writer_epoch), (7, false, 2));
    drop(queue);
    let queue = open(&bucket, OpenOptions::default()).await;
    let silent = beat(&queue).await;
    assert_eq!((silent.counter, silent.interval, silent.writer_epoch), (8, Duration::ZERO, 3));
    pass(every * 3).await;
    assert_eq!(beat(&queue).await, silent);
    queue.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_nobody_asks_for_anything_beats_from_the_start() {
    let every = Duration::from_millis(100);
    let queue = open(&bucket(), beating(every)).await;
    pass(every * 5 + A_BIT).await;
    let beats = beat(&queue).await.counter;
    assert!(beats >= 5, "{beats} beats in 550 ms");
    queue.close().await.unwrap();
}

#[tokio::test]
async fn the_first_beat_is_durable_when_open_returns_and_without_beats_there_is_no_row() {
    let bucket = Arc::new(InMemory::new());
    let store: Arc<dyn ObjectStore> = bucket.clone();
    let queue = open(&store, beating(Duration::from_secs(3_600))).await;
    // What another machine finds if this one dies now.
    let reader = QueueReader::open(Arc::new(bucket.fork()), PATH).await.unwrap();
    assert_eq!(reader.writer_heartbeat().await.unwrap(), Some(beat(&queue).await));
    reader.close().await.unwrap();
    queue.close().await.unwrap();

    let quiet = open(&self::bucket(), OpenOptions::default()).await;
    assert_eq!(quiet.view().writer_heartbeat().await.unwrap(), None);
    quiet.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_beat_is_one_put() {
    let store = KillStore::new(Arc::new(InMemory::new()), Kill::At(u64::MAX));
    let every = Duration::from_secs(5);
    let bucket: Arc<dyn ObjectStore> = Arc::new(store.clone());
    let never = Duration::from_secs(24 * 3_600);
    let queue = open(&bucket, beating(every).fence_check_interval(never)).await;
    let before = store.effects();
    pass(every * 10 + A_BIT).await;
    assert_eq!(store.effects() - before, 10);
    queue.close().await.unwrap();
}

#[tokio::test]
async fn open_creates_nothing_where_it_was_told_not_to() {
    let bucket = bucket();
    for takeover in [Takeover::Immediate, Takeover::WhenSilent(SILENCE)] {
        let credentials = ReadOnly::new(bucket.clone());
        let options = OpenOptions::default().create(false).takeover(takeover);
        let open = Queue::open_with_options(credentials.clone(), PATH, options);
        let refused = within("open", open).await;
        let Err(Error::StoreNotInitialized { path }) = refused else { panic!("{refused:?}") };
        assert_eq!((path.as_str(), credentials.asked().writes), (PATH, 0));
    }
    // The engine below has made its files, but there is no stamp.
    slatedb::Db::open(PATH, bucket.clone()).await.unwrap().close().await.unwrap();
    let credentials = ReadOnly::new(bucket.clone());
    let options = OpenOptions::default().create(false);
    let refused = Queue::open_with_options(credentials.clone(), PATH, options).await;
    assert!(matches!(refused, Err(Error::StoreNotInitialized { .. })), "{refused:?}");
    assert_eq!(credentials.asked().writes, 0);

    open(&bucket, OpenOptions::default()).await.close().await.unwrap();
    let there = open(&bucket, OpenOptions::default().create(false)).await;
    there.enqueue("q", vec![1]).await.unwrap();
    there.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_writes_nothing_while_the_owner_lives_and_has_the_store_when_it_is_silent() {
    let bucket = bucket();
    let owner = open(&bucket, waiting()).await;
    let id = owner.enqueue("q", vec![1]).await.unwrap();
    let credentials = ReadOnly::new(bucket.clone());
    let refused: Arc<dyn ObjectStore> = credentials.clone();
    let waits = tokio::spawn(Queue::open_with_options(refused, PATH, waiting()));
    pass(SILENCE * 20).await;
    assert!(!waits.is_finished(), "it took the store from an owner that beats");
    let asked = credentials.asked();
    assert_eq!(asked.writes, 0, "it wrote while it waited");
    println!("waiting for 20 silences: {asked:?}");
    assert!(asked.heads < 20 * 40 && asked.gets < 20 * 40 && asked.lists < 20 * 8, "{asked:?}");
    waits.abort();

    // The same with the right to write, and the owner dies.
    let waits = tokio::spawn(Queue::open_with_options(bucket.clone(), PATH, waiting()));
    pass(SILENCE * 2).await;
    let died = now();
    drop(owner);
    let next = within("the takeover", waits).await.unwrap().unwrap();
    let took = now() - died;
    println!("the owner died; the takeover took {took:?} of virtual time");
    assert!(took > SILENCE / 2 && took < SILENCE * 2, "{took:?}");
    assert_eq!(beat(&next).await.writer_epoch, 2);
    assert_eq!(next.claim_next("q").await.unwrap().unwrap().id, id);
    next.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clean_close_ends_the_wait_at_once() {
    for owner in [waiting(), OpenOptions::default()] {
        let bucket = bucket();
        let beats = owner.takeover != Takeover::Immediate;
        let owner = open(&bucket, owner).await;
        let waits = tokio::spawn(Queue::open_with_options(bucket.clone(), PATH, waiting()));
        pass(SILENCE / 2).await;
        owner.close().await.unwrap();
        let closed = now();
        within("the takeover", waits).await.unwrap().unwrap().close().await.unwrap();
        assert!(now() - closed <= SILENCE / 2, "beats {beats}: {:?}", now() - closed);
        // And nobody waits for an owner that was gone when it came.
        let came = now();
        within("an open", open(&bucket, waiting())).await.close().await.unwrap();
        assert!(now() - came < SILENCE / 4, "{:?}", now() - came);
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_does_not_beat_lives_while_it_commits() {
    let bucket = bucket();
    let owner = open(&bucket, OpenOptions::default()).await;
    let waits = tokio::spawn(Queue::open_with_options(bucket.clone(), PATH, waiting()));
    for _ in 0..10 {
        pass(SILENCE / 2).await;
        owner.enqueue("q", vec![1]).await.unwrap();
    }
    assert!(!waits.is_finished());
    let next = within("the takeover", waits).await.unwrap().unwrap();
    assert_eq!(owner.closed().await, CloseReason::Fenced);
    assert_eq!(next.view().stats("q").await.unwrap().pending, 10);
    next.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_beats_seldom_is_given_twice_its_interval() {
    let bucket = bucket();
    let owner = open(&bucket, beating(SILENCE * 3)).await;
    let waits = tokio::spawn(Queue::open_with_options(bucket.clone(), PATH, waiting()));
    pass(SILENCE * 30).await;
    assert!(!waits.is_finished(), "its beats are further apart than the silence");
    drop(owner);
    let died = now();
    within("the takeover", waits).await.unwrap().unwrap().close().await.unwrap();
    assert!(now() - died > SILENCE * 2);
}

#[tokio::test(start_paused = true)]
async fn what_kept_the_waiter_from_looking_is_not_the_owners_silence() {
    let bucket = bucket();
    let owner = open(&bucket, waiting()).await;
    let waits = tokio::spawn(Queue::open_with_options(bucket.clone(), PATH, waiting()));
    pass(SILENCE).await;
    // Both machines sleep for an hour, and wake in the order that is worst for the owner.
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(3_600)).await;
        pass(SILENCE).await;
        assert!(!waits.is_finished(), "it took the store from an owner that slept as long");
    }
    owner.enqueue("q", vec![1]).await.unwrap();
    owner.close().await.unwrap();
    within("the takeover", waits).await.unwrap().unwrap().close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_many_that_wait_one_is_next_and_who_is_fenced_waits_again() {
    const REPLICAS: usize = 5;
    let bucket = bucket();
    let owners = Arc::new(AtomicUsize::new(0));
    let (told, mut news) = mpsc::unbounded_channel();
    let (owned, mut handles) = mpsc::unbounded_channel();
    for replica in 0..REPLICAS {
        let (bucket, told, owned) = (bucket.clone(), told.clone(), owned.clone());
        let owners = Arc::clone(&owners);
        tokio::spawn(async move {
            loop {
                let queue = Arc::new(open(&bucket, waiting()).await);
                assert_eq!(owners.fetch_add(1, SeqCst), 0, "two owners at once");
                told.send((replica, beat(&queue).await.writer_epoch)).unwrap();
                let closed = queue.closed();
                owned.send(queue).unwrap();
                assert_eq!(closed.await, CloseReason::Closed, "one was fenced by one that waited");
            }
        });
    }
    let mut epochs = Vec::new();
    for round in 0..12 {
        let (replica, epoch) = news.recv().await.unwrap();
        epochs.push(epoch);
        let queue = handles.recv().await.unwrap();
        queue.enqueue("q", vec![1]).await.unwrap();
        pass(SILENCE / 3).await;
        assert!(news.is_empty(), "round {round}: replica {replica} was not left alone");
        owners.fetch_sub(1, SeqCst);
        if round % 2 == 0 {
            queue.close().await.unwrap();
        }
        drop(queue);
    }
    // Each was the next after the one before; none was burnt in a race.
    assert_eq!(epochs, (1..=12).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn a_fenced_process_that_opens_again_waits_and_never_fences_back() {
    let bucket = bucket();
    let first = open(&bucket, waiting()).await;
    // Somebody takes it by force.
    let second = open(&bucket, beating(SILENCE / 3)).await;
    assert!(matches!(first.enqueue("q", vec![1]).await, Err(Error::Closed(CloseReason::Fenced))));
    drop(first);
    let again = tokio::spawn(Queue::open_with_options(bucket.clone(), PATH, waiting()));
    pass(SILENCE * 10).await;
    if again.is_finished() {
        panic!("it did not wait: {:?}", again.await);
    }
    second.enqueue("q", vec![2]).await.unwrap();
    second.close().await.unwrap();
    within("its turn", again).await.unwrap().unwrap().close().await.unwrap();
}

#[tokio::test]
async fn options_that_cannot_be_meant_are_refused() {
    let beat = beating(Duration::from_millis(9));
    let silence = OpenOptions::default().takeover(Takeover::WhenSilent(Duration::from_millis(39)));
    for options in [beat, silence] {
        let refused = Queue::open_with_options(bucket(), PATH, options).await;
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    }
}

/// A store of a newer version is left to its owner: nobody is fenced by who could not read it anyway.
#[tokio::test]
async fn who_cannot_read_a_store_does_not_take_it_over() {
    let bucket = bucket();
    let newer = slatedb::Db::open(PATH, bucket.clone()).await.unwrap();
    newer.put(b"Mformat", b"taquba 9").await.unwrap();
    newer.flush().await.unwrap();
    for options in [waiting(), OpenOptions::default().create(false)] {
        let refused = Queue::open_with_options(bucket.clone(), PATH, options).await;
        assert!(matches!(refused, Err(Error::Format { .. })), "{refused:?}");
    }
    newer.put(b"its owner", b"goes on").await.unwrap();
    newer.flush().await.unwrap();
    newer.close().await.unwrap();
}

/// Opens of one path at the same moment, of a store that is not there yet and of one that is: one has it in the end,
/// and what was acknowledged is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_open_at_once_one_has_the_store() {
    for round in 0..20 {
        let bucket = bucket();
        for _ in 0..2 {
            let opens = (0..6).map(|_| {
                let bucket = bucket.clone();
                tokio::spawn(async move {
                    let queue = Queue::open(bucket, PATH).await?;
                    let acknowledged = queue.enqueue("q", vec![1]).await.is_ok();
                    Ok::<_, Error>((queue, acknowledged))
                })
            });
            let mut acknowledged = 0;
            let mut queues = Vec::new();
            for open in opens.collect::<Vec<_>>() {
                match within("open", open).await.unwrap() {
                    Ok((queue, ok)) => {
                        acknowledged += i64::from(ok);
                        queues.push(queue);
                    }
                    Err(Error::Closed(CloseReason::Fenced)) => {}
                    Err(error) => panic!("round {round}: {error:?}"),
                }
            }
            let mut working = 0;
            for queue in &queues {
                match queue.kv_put(b"mine", b"!").await {
                    Ok(()) => working += 1,
                    Err(Error::Closed(CloseReason::Fenced)) => {}
                    Err(error) => panic!("round {round}: {error:?}"),
                }
            }
            assert_eq!(working, 1, "round {round}: {} opened", queues.len());
            drop(queues);
            let last = Queue::open(bucket.clone(), PATH).await.unwrap();
            let pending = last.view().stats("q").await.unwrap().pending;
            assert!(pending >= acknowledged, "round {round}: {pending} of {acknowledged}");
            last.close().await.unwrap();
        }
    }
}
