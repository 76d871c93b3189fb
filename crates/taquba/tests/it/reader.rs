//! A reader beside the owner: it never fences, needs to write nothing, and shows whole commits.

use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::ObjectStore;
use taquba::object_store::memory::InMemory;
use taquba::{
    CloseReason, EnqueueOptions, Error, JobStatus, OpenOptions, Queue, QueueConfig, QueueReader,
    QueueView, ReaderMode, ReaderOptions, SettlementEffects,
};

use crate::support::read_only::ReadOnly;
use crate::support::within;

const LEASE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
const PATH: &str = "jobs";

fn bucket() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

fn following() -> ReaderOptions {
    ReaderOptions::default().mode(ReaderMode::FollowLatest).manifest_poll_interval(POLL)
}

async fn read(bucket: &Arc<dyn ObjectStore>, options: ReaderOptions) -> QueueReader {
    QueueReader::open_with_options(bucket.clone(), PATH, options).await.unwrap()
}

/// Waits until the reader has caught up with what `view` shows.
async fn until(what: &str, reader: &QueueReader, done: impl AsyncFn(&QueueView) -> bool) {
    let caught_up = async {
        while !done(reader.view()).await {
            taquba::time::sleep(POLL).await;
        }
    };
    within(what, caught_up).await;
}

async fn ids(view: &QueueView, status: JobStatus) -> Vec<String> {
    let page = view.list_jobs("q", status, None, 100).await.unwrap();
    page.jobs.into_iter().map(|job| job.id).collect()
}

/// One job in each state, one row.
async fn one_of_each(bucket: &Arc<dyn ObjectStore>) -> (Queue, Vec<String>) {
    let config = QueueConfig::default().keep_done_jobs(Duration::from_secs(3_600));
    let options = OpenOptions::default().default_queue_config(config);
    let queue = Queue::open_with_options(bucket.clone(), PATH, options).await.unwrap();
    let mut ids = Vec::new();
    for payload in [vec![1], vec![2], vec![3; 5_000], vec![4]] {
        ids.push(queue.enqueue("q", payload).await.unwrap());
    }
    let done = queue.claim("q", LEASE).await.unwrap().unwrap();
    queue.ack_with(&done, SettlementEffects::default().kv_put("k", "v")).await.unwrap();
    let dead = queue.claim("q", LEASE).await.unwrap().unwrap();
    queue.dead_letter(&dead, "no").await.unwrap();
    let held = queue.claim("q", LEASE).await.unwrap().unwrap();
    assert_eq!(held.id, ids[2]);
    let later = std::time::UNIX_EPOCH + Duration::from_secs(1 << 40);
    let later = EnqueueOptions::default().run_at(later);
    ids.push(queue.enqueue_with("q", vec![5], later).await.unwrap());
    (queue, ids)
}

#[tokio::test]
async fn a_reader_shows_what_the_owner_shows_and_never_fences() {
    for mode in [ReaderMode::ManagedCheckpoint, ReaderMode::FollowLatest] {
        let bucket = bucket();
        let (queue, jobs) = one_of_each(&bucket).await;
        let reader = read(&bucket, following().mode(mode)).await;
        // The claim is stored when it has lasted.
        until("the claim's row", &reader, async |view| {
            !ids(view, JobStatus::Claimed).await.is_empty()
        })
        .await;
        let (lagging, live) = (reader.view(), queue.view());
        let mut states = Vec::new();
        for job in &jobs {
            let shown = lagging.get_job(job).await.unwrap().unwrap();
            assert_eq!(Some(&shown), live.get_job(job).await.unwrap().as_ref());
            states.push(shown.status);
        }
        let all = [
            JobStatus::Done,
            JobStatus::Dead,
            JobStatus::Claimed,
            JobStatus::Pending,
            JobStatus::Scheduled,
        ];
        assert_eq!(states, all);
        for status in all {
            let shown = lagging.list_jobs("q", status, None, 9).await.unwrap().jobs;
            assert_eq!(shown, live.list_jobs("q", status, None, 9).await.unwrap().jobs);
            assert_eq!(shown.len(), 1, "{status:?}");
        }
        assert_eq!(lagging.stats("q").await.unwrap(), live.stats("q").await.unwrap());
        assert_eq!(lagging.stats("never").await.unwrap().pending, 0);
        assert_eq!(lagging.list_queues().await.unwrap(), ["q"]);
        assert_eq!(lagging.kv_get(b"k").await.unwrap().unwrap(), "v");
        assert_eq!(lagging.kv_scan(b"", .., 9).await.unwrap().entries.len(), 1);
        assert_eq!(lagging.get_job("nobody").await.unwrap(), None);

        // The owner goes on, and the reader follows.
        let next = queue.enqueue("q", vec![6]).await.unwrap();
        until("the next job", &reader, async |view| view.get_job(&next).await.unwrap().is_some())
            .await;
        let activity = reader.last_store_activity();
        assert!(activity.durable_seq > 0 && activity.writer_epoch == 1, "{activity:?}");
        reader.close().await.unwrap();
        let closed = reader.view().stats("q").await;
        assert!(matches!(closed, Err(Error::Closed(CloseReason::Closed))), "{closed:?}");
        queue.enqueue("q", vec![7]).await.unwrap();
        queue.close().await.unwrap();
    }
}

