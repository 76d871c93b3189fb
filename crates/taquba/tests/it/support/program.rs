//! Programs of ours as processes of their own, whose lines are heard as they come.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;

/// Where cargo put an example, built now if a test was built without the examples.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let path = profile.join("examples").join(name);
    if !path.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--example", name]);
        cargo.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        assert!(cargo.status().unwrap().success());
    }
    path
}

/// A running program. It is killed, `-9`, when this is dropped.
pub(crate) struct Program {
    child: Child,
}

impl Program {
    /// Starts it; each of its lines goes to `told`, with `name`.
    pub(crate) fn start(
        example_name: &str,
        args: &[&str],
        name: usize,
        told: Sender<(usize, String)>,
    ) -> Self {
        let mut command = Command::new(example(example_name));
        let mut child =
            command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // A test that has ended hears no more.
                drop(told.send((name, line)));
            }
        });
        Self { child }
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let mut kill = Command::new("kill");
        assert!(kill.args([&format!("-{signal}"), &pid]).status().unwrap().success());
    }

    /// Ends its input, on which it closes by itself; waits until it has.
    pub(crate) fn end_input(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
