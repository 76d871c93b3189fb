//! A library does not write to the terminal of the program that embeds it.

use super::Finding;
use crate::source::Source;
use crate::tokens::{Token, tokens};

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let is_program = |inside: &str| inside == "main.rs" || inside.starts_with("bin/");
    if source.in_crate().is_none_or(|(_, inside)| is_program(inside)) {
        return Vec::new();
    }
    let tokens = tokens(source);
    let pairs = tokens.iter().zip(tokens.iter().skip(1));
    pairs
        .filter_map(|(word, mark)| match (word.token, mark.token) {
            (
                Token::Word(name @ ("print" | "println" | "eprint" | "eprintln")),
                Token::Mark('!'),
            ) => {
                let message = format!("`{name}!` in a library: use a `tracing` event");
                Some(Finding::new(&source.path, word.line, message))
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_is_found_in_library_code_only() {
        let text = "//! prints with println!(\"a\")\nfn f() { eprintln!(\"b\"); }\n";
        let lines = |path| {
            let findings = check(&Source::new(path, text));
            findings.iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(lines("crates/a/src/x.rs"), [2]);
        assert!(lines("crates/a/src/main.rs").is_empty());
        assert!(lines("crates/a/examples/x.rs").is_empty());
    }
}
