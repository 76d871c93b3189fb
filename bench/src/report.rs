//! Turns the lines of a run into `RESULTS.md`: medians with their range, and the ratio to the peer.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use crate::record::Record;
use crate::system::{Fault, WORKER_POLL};
use crate::tally::PAYLOAD_BYTES;

/// The system that others are set in relation to.
const OURS: &str = "ours";

/// Reads the records of `input`, writes the report to `output`.
pub(crate) fn write(input: &str, output: &str) -> Result<(), Fault> {
    let text = fs::read_to_string(input).map_err(|e| format!("cannot read {input}: {e}"))?;
    let records = text.lines().filter(|line| !line.trim().is_empty());
    let records: Vec<Record> = records.map(serde_json::from_str).collect::<Result<_, _>>()?;
    if records.is_empty() {
        return Err(format!("{input} holds no record").into());
    }
    fs::write(output, render(&records, &Machine::of_this_run())?)?;
    Ok(())
}

/// Where the figures come from.
struct Machine {
    cpu: String,
    cores: usize,
    memory_gib: String,
    commit: String,
    rustc: String,
}

impl Machine {
    fn of_this_run() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = field(&meminfo, "MemTotal").and_then(|v| v.split(' ').next()?.parse().ok());
        let changed = said_by("git", &["status", "--porcelain", "--", "crates", "bench/src"]);
        let mark =
            if changed.is_some_and(|files| !files.is_empty()) { " with changes" } else { "" };
        let commit = said_by("git", &["rev-parse", "--short=12", "HEAD"]);
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: kib.map_or("?".to_owned(), |k: f64| format!("{:.0}", k / 1024.0 / 1024.0)),
            commit: commit.unwrap_or_else(|| "none yet".to_owned()) + mark,
            rustc: said_by("rustc", &["--version"]).unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn said_by(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn render(records: &[Record], machine: &Machine) -> Result<String, Fault> {
    let mut out = String::new();
    writeln!(out, "# Figures\n")?;
    writeln!(out, "Written by `bench report`; how to repeat it: `README.md` beside this file.\n")?;
    let Machine { cpu, cores, memory_gib, commit, rustc } = machine;
    writeln!(out, "- machine: {cpu}, {cores} cores, {memory_gib} GiB")?;
    writeln!(out, "- commit: {commit}; {rustc}, release")?;
    let poll = WORKER_POLL.as_millis();
    writeln!(
        out,
        "- settings: memory store, {PAYLOAD_BYTES} B payload, worker poll {poll} ms, one process per run; \
         all loops are closed (a producer awaits one call before the next)"
    )?;
    writeln!(
        out,
        "- systems: `ours` as it comes; `peer` is the published `taquba` 0.16.0 as it comes, \
         `peer-1ms` the same with a flush interval of 1 ms\n"
    )?;
    writeln!(
        out,
        "Each cell is the median, with the smallest and largest in brackets. *ratio* is ours to \
         that system in jobs per second.\n"
    )?;
    for (scenario, settings) in distinct(records, |r| (r.scenario.clone(), r.settings.clone())) {
        let of_case: Vec<&Record> =
            records.iter().filter(|r| r.scenario == scenario && r.settings == settings).collect();
        writeln!(out, "## {scenario}: {settings}\n")?;
        render_case(&mut out, &of_case)?;
    }
    Ok(out)
}

fn render_case(out: &mut String, records: &[&Record]) -> Result<(), Fault> {
    writeln!(
        out,
        "| system | runs | jobs | jobs/s | ratio | p50 ms | p99 ms | longest enqueue ms | CPU µs/job | peak MiB | lost | doubled |"
    )?;
    writeln!(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
    let speed = |system: &str| median(&values(records, system, |r| Some(r.per_s)));
    let ours = speed(OURS);
    for system in distinct(records, |r| r.system.clone()) {
        let cell = |of: fn(&Record) -> Option<f64>| spread(&values(records, &system, of));
        let sum = |of: fn(&Record) -> u64| -> u64 {
            records.iter().filter(|r| r.system == system).map(|r| of(r)).sum()
        };
        let ratio = ours.zip(speed(&system)).filter(|_| system != OURS);
        writeln!(
            out,
            "| {system} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            values(records, &system, |r| Some(r.per_s)).len(),
            cell(|r| Some(r.jobs as f64)),
            cell(|r| Some(r.per_s)),
            ratio.map_or_else(|| "–".to_owned(), |(a, b)| format!("{:.2}×", a / b)),
            cell(|r| r.p50_ms),
            cell(|r| r.p99_ms),
            cell(|r| r.stall_ms),
            cell(|r| r.cpu_us_per_job),
            cell(|r| r.rss_mb),
            sum(|r| r.lost),
            sum(|r| r.doubled),
        )?;
    }
    writeln!(out)?;
    Ok(())
}

/// The different values of `key`, in the order of their first record.
fn distinct<R, K: PartialEq>(records: &[R], key: impl Fn(&R) -> K) -> Vec<K> {
    let mut keys = Vec::new();
    for key in records.iter().map(key) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// The values of one system, sorted.
fn values(records: &[&Record], system: &str, of: fn(&Record) -> Option<f64>) -> Vec<f64> {
    let of_system = records.iter().filter(|r| r.system == system);
    let mut values: Vec<f64> = of_system.filter_map(|r| of(r)).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get((sorted.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

fn spread(sorted: &[f64]) -> String {
    match (median(sorted), sorted.first(), sorted.last()) {
        (Some(median), Some(min), Some(max)) if min < max => {
            format!("{} ({}–{})", number(median), number(*min), number(*max))
        }
        (Some(median), _, _) => number(median),
        _ => "–".to_owned(),
    }
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(system: &str, per_s: f64, lost: u64) -> Record {
        Record {
            scenario: "drain".to_owned(),
            system: system.to_owned(),
            settings: "workers=64".to_owned(),
            repeat: 0,
            jobs: 10,
            seconds: 10.0 / per_s,
            per_s,
            p50_ms: None,
            p99_ms: Some(1.5),
            stall_ms: None,
            lost,
            doubled: 0,
            cpu_us_per_job: Some(12.0),
            rss_mb: Some(100.0),
        }
    }

    #[test]
    fn the_report_shows_medians_ranges_and_ratios() {
        let records = [
            record("ours", 300.0, 0),
            record("ours", 200.0, 0),
            record("ours", 220.0, 0),
            record("peer", 110.0, 1),
        ];
        let machine = Machine {
            cpu: "some processor".to_owned(),
            cores: 2,
            memory_gib: "24".to_owned(),
            commit: "abc".to_owned(),
            rustc: "rustc 1".to_owned(),
        };
        let report = render(&records, &machine).unwrap();
        let rows: Vec<&str> = report.lines().filter(|line| line.contains("12.0")).collect();
        assert_eq!(
            rows,
            [
                "| ours | 3 | 10.0 | 220 (200–300) | – | – | 1.50 | 12.0 | 100 | 0 | 0 |",
                "| peer | 1 | 10.0 | 110 | 2.00× | – | 1.50 | 12.0 | 100 | 1 | 0 |",
            ]
        );
    }

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
        assert_eq!(median(&[]), None);
    }
}
