//! Measures this repository's `taquba` beside its published peer, in one run on one machine.
//!
//! `bench run` starts one process per scenario, case, system and repeat, so that memory, caches and
//! processor time belong to that run alone; the systems take turns at going first. See `README.md`.

mod adapter;
mod args;
mod measure;
#[cfg(feature = "ours")]
mod ours;
mod peer;
mod record;
mod report;
mod scenarios;
mod setup;
mod system;
mod tally;

use std::process::ExitCode;

use args::{Command, One, Run};
use record::Record;
use system::Fault;

fn main() -> ExitCode {
    let done = Command::parse(std::env::args().skip(1)).and_then(|command| match command {
        Command::Run(run) => run_all(&run),
        Command::One(one) => run_one(&one),
        Command::Report { input, output } => report::write(&input, &output),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("bench: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Starts one process per run; each writes its own line to the stdout that it inherits.
fn run_all(run: &Run) -> Result<(), Fault> {
    let program = std::env::current_exe()?;
    for repeat in 0..run.repeat {
        for scenario in &run.scenarios {
            for case in 0..scenarios::cases(scenario, run.scale)?.len() {
                for turn in 0..run.systems.len() {
                    let system = run.systems[(turn + repeat) % run.systems.len()];
                    eprintln!("{scenario} case {case} {} repeat {repeat}", system.name());
                    let status = std::process::Command::new(&program)
                        .arg("one")
                        .args(["--scenario", scenario])
                        .args(["--case", &case.to_string()])
                        .args(["--system", system.name()])
                        .args(["--repeat", &repeat.to_string()])
                        .args(["--scale", &run.scale.to_string()])
                        .status()?;
                    if !status.success() {
                        return Err(format!("{scenario} on {} failed", system.name()).into());
                    }
                }
            }
        }
    }
    Ok(())
}

fn run_one(one: &One) -> Result<(), Fault> {
    let cases = scenarios::cases(&one.scenario, one.scale)?;
    let case = cases.get(one.case).ok_or("no such case")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(one.system.run(&one.scenario, case))?;
    let rss_mb = measure::peak_rss_mb();
    let record = Record::new(&one.scenario, one.system.name(), case, one.repeat, &outcome, rss_mb);
    println!("{}", serde_json::to_string(&record)?);
    Ok(())
}
