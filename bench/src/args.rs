//! The command line: what to run, how often, at what size.

use crate::scenarios::NAMES;
use crate::setup::Setup;
use crate::system::Fault;

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run every chosen case, each in a process of its own; one line of JSON per run to stdout.
    Run(Run),
    /// Run one case in this process: what `Run` starts.
    One(One),
    /// Turn the lines of `input` into the Markdown of `output`.
    Report { input: String, output: String },
}

/// Which cases, how often.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) scenarios: Vec<String>,
    pub(crate) systems: Vec<Setup>,
    pub(crate) repeat: usize,
    pub(crate) scale: f64,
}

/// One case of one scenario on one system.
#[derive(Debug)]
pub(crate) struct One {
    pub(crate) scenario: String,
    pub(crate) case: usize,
    pub(crate) system: Setup,
    pub(crate) repeat: usize,
    pub(crate) scale: f64,
}

pub(crate) const USAGE: &str = "\
usage:
  bench run [--scenario NAME]... [--system NAME]... [--repeat 5] [--scale 1.0] > bench/results.jsonl
  bench report [--in bench/results.jsonl] [--out bench/RESULTS.md]
";

impl Command {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Self, Fault> {
        let mut args = args;
        let verb = args.next().ok_or(USAGE)?;
        let mut options = Options::default();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
            options.take(&name, value)?;
        }
        match verb.as_str() {
            "run" => Ok(Self::Run(options.into_run())),
            "one" => Ok(Self::One(options.into_one()?)),
            "report" => Ok(Self::Report {
                input: options.input.unwrap_or_else(|| "bench/results.jsonl".to_owned()),
                output: options.output.unwrap_or_else(|| "bench/RESULTS.md".to_owned()),
            }),
            other => Err(format!("no command {other:?}\n{USAGE}").into()),
        }
    }
}

#[derive(Default)]
struct Options {
    scenarios: Vec<String>,
    systems: Vec<Setup>,
    case: usize,
    repeat: Option<usize>,
    scale: Option<f64>,
    input: Option<String>,
    output: Option<String>,
}

impl Options {
    fn take(&mut self, name: &str, value: String) -> Result<(), Fault> {
        match name {
            "--scenario" => self.scenarios.push(value),
            "--system" => self.systems.push(Setup::from_name(&value)?),
            "--case" => self.case = value.parse()?,
            "--repeat" => self.repeat = Some(value.parse()?),
            "--scale" => self.scale = Some(value.parse()?),
            "--in" => self.input = Some(value),
            "--out" => self.output = Some(value),
            other => return Err(format!("no option {other:?}\n{USAGE}").into()),
        }
        Ok(())
    }

    fn into_run(self) -> Run {
        let all = || NAMES.map(str::to_owned).to_vec();
        Run {
            scenarios: if self.scenarios.is_empty() { all() } else { self.scenarios },
            systems: if self.systems.is_empty() { Setup::ALL.to_vec() } else { self.systems },
            repeat: self.repeat.unwrap_or(5),
            scale: self.scale.unwrap_or(1.0),
        }
    }

    fn into_one(self) -> Result<One, Fault> {
        Ok(One {
            scenario: self.scenarios.into_iter().next().ok_or("--scenario is missing")?,
            case: self.case,
            system: self.systems.into_iter().next().ok_or("--system is missing")?,
            repeat: self.repeat.unwrap_or(0),
            scale: self.scale.unwrap_or(1.0),
        })
    }
}
