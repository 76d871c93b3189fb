//! Stairs go one way: a module never names one of a higher floor, nor what its floor must not know.
//! The floors are those of ARCHITECTURE.md; modules that are in no table stand on floor 0, under all.

use super::Finding;
use crate::source::Source;
use crate::tokens::{Placed, Token, crate_paths, root_uses, tokens};

/// The house of one crate.
struct House {
    /// The crate's folder.
    folder: &'static str,
    floors: &'static [(&'static str, u8)],
    bars: &'static [Bar],
    exceptions: &'static [Exception],
}

/// What modules must not know.
struct Bar {
    of: &'static [&'static str],
    /// Words of the language and names of crates and types.
    words: &'static [&'static str],
    /// Modules of the same crate, whatever their floor.
    modules: &'static [&'static str],
    why: &'static str,
}

/// A step up that is allowed.
struct Exception {
    from: &'static str,
    to: &'static str,
    /// Why no other arrangement is better.
    reason: &'static str,
}

/// A `SystemTime` is a value like any other; that nobody reads the wall clock is clippy's to see.
const PURE: &[&str] = &[
    "tokio",
    "tokio_util",
    "slatedb",
    "slatedb_common",
    "async",
    "await",
    "Instant",
    "rand",
    "fastrand",
];

const PURE_WHY: &str = "decisions are pure: from (state, command, now) to a plan";

const HOUSES: &[House] = &[
    House {
        folder: "crates/taquba",
        floors: &[
            ("lifecycle", 1),
            ("store", 2),
            ("state", 2),
            ("engine", 3),
            ("queue", 4),
            ("reader", 4),
            ("worker", 5),
            ("background", 5),
        ],
        bars: &[
            Bar { of: &["lifecycle"], words: PURE, modules: &["clock", "env"], why: PURE_WHY },
            Bar {
                of: &["state"],
                words: &["slatedb", "slatedb_common", "await"],
                modules: &[],
                why: "what the process remembers is plain structs: no store, nothing to wait for",
            },
            Bar {
                of: &["engine", "queue", "reader", "worker", "background"],
                words: &["slatedb", "slatedb_common"],
                modules: &[],
                why: "`store` keeps SlateDB behind a narrow interface",
            },
        ],
        exceptions: &[],
    },
    House {
        folder: "crates/taquba-workflow",
        floors: &[("lifecycle", 1), ("store", 2), ("runtime", 3)],
        bars: &[Bar { of: &["lifecycle"], words: PURE, modules: &[], why: PURE_WHY }],
        exceptions: &[],
    },
];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    HOUSES.iter().flat_map(|house| house.check(sources)).collect()
}

impl House {
    fn check(&self, sources: &[Source]) -> Vec<Finding> {
        let files = || {
            sources.iter().filter_map(|source| match source.in_crate() {
                Some((folder, inside)) if folder == self.folder => Some((source, inside)),
                _ => None,
            })
        };
        let exports = files().find(|(_, inside)| *inside == "lib.rs");
        let exports = exports.map_or_else(Vec::new, |(root, _)| Export::all_of(root));
        let mut steps = Vec::new();
        let mut findings = Vec::new();
        for (source, inside) in files() {
            let module = module_of(inside);
            let Some(own) = module.first() else { continue };
            let tokens = tokens(source);
            findings.extend(self.barred_words(source, own, &tokens));
            for path in crate_paths(&tokens, &module) {
                let Some(name) = path.segments.first() else {
                    continue;
                };
                let export = exports.iter().find(|export| export.name == *name);
                let to = export.map_or(name.as_str(), |export| export.module.as_str());
                let through = if to == name { String::new() } else { format!(" (as `{name}`)") };
                findings.extend(self.barred_module(source, path.line, own, to));
                if self.floor(to) > self.floor(own) {
                    steps.push(Step {
                        source,
                        line: path.line,
                        from: (*own).to_owned(),
                        to: to.to_owned(),
                        through,
                    });
                }
            }
        }
        findings.extend(steps.iter().filter_map(|step| self.climb(step)));
        findings
            .extend(self.exceptions.iter().filter_map(|exception| self.unused(exception, &steps)));
        findings
    }

