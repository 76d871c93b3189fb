//! The chores of this repository: `cargo xtask <chore>`. Only the standard library, so that the first
//! run on a new machine takes seconds.

mod crates;
mod source;
mod test;
mod tidy;
mod tokens;
mod tree;

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Why a chore failed, as a sentence for the person who typed it.
type Fault = Box<dyn Error>;

const USAGE: &str = "\
usage: cargo xtask <chore>
  test    run every test of the workspace, then the doctests
  tidy    check the house rules that neither the compiler nor clippy can
  crates  count the crates that a cold build of taquba-workflow compiles
";

fn main() -> ExitCode {
    let chore: Vec<String> = env::args().skip(1).collect();
    let done = match chore.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => test::run(),
        ["tidy"] => tidy::run(),
        ["crates"] => crates::run(),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository: the folder that holds this crate's.
fn root() -> Result<PathBuf, Fault> {
    let own = env::var_os("CARGO_MANIFEST_DIR").ok_or("run this as `cargo xtask`")?;
    let root = PathBuf::from(own).parent().map(PathBuf::from);
    Ok(root.ok_or("xtask has no parent folder")?)
}

/// The cargo that runs this, so that a chosen toolchain stays chosen.
fn cargo() -> Result<Command, Fault> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()?);
    Ok(cargo)
}
