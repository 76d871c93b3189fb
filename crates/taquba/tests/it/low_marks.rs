//! Low-water marks are raised behind a thousand finished jobs; then a job that lies below comes back, in each way that
//! a job can. After a crash it must still be found: the mark was lowered with it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use taquba::object_store::memory::InMemory;
use taquba::{
    Claim, Clock, EnqueueOptions, JobStatus, Knobs, MockClock, OpenOptions, Queue, QueueConfig,
};

use crate::support::audit::audit;
use crate::support::within;

const LEASE: Duration = Duration::from_secs(3_600);

struct World {
    bytes: Arc<InMemory>,
    clock: MockClock,
}

impl World {
    fn new() -> Self {
        Self { bytes: Arc::new(InMemory::new()), clock: MockClock::new(10_000_000) }
    }

    async fn open(&self) -> Queue {
        let config = QueueConfig::default().retry_backoff_base(Duration::ZERO);
        // What is read at open comes a while after.
        let knobs = Knobs { refill_yields: 40, ..Knobs::default() };
        let options = OpenOptions {
            clock: Arc::new(self.clock.clone()),
            default_queue_config: config,
            knobs,
            ..OpenOptions::default()
        };
        let open = Queue::open_with_options(self.bytes.clone(), "store", options);
        within("open", open).await.unwrap()
    }

    fn in_ms(&self, ms: u64) -> std::time::SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.clock.now_ms() + ms)
    }

    /// The process dies; another one must get exactly this job, and nothing is wrong with the rows.
    async fn assert_found_after_crash(&self, queue: Queue, id: &str) {
        crash(queue).await;
        audit(&self.bytes, "store", Some(false)).await;
        let queue = self.open().await;
        queue.promote_scheduled_now().await.unwrap();
        let claim = within("a claim", queue.claim_next("q")).await.unwrap();
        assert_eq!(claim.map(|claim| claim.id.clone()).as_deref(), Some(id));
    }
}

async fn crash(queue: Queue) {
    let closed = queue.closed();
    drop(queue);
    within("the end of a dropped queue", closed).await;
}

/// A job at the very front of the line, claimed, its claim stored.
async fn stored_claim(queue: &Queue) -> Claim {
    // A claim that gives up a dedup key is stored at once.
    let options = EnqueueOptions::default().dedup_key("first");
    queue.enqueue_with("q", b"first".to_vec(), options).await.unwrap();
    queue.claim("q", LEASE).await.unwrap().unwrap()
}

/// So many jobs come and go that the mark is raised past all that came before.
async fn churn(queue: &Queue) {
    for _ in 0..2 {
        queue.enqueue_batch("q", vec![b"churn".to_vec(); 1_200]).await.unwrap();
        let mut claims = Vec::new();
        while claims.len() < 1_200 {
            claims.extend(queue.claim_batch("q", 1_200, LEASE).await.unwrap());
        }
        let acks = claims.iter().map(|claim| queue.ack(claim));
        for acked in futures_util::future::join_all(acks).await {
            acked.unwrap();
        }
    }
}

#[tokio::test]
async fn a_retry_below_the_mark_is_found() {
    let world = World::new();
    let queue = world.open().await;
    let claim = stored_claim(&queue).await;
    churn(&queue).await;
    queue.nack(&claim, "again").await.unwrap();
    world.assert_found_after_crash(queue, &claim.id).await;
}

#[tokio::test]
async fn a_claim_below_the_mark_that_its_process_held_is_found() {
    let world = World::new();
    let queue = world.open().await;
    let claim = stored_claim(&queue).await;
    churn(&queue).await;
    world.assert_found_after_crash(queue, &claim.id).await;
}

#[tokio::test]
async fn an_expired_claim_below_the_mark_is_found() {
    let world = World::new();
    let queue = world.open().await;
    let claim = stored_claim(&queue).await;
    churn(&queue).await;
    world.clock.advance(LEASE);
    queue.reap_now().await.unwrap();
    world.assert_found_after_crash(queue, &claim.id).await;
}

