//! One Rust file, with its comments and the insides of its literals told apart from its code.
//! A lexer just good enough for that; `tokens.rs` reads words and paths from what is left.

/// The three readings of one file. All have the same lines.
#[derive(Debug)]
pub(crate) struct Source {
    /// From the root of the repository, with `/` between the parts.
    pub(crate) path: String,
    /// As it stands.
    pub(crate) text: String,
    /// Comments blanked.
    pub(crate) uncommented: String,
    /// Comments and the insides of literals blanked.
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let mut lexer = Lexer::new(text);
        while lexer.step() {}
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            uncommented: lexer.uncommented,
            code: lexer.code,
        }
    }

    /// Is the file a test, a benchmark, an example or a fuzz target?
    pub(crate) fn is_beside_the_crate(&self) -> bool {
        let beside = ["tests", "benches", "examples", "fuzz"];
        self.path.split('/').rev().skip(1).any(|folder| beside.contains(&folder))
    }

    /// The path inside the crate's `src`, with the crate's folder: `("crates/a", "x/y.rs")`.
    pub(crate) fn in_crate(&self) -> Option<(&str, &str)> {
        let (folder, inside) = self.path.split_once("/src/")?;
        let name = folder.strip_prefix("crates/")?;
        (!name.contains('/')).then_some((folder, inside))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Literal,
    Comment,
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    uncommented: String,
    code: String,
}

impl Lexer {
    fn new(text: &str) -> Self {
        let chars = text.chars().collect();
        Self { chars, at: 0, uncommented: String::new(), code: String::new() }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Moves over `count` characters of one kind.
    fn take(&mut self, kind: Kind, count: usize) {
        for _ in 0..count {
            let Some(c) = self.peek(0) else { return };
            let blank = if c == '\n' { '\n' } else { ' ' };
            self.uncommented.push(if kind == Kind::Comment { blank } else { c });
            self.code.push(if kind == Kind::Code { c } else { blank });
            self.at += 1;
        }
    }

    /// Moves over one comment, literal or other character; false at the end.
    fn step(&mut self) -> bool {
        match (self.peek(0), self.peek(1)) {
            (None, _) => return false,
            (Some('/'), Some('/')) => self.line_comment(),
            (Some('/'), Some('*')) => self.block_comment(),
            (Some('"'), _) => self.string(),
            (Some('\''), _) => self.character_or_lifetime(),
            (Some(c), _) if is_word(c) => self.word(),
            _ => self.take(Kind::Code, 1),
        }
        true
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.take(Kind::Comment, 1);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (None, _) => return,
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.take(Kind::Comment, 2);
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.take(Kind::Comment, 2);
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.take(Kind::Comment, 1),
            }
        }
    }

    fn string(&mut self) {
        self.take(Kind::Code, 1);
        loop {
            match self.peek(0) {
                None => return,
                Some('"') => return self.take(Kind::Code, 1),
                Some('\\') => self.take(Kind::Literal, 2),
                Some(_) => self.take(Kind::Literal, 1),
            }
        }
    }

    fn character_or_lifetime(&mut self) {
        self.take(Kind::Code, 1);
        if self.peek(0) == Some('\\') {
            self.take(Kind::Literal, 2);
            while self.peek(0).is_some_and(|c| c != '\'') {
                self.take(Kind::Literal, 1);
            }
            self.take(Kind::Code, 1);
        } else if self.peek(1) == Some('\'') {
            self.take(Kind::Literal, 1);
            self.take(Kind::Code, 1);
        }
    }

    /// An identifier, keyword or number; or the prefix of a raw string, and then the string too.
    fn word(&mut self) {
        let mut word = String::new();
        while let Some(c) = self.peek(0).filter(|c| is_word(*c)) {
            word.push(c);
            self.take(Kind::Code, 1);
        }
        if matches!(word.as_str(), "r" | "br" | "cr") {
            let hashes = self.chars.iter().skip(self.at).take_while(|c| **c == '#').count();
            if self.peek(hashes) == Some('"') {
                self.raw_string(hashes);
            }
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        self.take(Kind::Code, hashes + 1);
        while self.peek(0).is_some() {
            let closes = self.peek(0) == Some('"')
                && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            if closes {
                return self.take(Kind::Code, hashes + 1);
            }
            self.take(Kind::Literal, 1);
        }
    }
}

/// May `c` stand in an identifier?
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("x.rs", text).code
    }

    #[test]
    fn comments_are_blanked_and_lines_kept() {
        assert_eq!(code("a // b\nc"), "a     \nc");
        assert_eq!(code("a /* b /* c */\n d */ e"), "a             \n      e");
    }

    #[test]
    fn literals_lose_their_insides_only() {
        assert_eq!(code(r#"f("a // \" b")"#), r#"f("         ")"#);
        assert_eq!(code(r##"f(r#"a " b"#, r"c\")"##), r##"f(r#"     "#, r"  ")"##);
        assert_eq!(code(r"('\'', '{', b'\\')"), r"('  ', ' ', b'  ')");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a r#type)"), "fn f<'a>(x: &'a r#type)");
    }

    #[test]
    fn literals_survive_where_only_comments_go() {
        let source = Source::new("x.rs", "f(\"a\") // b");
        assert_eq!(source.uncommented, "f(\"a\")     ");
    }

    #[test]
    fn places_are_read_from_the_path() {
        let source = |path| Source::new(path, "");
        assert!(source("crates/a/tests/it/main.rs").is_beside_the_crate());
        assert!(!source("crates/a/src/tests.rs").is_beside_the_crate());
        assert_eq!(source("crates/a/src/x/y.rs").in_crate(), Some(("crates/a", "x/y.rs")));
        assert_eq!(source("bench/src/main.rs").in_crate(), None);
        assert_eq!(source("crates/a/tests/src/x.rs").in_crate(), None);
    }
}
