//! The bytes of every key and value, as docs/layout.md shows them. A change here is a change of format: bump the
//! record version or the format stamp, and keep a store of the old one as a fixture.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::record::{
    ClaimRow, Counters, Mark, decode_claim, decode_headers, decode_job, encode_claim,
    encode_headers, encode_job,
};
use super::{beat, history, keys};
use crate::lifecycle::history::Entry;
use crate::lifecycle::job::{
    Body, Hold, Job, Object, ObjectName, Payload, Place, Progress, Rules, State, Woken,
};
use crate::lifecycle::term::Kind;
use crate::liveness::WriterHeartbeat;
use crate::name::QueueName;
use crate::record::AttemptOutcome;
use crate::retry::RetryPolicy;

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn job(payload: Payload, state: State) -> Job {
    let headers = [("a".to_owned(), "1".to_owned())];
    Job {
        body: Arc::new(Body {
            id: "01J".into(),
            queue: QueueName::new("mail").unwrap(),
            priority: 1_000,
            order: 7,
            enqueued_at: 300,
            max_attempts: 3,
            headers: encode_headers(headers.iter().map(|(n, v)| (n, v))),
            payload,
            rules: Rules {
                retry: Some(RetryPolicy::list([Duration::from_millis(300)]).jitter(20)),
                max_run_ms: Some(9),
                expire_at: Some(300),
            },
        }),
        attempts: 1,
        epoch: 2,
        last_error: Some("boom".into()),
        dedup: Some("d".into()),
        cancel_requested: true,
        signal_key: Some("s".into()),
        woken: Some(Woken { at: 5, payload: Some(Bytes::from_static(b"w")) }),
        result: Some(Bytes::from_static(b"r")),
        history: 2,
        state,
    }
}

fn inline() -> Payload {
    Payload::Inline(Bytes::from_static(b"hi"))
}

fn object() -> Payload {
    let name = ObjectName { store: 0x5107e, epoch: 300, upload: (300 << 80) | 9 };
    Payload::Object(Object { name, size: 600, crc: 0x00c0_ffee })
}

#[test]
fn payload_objects_have_these_names_and_nothing_else_is_taken_for_one() {
    let name = object().object().unwrap().name;
    let text = "000000000005107e/000000000000012c-00000000012c00000000000000000009";
    assert_eq!(name.to_string(), text);
    let (folder, file) = text.split_once('/').unwrap();
    assert_eq!(folder, format!("{:016x}", name.store));
    assert_eq!(ObjectName::parse(name.store, file), Some(name));
    let others = ["", "-", "x", "12c-9", &file[1..], &file.to_uppercase(), &file.replace('-', "+")];
    for other in others {
        assert_eq!(ObjectName::parse(name.store, other), None, "{other}");
    }
    let signed = format!("+{}", &file[1..]);
    assert_eq!(ObjectName::parse(name.store, &signed), None);
}

