//! A host whose clock is an hour behind takes a store over that has tables and a log to replay. SlateDB refuses tables
//! that are older than those it has; the next owner must open it at once and go on all the same.

use std::sync::Arc;
use std::time::Duration;

use taquba::object_store::memory::InMemory;
use taquba::{JobStatus, Knobs, OpenOptions, Queue};

use crate::support::audit::audit;
use crate::support::real::list;
use crate::support::within;

#[tokio::test]
async fn a_host_an_hour_behind_opens_what_others_left_and_writes_tables_too() {
    let bytes = Arc::new(InMemory::new());
    let mut expected = 0;
    // Small memtables leave tables, usual ones a log; small ones make tables of that log while they replay it.
    let lives = [(0, true), (0, false), (1, true), (1, false), (2, true), (0, true), (1, false)];
    for (life, (hours_behind, small)) in lives.into_iter().enumerate() {
        let knobs = Knobs {
            memtable_bytes: small.then_some(1_000),
            host_behind: Duration::from_secs(3_600 * hours_behind),
            ..Knobs::default()
        };
        let options = OpenOptions { knobs, ..OpenOptions::default() };
        let open = Queue::open_with_options(bytes.clone(), "store", options);
        let queue = within("open", open).await.unwrap_or_else(|e| panic!("life {life}: {e}"));
        for _ in 0..12 {
            let enqueue = queue.enqueue("q", vec![b'p'; 400]);
            within("enqueue", enqueue).await.unwrap_or_else(|e| panic!("life {life}: {e}"));
            expected += 1;
        }
        let jobs = list(&queue, "q", JobStatus::Pending, 1_000).await;
        assert_eq!(jobs.len(), expected, "life {life}");
        // Most of them end by a crash, with a log to replay.
        let crashes = life % 4 != 3;
        if crashes {
            let closed = queue.closed();
            drop(queue);
            within("the end", closed).await;
        } else {
            within("close", queue.close()).await.unwrap();
        }
        audit(&bytes, "store", Some(!crashes)).await;
    }
}

/// Each opening writes tables of the log it replays. An owner that dies at once, again and again, leaves more of them
/// than anybody compacts; the next opening must not wait for that.
#[tokio::test]
async fn owners_that_die_at_once_again_and_again_leave_a_store_that_opens() {
    let bytes = Arc::new(InMemory::new());
    let mut expected = 0;
    for life in 0..30 {
        let knobs = Knobs { memtable_bytes: Some(1_000), ..Knobs::default() };
        let options = OpenOptions { knobs, ..OpenOptions::default() };
        let open = Queue::open_with_options(bytes.clone(), "store", options);
        let queue = within("open", open).await.unwrap_or_else(|e| panic!("life {life}: {e}"));
        for _ in 0..3 {
            within("enqueue", queue.enqueue("q", vec![b'p'; 700])).await.unwrap();
            expected += 1;
        }
        let stats = queue.view().stats("q").await.unwrap();
        assert_eq!(stats.pending, expected, "life {life}");
        let closed = queue.closed();
        drop(queue);
        within("the end", closed).await;
    }
}