    fn floor(&self, module: &str) -> u8 {
        self.floors.iter().find(|(name, _)| *name == module).map_or(0, |(_, floor)| *floor)
    }

    fn climb(&self, step: &Step<'_>) -> Option<Finding> {
        let Step { source, line, from, to, through } = step;
        if self.exceptions.iter().any(|exception| exception.from == from && exception.to == to) {
            return None;
        }
        let (low, high) = (self.floor(from), self.floor(to));
        let message = format!(
            "`{from}` (floor {low}) names `{to}`{through} (floor {high}): a lower floor never \
             names a higher one; move the piece down, or hand it in"
        );
        Some(Finding::new(&source.path, *line, message))
    }

    fn unused(&self, exception: &Exception, steps: &[Step<'_>]) -> Option<Finding> {
        let Exception { from, to, reason } = exception;
        let used = steps.iter().any(|step| step.from == *from && step.to == *to);
        let message = format!("`{from}` no longer names `{to}` ({reason}): take out the exception");
        (!used).then(|| Finding::new(self.folder, 0, message))
    }

    fn barred_words(&self, source: &Source, own: &str, tokens: &[Placed<'_>]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for bar in self.bars.iter().filter(|bar| bar.of.contains(&own)) {
            for placed in tokens {
                if let Token::Word(word) = placed.token
                    && bar.words.contains(&word)
                {
                    let message = format!("`{own}` must not know `{word}`: {}", bar.why);
                    findings.push(Finding::new(&source.path, placed.line, message));
                }
            }
        }
        findings
    }

    fn barred_module(&self, source: &Source, line: usize, own: &str, to: &str) -> Option<Finding> {
        let bar =
            self.bars.iter().find(|bar| bar.of.contains(&own) && bar.modules.contains(&to))?;
        let message = format!("`{own}` must not know `crate::{to}`: {}", bar.why);
        Some(Finding::new(&source.path, line, message))
    }
}

/// One place where a module names another of a higher floor.
struct Step<'a> {
    source: &'a Source,
    line: usize,
    from: String,
    to: String,
    /// The public name, where the root's stands for the module's.
    through: String,
}

/// A name that the crate's root hands on: naming it is naming the module that it comes from.
struct Export {
    name: String,
    module: String,
}

impl Export {
    fn all_of(root: &Source) -> Vec<Self> {
        let uses = root_uses(&tokens(root));
        uses.into_iter()
            .filter_map(|path| {
                let module = path.segments.first()?.clone();
                let name = path.alias.or_else(|| path.segments.last().cloned())?;
                Some(Self { name, module })
            })
            .collect()
    }
}

