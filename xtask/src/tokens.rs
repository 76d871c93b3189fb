//! Words and paths of a Rust file, each with its line. Reads the `code` of a `Source`; knows no rule.

use crate::source::{Source, is_word};

/// One token: a word, `::`, or any other single character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Word(&'a str),
    PathSep,
    Mark(char),
}

/// A token and its line, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) token: Token<'a>,
    pub(crate) line: usize,
}

/// A path that starts at the root of the crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CratePath {
    pub(crate) segments: Vec<String>,
    /// The name it is given, where `as` gives one.
    pub(crate) alias: Option<String>,
    pub(crate) line: usize,
}

/// All tokens of the file, white space left out.
pub(crate) fn tokens(source: &Source) -> Vec<Placed<'_>> {
    let mut tokens = Vec::new();
    for (index, text) in source.code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (token, length) = match first {
                _ if length > 0 => (Token::Word(rest.get(..length).unwrap_or(rest)), length),
                ':' if rest.starts_with("::") => (Token::PathSep, 2),
                mark => (Token::Mark(mark), mark.len_utf8()),
            };
            tokens.push(Placed { token, line: index + 1 });
            rest = rest.get(length..).unwrap_or("").trim_start();
        }
    }
    tokens
}

/// Every path of a file that starts with `crate`, `self` or `super`, from the root of the crate.
/// `module` is where the file itself stands: `["a", "b"]` for `src/a/b.rs`.
pub(crate) fn crate_paths(tokens: &[Placed<'_>], module: &[&str]) -> Vec<CratePath> {
    let mut reader = Reader { tokens, at: 0, paths: Vec::new() };
    let mut here: Vec<String> = module.iter().map(|part| (*part).to_owned()).collect();
    // Inline modules that are open: the depth of braces outside each.
    let mut open_at: Vec<usize> = Vec::new();
    let mut depth = 0_usize;
    let mut index = 0;
    while let Some(placed) = tokens.get(index) {
        let token_at = |i: usize| tokens.get(i).map(|placed| placed.token);
        let (next, after) = (token_at(index + 1), token_at(index + 2));
        let follows_a_path = index > 0 && token_at(index - 1) == Some(Token::PathSep);
        match placed.token {
            Token::Word("mod") => {
                if let (Some(Token::Word(name)), Some(Token::Mark('{'))) = (next, after) {
                    here.push(name.to_owned());
                    open_at.push(depth);
                }
            }
            Token::Mark('{') => depth += 1,
            Token::Mark('}') => {
                depth = depth.saturating_sub(1);
                if open_at.last() == Some(&depth) {
                    open_at.pop();
                    here.pop();
                }
            }
            Token::Word("crate" | "self" | "super")
                if next == Some(Token::PathSep) && !follows_a_path =>
            {
                reader.at = index;
                reader.read_from(&here);
            }
            _ => {}
        }
        index += 1;
    }
    reader.paths
}

/// Every path that a `use` of the crate's root file brings in: where its public names come from.
pub(crate) fn root_uses(tokens: &[Placed<'_>]) -> Vec<CratePath> {
    let mut reader = Reader { tokens, at: 0, paths: Vec::new() };
    for (index, placed) in tokens.iter().enumerate() {
        if placed.token == Token::Word("use") {
            reader.at = index + 1;
            let at_root = matches!(reader.peek(), Some(Token::Word("crate" | "self")));
            if at_root {
                reader.read_from(&[]);
            } else {
                reader.branch(&[]);
            }
        }
    }
    reader.paths
}

struct Reader<'a, 'b> {
    tokens: &'b [Placed<'a>],
    at: usize,
    paths: Vec<CratePath>,
}

impl<'a> Reader<'a, '_> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|placed| placed.token)
    }

    fn next_is(&mut self, token: Token<'_>) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.at += 1;
        }
        found
    }

    /// Reads from `crate`, `self` or `super` on; `here` is the module that it stands in.
    fn read_from(&mut self, here: &[String]) {
        let mut base = here.to_vec();
        if self.peek() == Some(Token::Word("crate")) {
            base.clear();
        } else if self.peek() == Some(Token::Word("super")) {
            base.pop();
        }
        self.at += 1;
        while self.next_is(Token::PathSep) {
            if !self.next_is(Token::Word("super")) {
                return self.branch(&base);
            }
            base.pop();
        }
    }

    /// Reads what follows a `::`: a name and what follows it, a group in braces, or a star.
    fn branch(&mut self, base: &[String]) {
        let Some(placed) = self.tokens.get(self.at).copied() else {
            return;
        };
        self.at += 1;
        match placed.token {
            Token::Word("self") => self.end(base.to_vec(), placed.line),
            Token::Word(name) => {
                let path = [base, &[name.to_owned()]].concat();
                if self.next_is(Token::PathSep) {
                    self.branch(&path);
                } else {
                    self.end(path, placed.line);
                }
            }
            Token::Mark('{') => {
                while !self.next_is(Token::Mark('}')) && self.peek().is_some() {
                    self.branch(base);
                    self.next_is(Token::Mark(','));
                }
            }
            // A star, or the `<` of a turbofish: what stands before it is the path.
            _ => self.end(base.to_vec(), placed.line),
        }
    }

    fn end(&mut self, segments: Vec<String>, line: usize) {
        let mut alias = None;
        if self.peek() == Some(Token::Word("as"))
            && let Some(Placed { token: Token::Word(name), .. }) = self.tokens.get(self.at + 1)
        {
            alias = Some((*name).to_owned());
            self.at += 2;
        }
        self.paths.push(CratePath { segments, alias, line });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str, module: &[&str]) -> Vec<String> {
        let source = Source::new("x.rs", text);
        let found = crate_paths(&tokens(&source), module);
        found.iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn groups_are_opened() {
        let text = "use crate::{a, b::{self, c::D as E}, f::*};";
        assert_eq!(paths(text, &[]), ["a", "b", "b::c::D", "f"]);
    }

    #[test]
    fn self_and_super_start_where_the_file_stands() {
        assert_eq!(paths("use super::x; use self::y;", &["a", "b"]), ["a::x", "a::b::y"]);
        assert_eq!(paths("fn f() { super::super::engine::run() }", &["a", "b"]), ["engine::run"]);
    }

    #[test]
    fn an_inline_module_is_one_deeper_until_it_closes() {
        let text = "mod tests { fn f() {} use super::x; } use super::y;";
        assert_eq!(paths(text, &["a"]), ["a::x", "y"]);
    }

    #[test]
    fn expressions_and_types_count_as_much_as_imports() {
        let text = "fn f(x: &crate::a::B) -> Vec<crate::c::D> { crate::e::g::<u8>(x) }";
        assert_eq!(paths(text, &[]), ["a::B", "c::D", "e::g"]);
    }

    #[test]
    fn the_root_file_tells_where_names_come_from() {
        let text = "mod queue; pub use queue::{Queue, Long as Short}; pub use crate::error::Error;";
        let source = Source::new("lib.rs", text);
        let uses = root_uses(&tokens(&source));
        let found: Vec<_> =
            uses.iter().map(|path| (path.segments.join("::"), path.alias.as_deref())).collect();
        let expected =
            [("queue::Queue", None), ("queue::Long", Some("Short")), ("error::Error", None)];
        assert_eq!(found, expected.map(|(path, alias)| (path.to_owned(), alias)));
    }
}