#[test]
fn keys_have_these_bytes() {
    let place = Place { priority: 1_000, order: 7 };
    let keys = [
        show(&keys::ready("mail", place)),
        show(&keys::payload("mail", place)),
        show(&keys::scheduled(300, 7)),
        show(&keys::claim(1)),
        show(&keys::main(&job(inline(), State::Done { completed_at: 300 }))),
        show(&keys::dead("mail", "01J")),
        show(&keys::index("01J")),
        show(&keys::history(7, 1)),
        show(&keys::dedup("mail", "d")),
        show(&keys::wait("mail", "s")),
        show(&keys::signal("mail", "s")),
        show(&keys::counters("mail")),
        show(&keys::low("mail", 1_000)),
        show(&keys::dead_by_time("mail", 300, 7)),
        show(&keys::expiring("mail", 300, 7)),
        show(&keys::kept_low("mail", Kind::Expiring)),
        show(&keys::kept_low("mail", Kind::Dead)),
        show(&keys::kept_low("mail", Kind::Done)),
        show(&keys::paused("mail")),
        show(&keys::aside(b"PX")),
        show(&keys::entry("mail", "e-1")),
        show(&keys::entry_by_time("mail", 300, "e-1")),
        show(&keys::kept_low("mail", Kind::Entry)),
        show(&keys::kv(b"mine")),
        show(&keys::object(&object().object().unwrap().name)),
    ];
    assert_eq!(
        keys,
        [
            r"P\x04mail\x00\x00\x03\xe8\x00\x00\x00\x00\x00\x00\x00\x07",
            r"B\x04mail\x00\x00\x03\xe8\x00\x00\x00\x00\x00\x00\x00\x07",
            r"S\x00\x00\x00\x00\x00\x00\x01,\x00\x00\x00\x00\x00\x00\x00\x07",
            r"C\x00\x00\x00\x01",
            r"D\x04mail\x00\x00\x00\x00\x00\x00\x01,\x00\x00\x00\x00\x00\x00\x00\x07",
            r"X\x04mail01J",
            r"I01J",
            r"H\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x01",
            r"U\x04maild",
            r"W\x04mails",
            r"G\x04mails",
            r"N\x04mail",
            r"L\x04mail\x00\x00\x03\xe8",
            r"Y\x04mail\x00\x00\x00\x00\x00\x00\x01,\x00\x00\x00\x00\x00\x00\x00\x07",
            r"Z\x04mail\x00\x00\x00\x00\x00\x00\x01,\x00\x00\x00\x00\x00\x00\x00\x07",
            r"R\x04mailZ",
            r"R\x04mailX",
            r"R\x04mailD",
            r"Q\x04mail",
            r"VPX",
            r"E\x04maile-1",
            r"T\x04mail\x00\x00\x00\x00\x00\x00\x01,e-1",
            r"R\x04mailE",
            r"Kmine",
            r"O\x00\x00\x00\x00\x00\x05\x10~\x00\x00\x00\x00\x00\x00\x01,\x00\x00\x00\x00\x01,\x00\x00\x00\x00\x00\x00\x00\x00\x00\t",
        ]
    );
}

#[test]
fn job_records_have_these_bytes_and_come_back() {
    let apart = Payload::Apart { size: 600, bytes: None };
    let cases = [
        (
            job(inline(), State::Pending),
            r"\x01\x00\xbf\x0e\x00\xac\x02\x07\xe8\x07\x01\x03\x02\x0301J\x04mail\x04boom\x01d\x01s\x05\x01w\x02\x0e\x14\x01\xac\x02\t\xac\x02\x01r\x04\x01a\x011hi",
        ),
        (
            job(inline(), State::Scheduled { run_at: 300 }),
            r"\x01\x01\xbf\x0e\xac\x02\xac\x02\x07\xe8\x07\x01\x03\x02\x0301J\x04mail\x04boom\x01d\x01s\x05\x01w\x02\x0e\x14\x01\xac\x02\t\xac\x02\x01r\x04\x01a\x011hi",
        ),
        (
            job(inline(), State::Done { completed_at: 300 }),
            r"\x01\x02\xbf\x0e\xac\x02\xac\x02\x07\xe8\x07\x01\x03\x02\x0301J\x04mail\x04boom\x01d\x01s\x05\x01w\x02\x0e\x14\x01\xac\x02\t\xac\x02\x01r\x04\x01a\x011hi",
        ),
        (
            job(apart, State::Dead { failed_at: 300 }),
            r"\x01\x03\xff\x0e\xac\x02\xac\x02\x07\xe8\x07\x01\x03\x02\x0301J\x04mail\x04boom\x01d\x01s\x05\x01w\x02\x0e\x14\x01\xac\x02\t\xac\x02\x01r\x04\x01a\x011\xd8\x04",
        ),
        (
            job(object(), State::Dead { failed_at: 300 }),
            r"\x01\x03\xbf\x0f\xac\x02\xac\x02\x07\xe8\x07\x01\x03\x02\x0301J\x04mail\x04boom\x01d\x01s\x05\x01w\x02\x0e\x14\x01\xac\x02\t\xac\x02\x01r\x04\x01a\x011\xd8\x04\x00\xc0\xff\xee\x00\x00\x00\x00\x00\x05\x10~\xac\x02\x00\x00\x00\x00\x01,\x00\x00\x00\x00\x00\x00\x00\x00\x00\t",
        ),
    ];
    for (job, bytes) in cases {
        let encoded = encode_job(&job);
        assert_eq!(show(&encoded), bytes);
        assert_eq!(decode_job(encoded), Ok(job));
    }
}