#[tokio::test]
async fn following_the_latest_needs_no_right_to_write() {
    let bucket = bucket();
    let (queue, jobs) = one_of_each(&bucket).await;
    let credentials = ReadOnly::new(bucket.clone());
    let limited: Arc<dyn ObjectStore> = credentials.clone();
    let reader = read(&limited, following()).await;
    assert_eq!(reader.view().get_job(&jobs[2]).await.unwrap().unwrap().payload, vec![3; 5_000]);
    let more = queue.enqueue("q", vec![6]).await.unwrap();
    until("the next job", &reader, async |view| view.get_job(&more).await.unwrap().is_some()).await;
    reader.close().await.unwrap();
    assert_eq!(credentials.asked().writes, 0, "it tried to write");

    // The other mode does write, and says that it may not.
    let managed = ReaderOptions::default();
    let refused = QueueReader::open_with_options(limited, PATH, managed).await;
    assert!(matches!(refused, Err(Error::Storage(_))), "{refused:?}");
    assert!(credentials.asked().writes > 0);
    queue.close().await.unwrap();
}

#[tokio::test]
async fn there_is_nothing_to_read_where_no_store_is_in_use() {
    let bucket = bucket();
    let credentials = ReadOnly::new(bucket.clone());
    let nothing = QueueReader::open(credentials.clone(), PATH).await;
    let Err(Error::StoreNotInitialized { path }) = nothing else { panic!("{nothing:?}") };
    assert_eq!((path.as_str(), credentials.asked().writes), (PATH, 0));
    assert!(!Error::StoreNotInitialized { path }.is_permanent(), "it may be there later");

    // A first open was cut short: the engine below has made its files, and there is no row.
    slatedb::Db::open(PATH, bucket.clone()).await.unwrap().close().await.unwrap();
    for mode in [ReaderMode::ManagedCheckpoint, ReaderMode::FollowLatest] {
        let options = following().mode(mode);
        let nothing = QueueReader::open_with_options(bucket.clone(), PATH, options).await;
        assert!(matches!(nothing, Err(Error::StoreNotInitialized { .. })), "{nothing:?}");
    }
    Queue::open(bucket.clone(), PATH).await.unwrap().close().await.unwrap();
    read(&bucket, following()).await.close().await.unwrap();
}

#[tokio::test]
async fn a_reader_refuses_a_newer_store_and_one_that_is_not_ours() {
    for (key, value) in [(&b"Mformat"[..], &b"taquba 9"[..]), (b"other", b"row")] {
        let bucket = bucket();
        let db = slatedb::Db::open(PATH, bucket.clone()).await.unwrap();
        db.put(key, value).await.unwrap();
        db.close().await.unwrap();
        let refused = QueueReader::open_with_options(bucket, PATH, following()).await;
        assert!(matches!(refused, Err(Error::Format { .. })), "{refused:?}");
    }
}