#[tokio::test]
async fn a_dead_job_below_the_mark_that_is_brought_back_is_found() {
    let world = World::new();
    let queue = world.open().await;
    let claim = stored_claim(&queue).await;
    queue.dead_letter(&claim, "given up").await.unwrap();
    churn(&queue).await;
    queue.requeue_dead_job(&claim.id).await.unwrap();
    world.assert_found_after_crash(queue, &claim.id).await;
}

#[tokio::test]
async fn a_scheduled_job_below_the_mark_that_falls_due_is_found() {
    let world = World::new();
    let queue = world.open().await;
    let options = EnqueueOptions::default().run_at(Some(world.in_ms(60_000)));
    let id = queue.enqueue_with("q", b"later".to_vec(), options).await.unwrap();
    churn(&queue).await;
    world.clock.advance(Duration::from_secs(60));
    queue.promote_scheduled_now().await.unwrap();
    world.assert_found_after_crash(queue, &id).await;
}

/// A claim that is held back has no row: its job still counts as waiting in line.
#[tokio::test]
async fn a_claim_that_was_held_back_below_the_mark_is_found() {
    let world = World::new();
    let options = OpenOptions::default().deferred_flush_max(Duration::from_secs(3_600));
    let open = Queue::open_with_options(world.bytes.clone(), "store", options);
    let queue = within("open", open).await.unwrap();
    let id = queue.enqueue("q", b"first".to_vec()).await.unwrap();
    queue.claim("q", LEASE).await.unwrap().unwrap();
    churn(&queue).await;
    world.assert_found_after_crash(queue, &id).await;
}

/// The clock of the next host is an hour behind: what it schedules lies below the mark of scheduled jobs.
#[tokio::test]
async fn a_job_scheduled_by_a_clock_that_is_behind_is_found() {
    let mut world = World::new();
    let queue = world.open().await;
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(60));
        let options = EnqueueOptions::default().run_at(Some(world.in_ms(1_000)));
        let id = queue.enqueue_with("q", b"later".to_vec(), options).await.unwrap();
        world.clock.advance(Duration::from_secs(1));
        queue.promote_scheduled_now().await.unwrap();
        let claim = queue.claim_next("q").await.unwrap().unwrap();
        assert_eq!(claim.id, id);
        queue.ack(&claim).await.unwrap();
    }
    // One that is far off, so that there is something to look for.
    let options = EnqueueOptions::default().run_at(Some(world.in_ms(7_200_000)));
    queue.enqueue_with("q", b"far".to_vec(), options).await.unwrap();
    queue.close().await.unwrap();

    world.clock = MockClock::new(world.clock.now_ms() - 3_600_000);
    let queue = world.open().await;
    let options = EnqueueOptions::default().run_at(Some(world.in_ms(5_000)));
    let id = queue.enqueue_with("q", b"behind".to_vec(), options).await.unwrap();
    crash(queue).await;
    audit(&world.bytes, "store", Some(false)).await;
    let queue = world.open().await;
    world.clock.advance(Duration::from_secs(5));
    queue.promote_scheduled_now().await.unwrap();
    let claim = within("a claim", queue.claim_next("q")).await.unwrap();
    assert_eq!(claim.map(|claim| claim.id.clone()), Some(id));
    assert_eq!(queue.view().stats("q").await.unwrap().scheduled, 1);
    let far = queue.view().list_jobs("q", JobStatus::Scheduled, None, 9).await.unwrap();
    assert_eq!(far.jobs[0].payload, b"far");
}

/// What fell due while nobody was there is ready once a look at the time has returned, however soon after the opening.
#[tokio::test]
async fn what_falls_due_while_nobody_is_there_is_ready_after_the_first_look() {
    let world = World::new();
    for turn in 0..20 {
        let queue = world.open().await;
        let options = EnqueueOptions::default().run_at(Some(world.in_ms(1_000)));
        let id = queue.enqueue_with("q", vec![b'p'; 600], options).await.unwrap();
        crash(queue).await;
        world.clock.advance(Duration::from_secs(1));
        let queue = world.open().await;
        queue.promote_scheduled_now().await.unwrap();
        let claim = within("a claim", queue.claim_next("q")).await.unwrap();
        let claim = claim.unwrap_or_else(|| panic!("turn {turn}: nothing is ready"));
        assert_eq!(claim.id, id);
        queue.ack(&claim).await.unwrap();
        crash(queue).await;
    }
}
