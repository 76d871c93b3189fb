//! Real processes on one folder: replicas that wait for each other, killed, frozen and closed in turn. One works at a
//! time, nothing that was confirmed is lost, nothing is done twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use taquba::Queue;

use crate::support::now;
use crate::support::program::Program;

const SILENCE_MS: &str = "800";
/// A machine that does other things too is slow; a wait that is longer than this hangs.
const LIMIT: Duration = Duration::from_secs(60);

struct Replicas {
    url: String,
    told: Sender<(usize, String)>,
    heard: Receiver<(usize, String)>,
    running: BTreeMap<usize, Program>,
    started: usize,
    /// What each said that it took, that it shipped, and its takeovers, in the order that they were heard.
    took: Vec<String>,
    shipped: Vec<(String, u64)>,
    owners: Vec<(usize, u64)>,
}

impl Replicas {
    fn new(folder: &std::path::Path) -> Self {
        let (told, heard) = channel();
        Self {
            url: format!("file://{}", folder.display()),
            told,
            heard,
            running: BTreeMap::new(),
            started: 0,
            took: Vec::new(),
            shipped: Vec::new(),
            owners: Vec::new(),
        }
    }

    fn start(&mut self) {
        let name = self.started;
        self.started += 1;
        let args = [&self.url, &name.to_string(), SILENCE_MS];
        let program = Program::start("rolling_deploy", &args, name, self.told.clone());
        self.running.insert(name, program);
    }

    /// Listens until somebody says `text`; answers who.
    fn until(&mut self, text: &str) -> usize {
        loop {
            let (name, line) = self.heard.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{text}"));
            let last = line.rsplit(' ').next().unwrap().to_owned();
            if line.contains("owns the store") {
                self.owners.push((name, last.parse().unwrap()));
            } else if line.contains("took") {
                self.took.push(last);
            } else if line.contains("shipped") {
                let (_, takeover) = self.owners.iter().rfind(|(owner, _)| *owner == name).unwrap();
                self.shipped.push((last, *takeover));
            }
            if line.contains(text) {
                return name;
            }
        }
    }

    fn works_on(&mut self, orders: usize) {
        for _ in 0..orders {
            self.until("shipped");
        }
    }

    fn owner(&self) -> usize {
        self.owners.last().unwrap().0
    }

    /// What is confirmed is there; what was confirmed as done is done once.
    async fn check(&mut self) {
        self.running.clear();
        while let Ok((_, line)) = self.heard.try_recv() {
            let last = line.rsplit(' ').next().unwrap().to_owned();
            if line.contains("took") {
                self.took.push(last);
            }
        }
        let takeovers: Vec<u64> = self.owners.iter().map(|(_, takeover)| *takeover).collect();
        let expected: Vec<u64> = (1..=takeovers.len() as u64).collect();
        assert_eq!(takeovers, expected, "each owner is the next after the one before");
        let once: BTreeSet<&String> = self.shipped.iter().map(|(order, _)| order).collect();
        assert_eq!(once.len(), self.shipped.len(), "an order was confirmed as shipped twice");

        let (bucket, path) = taquba::open_url(&self.url, std::env::vars()).unwrap();
        let queue = Queue::open(bucket, path.join("jobs").as_ref()).await.unwrap();
        let view = queue.view();
        let count = view.kv_get(b"orders").await.unwrap().unwrap();
        let count: usize = std::str::from_utf8(&count).unwrap().parse().unwrap();
        assert!(self.took.len() <= count, "{} of {count}", self.took.len());
        for order in (0..count).map(|number| format!("order-{number:06}")) {
            let shipped = view.kv_get(format!("shipped/{order}").as_bytes()).await.unwrap();
            let job = view.get_job(&order).await.unwrap();
            assert!(shipped.is_some() || job.is_some(), "{order} is lost");
            assert!(shipped.is_none() || job.is_none(), "{order} is shipped and would be again");
        }
        for (order, takeover) in &self.shipped {
            let by = view.kv_get(format!("shipped/{order}").as_bytes()).await.unwrap();
            let takeover = takeover.to_string();
            assert_eq!(by.as_deref(), Some(takeover.as_bytes()), "who shipped {order}");
        }
        println!("{count} orders taken, {} confirmed as shipped", self.shipped.len());
        queue.close().await.unwrap();
    }
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("taquba-{name}-{}", std::process::id()));
    // A run before may have left it.
    drop(std::fs::remove_dir_all(&folder));
    folder
}

#[tokio::test]
async fn three_replicas_killed_in_turn_work_one_at_a_time_and_lose_nothing() {
    let folder = folder("replicas");
    let mut replicas = Replicas::new(&folder);
    // All at once, on a store that is not there yet.
    (0..3).for_each(|_| replicas.start());
    replicas.until("owns the store");
    for how in ["KILL", "KILL", "KILL", "close"] {
        replicas.works_on(10);
        let owner = replicas.owner();
        let mut program = replicas.running.remove(&owner).unwrap();
        let began = now();
        match how {
            "close" => program.end_input(),
            how => program.signal(how),
        }
        drop(program);
        let next = replicas.until("owns the store");
        println!("{how}: {owner} is gone, {next} has the store after {:?}", now() - began);
        assert_ne!(next, owner);
        replicas.start();
    }

    // Frozen, so that it cannot know: the next one takes over, and the first finds out when it thaws.
    replicas.works_on(10);
    let owner = replicas.owner();
    replicas.running[&owner].signal("STOP");
    let next = replicas.until("owns the store");
    assert_ne!(next, owner);
    replicas.works_on(10);
    replicas.running[&owner].signal("CONT");
    assert_eq!(replicas.until("stops: "), owner);
    assert_eq!(replicas.until("waits for its turn"), owner);
    replicas.works_on(50);
    assert_eq!(replicas.owner(), next, "a fenced process fenced back");
    replicas.check().await;
    std::fs::remove_dir_all(&folder).unwrap();
}