/// A job that is always somewhere is always found, although its rows move from state to state under the reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_commits_together_shows_together() {
    let bucket = bucket();
    let config = QueueConfig::default()
        .retry_backoff_base(Duration::from_millis(1))
        .retry_backoff_max(Duration::from_millis(1));
    let options = OpenOptions::default().default_queue_config(config);
    let queue = Queue::open_with_options(bucket.clone(), PATH, options).await.unwrap();
    let often = EnqueueOptions::default().max_attempts(10_000).priority(1);
    let id = queue.enqueue_with("q", vec![1; 600], often).await.unwrap();
    let reader = read(&bucket, following().manifest_poll_interval(Duration::from_millis(1))).await;
    let writer = tokio::spawn(async move {
        for _ in 0..400 {
            let claim = queue.claim_with_wait("q", LEASE, LEASE).await.unwrap().unwrap();
            queue.nack(&claim, "not yet").await.unwrap();
        }
        queue
    });
    let (view, mut looks, mut attempts) = (reader.view(), 0, 0);
    let mut states = std::collections::HashSet::new();
    while !writer.is_finished() {
        let job = view.get_job(&id).await.unwrap().expect("it is always there");
        assert_eq!(job.payload.len(), 600);
        assert!(job.attempts >= attempts, "it went back in time");
        attempts = job.attempts;
        states.insert(job.status);
        let history = view.attempt_history(&id).await.unwrap();
        assert!(history.len() >= job.attempts.saturating_sub(1).min(100) as usize, "{job:?}");
        let stats = view.stats("q").await.unwrap();
        assert_eq!(stats.pending + stats.claimed + stats.scheduled, 1, "{stats:?}");
        looks += 1;
    }
    println!("{looks} looks at {attempts} attempts, in {states:?}");
    assert!(attempts > 20, "the reader followed");
    reader.close().await.unwrap();
    writer.await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn a_claim_held_back_shows_as_pending_and_one_that_lasts_as_claimed() {
    let bucket = bucket();
    let options = OpenOptions::default().deferred_flush_max(Duration::from_secs(3_600));
    let queue = Queue::open_with_options(bucket.clone(), PATH, options).await.unwrap();
    let id = queue.enqueue("q", vec![1]).await.unwrap();
    let claim = queue.claim("q", LEASE).await.unwrap().unwrap();
    queue.kv_put(b"after", b"the claim").await.unwrap();
    let reader = read(&bucket, following()).await;
    assert_eq!(ids(reader.view(), JobStatus::Pending).await, std::slice::from_ref(&id));
    assert!(ids(reader.view(), JobStatus::Claimed).await.is_empty());
    let shown = reader.view().get_job(&id).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.attempts), (JobStatus::Pending, 0));
    assert_eq!(queue.view().get_job(&id).await.unwrap().unwrap().status, JobStatus::Claimed);
    let stats = reader.view().stats("q").await.unwrap();
    assert_eq!((stats.pending, stats.claimed), (1, 0));
    queue.ack(&claim).await.unwrap();
    reader.close().await.unwrap();
}

#[tokio::test]
async fn a_reader_of_the_log_in_another_store_sees_it_and_one_that_skips_it_does_not() {
    let (bucket, log) = (bucket(), bucket());
    let options = OpenOptions::default().wal_object_store(log.clone());
    let queue = Queue::open_with_options(bucket.clone(), PATH, options).await.unwrap();
    let id = queue.enqueue("q", vec![1]).await.unwrap();
    let reader = read(&bucket, following().wal_object_store(log.clone())).await;
    assert!(reader.view().get_job(&id).await.unwrap().is_some());
    let skips = read(&bucket, following().wal_object_store(log).skip_wal_replay(true)).await;
    assert!(skips.view().get_job(&id).await.unwrap().is_none());
    queue.close().await.unwrap();
}

#[tokio::test]
async fn options_that_cannot_work_are_refused() {
    let bucket = bucket();
    let zero = ReaderOptions::default().manifest_poll_interval(Duration::ZERO);
    let short = ReaderOptions::default().checkpoint_lifetime(Duration::from_secs(19));
    for options in [zero, short] {
        let refused = QueueReader::open_with_options(bucket.clone(), PATH, options).await;
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_reader_that_is_dropped_leaves_no_note_behind_and_asks_no_more() {
    let bucket = bucket();
    let queue = Queue::open(bucket.clone(), PATH).await.unwrap();
    let noted = async || {
        let admin = slatedb::admin::Admin::builder(PATH, bucket.clone()).build();
        !admin.list_checkpoints(None).await.unwrap().is_empty()
    };
    let reader = read(&bucket, following().mode(ReaderMode::ManagedCheckpoint)).await;
    assert!(noted().await);
    drop(reader);
    let gone = async {
        while noted().await {
            taquba::time::sleep(POLL).await;
        }
    };
    within("the note", gone).await;
    // Its poller ends too.
    let credentials = ReadOnly::new(bucket.clone());
    let limited: Arc<dyn ObjectStore> = credentials.clone();
    drop(read(&limited, following()).await);
    let mut before = credentials.asked();
    let quiet = async {
        loop {
            taquba::time::sleep(POLL * 8).await;
            let now = credentials.asked();
            if now == before {
                return;
            }
            before = now;
        }
    };
    within("the end of the poller", quiet).await;
    queue.close().await.unwrap();
}