/// Where a file stands: `["a", "b"]` for `a/b.rs`, nothing for the root file.
fn module_of(inside: &str) -> Vec<&str> {
    let path = inside.strip_suffix(".rs").unwrap_or(inside);
    let mut module: Vec<&str> = path.split('/').collect();
    if matches!(module.last(), Some(&("mod" | "lib" | "main"))) {
        module.pop();
    }
    module
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_HOUSE: House = House {
        folder: "crates/house",
        floors: &[("lifecycle", 1), ("store", 2), ("state", 2), ("queue", 4)],
        bars: &[
            Bar { of: &["lifecycle"], words: PURE, modules: &["clock"], why: "pure" },
            Bar { of: &["state"], words: &["slatedb", "await"], modules: &[], why: "plain" },
        ],
        exceptions: &[Exception { from: "error", to: "store", reason: "carries its errors" }],
    };

    const LIB: (&str, &str) = ("lib.rs", "mod queue; pub use queue::{Queue, Inner as Outer};");
    const EXCEPTED: (&str, &str) = ("error.rs", "use crate::store::Codec;");

    /// The findings about `file`, in a crate that is tidy otherwise.
    fn messages(file: (&str, &str)) -> Vec<String> {
        findings(&[LIB, EXCEPTED, file])
    }

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let source = |(inside, text): &(&str, &str)| {
            Source::new(&format!("crates/house/src/{inside}"), text)
        };
        let sources: Vec<Source> = files.iter().map(source).collect();
        TEST_HOUSE.check(&sources).into_iter().map(|finding| finding.message).collect()
    }

    #[track_caller]
    fn assert_finds(file: (&str, &str), what: &str) {
        let found = messages(file);
        assert!(found.len() == 1 && found.iter().all(|m| m.contains(what)), "{file:?}: {found:?}");
    }

    #[test]
    fn climbing_is_found_however_it_is_written() {
        let climb = "`lifecycle` (floor 1) names `store`";
        assert_finds(("lifecycle/a.rs", "use crate::store::Row;"), climb);
        assert_finds(("lifecycle/a.rs", "use crate::{\n  error::E,\n  store::{Row},\n};"), climb);
        assert_finds(("lifecycle/mod.rs", "use super::store;"), climb);
        assert_finds(("lifecycle/a.rs", "fn f(x: super::super::store::Row) {}"), climb);
        assert_finds(("lifecycle.rs", "mod x { use super::super::store::Row; }"), climb);
        assert_finds(("store/a.rs", "use crate::queue::Queue;"), "`store` (floor 2) names `queue`");
    }

    #[test]
    fn a_public_name_stands_for_its_module() {
        assert_finds(("store/a.rs", "use crate::Queue;"), "`queue` (as `Queue`)");
        assert_finds(("state.rs", "fn f(_: &crate::Outer) {}"), "`queue` (as `Outer`)");
    }

    #[test]
    fn root_modules_stand_under_all_floors() {
        assert_finds(("limits.rs", "use crate::lifecycle::Plan;"), "`limits` (floor 0)");
        assert_finds(("error.rs", "use crate::queue::Queue;"), "`error` (floor 0) names `queue`");
    }

    #[test]
    fn going_down_and_sideways_is_free() {
        let free = [
            ("queue/a.rs", "use crate::{store::Row, lifecycle::Plan, limits};"),
            ("store/a.rs", "use crate::state::Ready; use super::rows;"),
            ("lifecycle/a.rs", "// use crate::store::Row;\nconst A: &str = \"crate::store::B\";"),
            ("lib.rs", "pub use crate::queue::Queue;"),
        ];
        for file in free {
            assert_eq!(messages(file), Vec::<String>::new(), "{file:?}");
        }
    }

    #[test]
    fn what_a_floor_must_not_know_is_found() {
        assert_finds(("lifecycle/a.rs", "use tokio::sync::Notify;"), "must not know `tokio`");
        assert_finds(("lifecycle/a.rs", "async fn f() {}"), "must not know `async`");
        assert_finds(
            ("lifecycle/a.rs", "fn f(t: std::time::Instant) {}"),
            "must not know `Instant`",
        );
        assert_finds(("lifecycle/a.rs", "use crate::clock::Clock;"), "`crate::clock`");
        assert_finds(("state/a.rs", "fn f(e: slatedb::Error) {}"), "must not know `slatedb`");
        assert_finds(("state/a.rs", "fn f() { g().await }"), "must not know `await`");
        assert_eq!(messages(("store/a.rs", "fn f(e: slatedb::Error) {}")), Vec::<String>::new());
    }

    #[test]
    fn an_exception_ends_with_its_reason() {
        let found = findings(&[LIB, ("error.rs", "use crate::limits;")]);
        assert!(found.iter().all(|m| m.contains("take out the exception")), "{found:?}");
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn every_house_is_checked() {
        for house in HOUSES {
            let path = format!("{}/src/lifecycle/a.rs", house.folder);
            let found = check(&[Source::new(&path, "use crate::store::Row;")]);
            assert_eq!(found.len(), 1, "{path}: {found:?}");
        }
    }
}
