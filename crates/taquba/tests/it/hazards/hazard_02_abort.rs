//! Hazard 2: a job that takes its process down at once, again and again. Real processes on a real folder: each is
//! started anew when it dies, as a supervisor would.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::ObjectStore;
use taquba::object_store::local::LocalFileSystem;
use taquba::{
    JobRecord, JobStatus, LeaseHandle, OpenOptions, Queue, QueueConfig, Worker, WorkerError,
    run_worker,
};
use tokio::sync::Notify;

/// Names the folder to the process that works in it.
const FOLDER: &str = "TAQUBA_HAZARD_02_FOLDER";
const MAX_ATTEMPTS: u32 = 3;
/// What the process says when it has done the healthy job and nothing else is left.
const DONE: i32 = 42;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's temporary folder.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

async fn open(folder: &Path) -> Queue {
    let store = LocalFileSystem::new_with_prefix(folder).unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(store.with_fsync(true));
    let config = QueueConfig::default().max_attempts(MAX_ATTEMPTS);
    let options = OpenOptions::default().default_queue_config(config);
    Queue::open_with_options(store, "hazards", options).await.unwrap()
}

struct Deadly {
    healthy_done: Arc<Notify>,
}

impl Worker for Deadly {
    async fn process(&self, job: &JobRecord, _: &LeaseHandle) -> Result<(), WorkerError> {
        if job.payload == b"poison" {
            std::process::abort();
        }
        self.healthy_done.notify_one();
        Ok(())
    }
}

/// What each of the processes does: it works until the healthy job is done, if it lives that long.
async fn live(folder: &Path) {
    let queue = open(folder).await;
    let healthy_done = Arc::new(Notify::new());
    let worker = Deadly { healthy_done: Arc::clone(&healthy_done) };
    let stop = async move { healthy_done.notified().await };
    run_worker(&queue, "q", &worker, Duration::ZERO, stop).await.unwrap();
    queue.close().await.unwrap();
    std::process::exit(DONE);
}

#[tokio::test]
async fn hazard_02_a_job_that_aborts_its_process_is_dead_lettered_and_the_next_one_runs() {
    // The test is its own process that dies.
    if let Some(folder) = std::env::var_os(FOLDER) {
        return live(Path::new(&folder)).await;
    }
    let name = format!("taquba-hazard-02-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&folder.0).unwrap();
    let queue = open(&folder.0).await;
    let poison = queue.enqueue("q", b"poison".to_vec()).await.unwrap();
    let healthy = queue.enqueue("q", b"healthy".to_vec()).await.unwrap();
    queue.close().await.unwrap();

    let mut deaths = 0;
    loop {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "--nocapture"]);
        let path = module_path!().split_once("::").unwrap().1;
        process.arg(format!(
            "{path}::hazard_02_a_job_that_aborts_its_process_is_dead_lettered_and_the_next_one_runs"
        ));
        let done = process.env(FOLDER, &folder.0).output().unwrap();
        if done.status.code() == Some(DONE) {
            break;
        }
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.signal().is_some(), "it ended otherwise: {:?} {said}", done.status);
        deaths += 1;
        assert!(deaths <= MAX_ATTEMPTS + 1, "{deaths} deaths by one job");
    }
    assert!(deaths >= MAX_ATTEMPTS, "only {deaths} deaths: given up before its attempts were");

    let queue = open(&folder.0).await;
    let dead = queue.view().dead_jobs("q", None, 10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((&dead[0].id, dead[0].attempts), (&poison, MAX_ATTEMPTS));
    assert!(dead[0].last_error.as_deref().unwrap().contains("interrupted"));
    assert!(queue.view().get_job(&healthy).await.unwrap().is_none());
    let stats = queue.view().stats("q").await.unwrap();
    assert_eq!((stats.done, stats.dead, stats.pending), (1, 1, 0));
    let pending = queue.view().list_jobs("q", JobStatus::Pending, None, 10).await.unwrap();
    assert!(pending.jobs.is_empty());
}
