//! That docs/errors.md names every error there is, no other, and says truly which may pass.

use std::collections::BTreeMap;

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The variants of an enum in a source text.
fn variants(source: &str, name: &str) -> Vec<String> {
    let head = format!("pub enum {name} {{\n");
    let body = &source[source.find(&head).unwrap() + head.len()..];
    let body = &body[..body.find("\n}").unwrap()];
    let of_the_enum =
        |line: &&str| line.starts_with("    ") && line.as_bytes()[4].is_ascii_uppercase();
    let names = body.lines().filter(|line| line.len() > 4).filter(of_the_enum);
    names.map(|line| line[4..].split([' ', '(', ',', '{']).next().unwrap().to_owned()).collect()
}

/// The rows of the table under a heading: first cell, second cell.
fn rows(document: &str, heading: &str) -> BTreeMap<String, String> {
    let section = document.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| {
        let mut cells = row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
        (cells.next().unwrap().trim_matches('`').to_owned(), cells.next().unwrap())
    });
    cells.collect()
}

#[test]
fn every_error_is_explained_and_no_other() {
    let (source, document) = (read("src/error.rs"), read("../../docs/errors.md"));
    for (name, heading) in [("Error", "Errors"), ("CloseReason", "Why a handle is closed")] {
        let mut there = variants(&source, name);
        there.sort();
        assert!(there.len() >= 3, "{there:?}");
        let told: Vec<String> = rows(&document, heading).into_keys().collect();
        assert_eq!(told, there, "{name}");
    }
    let passing = &source[source.find("!matches!(").unwrap()..];
    let passing = &passing[..passing.find(")\n    }").unwrap()];
    for (variant, passes) in rows(&document, "Errors") {
        let is_passing = passing.contains(&format!("Self::{variant}"));
        assert_eq!(passes, if is_passing { "may pass" } else { "permanent" }, "{variant}");
    }
}