#[test]
fn a_claimed_job_has_the_record_of_a_pending_one_and_a_row_of_its_own() {
    let hold = Hold { slot: Some(1), claimed_at: 300, cancel_requested: true, progress: None };
    let claimed = job(inline(), State::Claimed(hold.clone()));
    assert_eq!(encode_job(&claimed), encode_job(&job(inline(), State::Pending)));
    let row = encode_claim(&claimed, &hold);
    assert_eq!(
        show(&row),
        r"\x01\x01\xac\x02P\x04mail\x00\x00\x03\xe8\x00\x00\x00\x00\x00\x00\x00\x07"
    );
    let main = keys::main(&claimed);
    let plain = ClaimRow { hold: hold.clone(), main: main.clone() };
    assert_eq!(decode_claim(&keys::claim(1), row), Ok(plain));
    let progress = Arc::new(Progress { percent: 40, at: 301, note: "so far".into() });
    let hold = Hold { progress: Some(progress), ..hold };
    let row = encode_claim(&claimed, &hold);
    assert_eq!(
        show(&row),
        r"\x01\x03\xac\x02(\xad\x02\x06so farP\x04mail\x00\x00\x03\xe8\x00\x00\x00\x00\x00\x00\x00\x07"
    );
    assert_eq!(decode_claim(&keys::claim(1), row), Ok(ClaimRow { hold, main }));
}

#[test]
fn entries_of_a_history_have_these_bytes_and_come_back() {
    let entry = Entry {
        attempt: 2,
        claimed_at: Some(300),
        recorded_at: 301,
        outcome: AttemptOutcome::LeaseExpired,
        error: Some("late".into()),
    };
    let bytes = history::encode(&entry);
    assert_eq!(show(&bytes), r"\x01\x03\x03\x02\xad\x02\xac\x02\x04late");
    assert_eq!(history::decode(bytes), Ok(entry.clone()));
    let outcome = AttemptOutcome::Requeued;
    let back = Entry { claimed_at: None, error: None, outcome, ..entry };
    let bytes = history::encode(&back);
    assert_eq!(show(&bytes), r"\x01\x05\x00\x02\xad\x02");
    assert_eq!(history::decode(bytes), Ok(back));
}

#[test]
fn counters_and_the_mark_have_these_bytes_and_come_back() {
    let counters = Counters { pending: 1, scheduled: 2, claimed: 3, done: 300, dead: 4 };
    assert_eq!(show(&counters.encode()), r"\x01\x01\x02\x03\xac\x02\x04");
    assert_eq!(Counters::decode(counters.encode()), Ok(counters));
    let mark = Mark { time_ms: 300, id: 9, order: 7, epoch: 2 };
    let bytes = mark.encode();
    assert_eq!(show(&bytes), format!(r"\x01\xac\x02{}\t\x07\x02", r"\x00".repeat(15)));
    assert_eq!(Mark::decode(bytes), Ok(mark));
}

#[test]
fn a_beat_has_these_bytes_and_comes_back() {
    let beat = WriterHeartbeat {
        counter: 300,
        at_ms: 5,
        interval: Duration::from_secs(3),
        writer_epoch: 2,
        closed: true,
    };
    let bytes = beat::encode(&beat);
    assert_eq!(show(&bytes), r"\x01\x01\xac\x02\x05\xb8\x17\x02");
    assert_eq!(beat::decode(bytes.clone()), Ok(beat));
    for end in 0..bytes.len() {
        assert!(beat::decode(bytes.slice(..end)).is_err(), "cut at {end}");
    }
}

#[test]
fn damaged_records_are_refused_and_never_panic() {
    for payload in [Payload::Apart { size: 600, bytes: None }, object()] {
        damage(&encode_job(&job(payload, State::Pending)));
    }
    assert!(decode_headers(&Bytes::from_static(&[9])).is_err());
}

fn damage(whole: &Bytes) {
    for end in 0..whole.len() {
        assert!(decode_job(whole.slice(..end)).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 1 << bit;
            // Any answer will do, so long as it is one.
            drop(decode_job(bytes.into()));
        }
    }
}
