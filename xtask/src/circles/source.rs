//! What one file declares, defines and names, test code left out.

use std::collections::BTreeSet;

use super::tokens::{Token, tokens};

/// A module as far as one file shows it: the file itself first, then the modules that stand in it in braces.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// Of a module in braces: its name, and the scope that it stands in.
    pub(super) within: Option<(usize, String)>,
    /// `mod x;`.
    pub(super) declares: Vec<String>,
    /// The items that stand here by name.
    pub(super) defines: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
    /// Paths of two words and more, outside `use`.
    pub(super) paths: BTreeSet<Vec<String>>,
    /// The first words of all paths, outside `use`.
    pub(super) words: BTreeSet<String>,
}

/// One name that a `use` brings.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// What it is called here; `None` for `*`.
    pub(super) name: Option<String>,
    /// `pub use`, however far.
    pub(super) is_handed_on: bool,
}

/// Reads a file; none where all of it is test code.
pub(super) fn read(text: &str) -> Vec<Scope> {
    let tokens = tokens(text);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        depth: 0,
        scopes: vec![Scope::default()],
        open: vec![(0, 0)],
    };
    while reader.at < tokens.len() {
        if reader.step().is_none() {
            return Vec::new();
        }
    }
    reader.scopes
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    /// Brackets of all three kinds that are open.
    depth: usize,
    scopes: Vec<Scope>,
    /// The scopes that are open, each with the depth at which its items stand.
    open: Vec<(usize, usize)>,
}

impl Reader<'_> {
    /// Reads on; `None` at a `#![cfg(test)]`.
    fn step(&mut self) -> Option<()> {
        match &self.tokens[self.at] {
            Token::Mark('#') => return self.attribute(),
            Token::Mark('{' | '(' | '[') => self.depth += 1,
            Token::Mark('}' | ')' | ']') => self.close(),
            Token::Word(word) => {
                let word = word.clone();
                self.word(&word);
                return Some(());
            }
            Token::Mark(_) | Token::PathSep => {}
        }
        self.at += 1;
        Some(())
    }

    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn is_mark(&self, ahead: usize, mark: char) -> bool {
        self.peek(ahead) == Some(&Token::Mark(mark))
    }

    fn word_at(&self, ahead: usize) -> Option<&str> {
        match self.peek(ahead) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn scope(&mut self) -> &mut Scope {
        let current = self.open.last().map_or(0, |(scope, _)| *scope);
        &mut self.scopes[current]
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.open.len() > 1 && self.open.last().is_some_and(|(_, base)| *base > self.depth) {
            self.open.pop();
        }
    }

    fn is_at_item(&self) -> bool {
        self.open
            .last()
            .is_some_and(|(_, base)| *base == self.depth)
    }

    fn attribute(&mut self) -> Option<()> {
        let is_inner = self.is_mark(1, '!');
        let start = self.at + 1 + usize::from(is_inner);
        if self.tokens.get(start) != Some(&Token::Mark('[')) {
            self.at += 1;
            return Some(());
        }
        let end = self.after_brackets(start);
        let is_test = is_test_only(&self.tokens[start..end]);
        self.at = end;
        match (is_test, is_inner) {
            (true, true) => return None,
            (true, false) => self.skip_item(),
            (false, _) => {}
        }
        Some(())
    }

    /// The index behind the bracket that closes the one at `start`.
    fn after_brackets(&self, start: usize) -> usize {
        let mut depth = 0_usize;
        for (at, token) in self.tokens.iter().enumerate().skip(start) {
            match token {
                Token::Mark('{' | '(' | '[') => depth += 1,
                Token::Mark('}' | ')' | ']') => depth = depth.saturating_sub(1),
                Token::Mark(_) | Token::PathSep | Token::Word(_) => {}
            }
            if depth == 0 {
                return at + 1;
            }
        }
        self.tokens.len()
    }

    /// Goes behind what an attribute stands at: an item, a field, a statement or an arm.
    fn skip_item(&mut self) {
        let (mut is_item, mut has_body) = (false, false);
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Mark('#') if self.is_mark(1, '[') => {
                    self.at = self.after_brackets(self.at + 1);
                }
                Token::Mark('}' | ')' | ']') => return,
                Token::Mark('{' | '(' | '[') => {
                    let ends = has_body && *token == Token::Mark('{');
                    self.at = self.after_brackets(self.at);
                    if ends {
                        return;
                    }
                }
                Token::Mark(mark @ (';' | ',')) => {
                    self.at += 1;
                    if *mark == ';' || !is_item {
                        return;
                    }
                }
                Token::Word(word) => {
                    let word = word.as_str();
                    has_body |= BODIES.contains(&word);
                    is_item |= has_body || word == "use" || DEFINERS.contains(&word);
                    self.at += 1;
                }
                Token::Mark(_) | Token::PathSep => self.at += 1,
            }
        }
    }

    fn word(&mut self, word: &str) {
        let is_named = self.word_at(1).is_some();
        match word {
            "use" if !self.is_mark(1, '<') => return self.uses(),
            "mod" if is_named && self.is_at_item() => return self.module(),
            "macro_rules" if self.is_mark(1, '!') => self.at += 1,
            _ if DEFINERS.contains(&word) && is_named => {}
            _ => return self.path(),
        }
        // `const fn f`: the name stands behind the last keyword.
        if let Some(name) = self.word_at(1).map(str::to_owned)
            && !DEFINERS.contains(&name.as_str())
        {
            if self.is_at_item() {
                self.scope().defines.insert(name);
            }
            self.at += 1;
        }
        self.at += 1;
    }

    fn module(&mut self) {
        let name = self.word_at(1).unwrap_or_default().to_owned();
        if self.is_mark(2, '{') {
            let parent = self.open.last().map_or(0, |(scope, _)| *scope);
            self.depth += 1;
            self.open.push((self.scopes.len(), self.depth));
            self.scopes.push(Scope {
                within: Some((parent, name)),
                ..Scope::default()
            });
        } else {
            self.scope().declares.push(name);
        }
        self.at += 3;
    }

    fn path(&mut self) {
        let is_tail = match &self.tokens[..self.at] {
            // `..Limits::default()`.
            [.., Token::Mark('.'), Token::Mark('.')] | [] => false,
            [.., last] => matches!(last, Token::PathSep | Token::Mark('.')),
        };
        let mut path = Vec::new();
        while let Some(word) = self.word_at(0) {
            path.push(word.to_owned());
            self.at += 1;
            if self.peek(0) != Some(&Token::PathSep) || self.word_at(1).is_none() {
                break;
            }
            self.at += 1;
        }
        if is_tail {
            return;
        }
        let scope = self.scope();
        scope.words.extend(path.first().cloned());
        if path.len() > 1 {
            scope.paths.insert(path);
        }
    }

    fn uses(&mut self) {
        let is_handed_on = is_public(&self.tokens[..self.at]);
        self.at += 1;
        let start = self.at;
        while self.peek(0).is_some_and(|token| *token != Token::Mark(';')) {
            self.at += 1;
        }
        let mut tree = UseTree {
            tokens: &self.tokens[start..self.at],
            imports: Vec::new(),
            is_handed_on,
        };
        // What begins with `::` is another crate.
        if tree.tokens.first() != Some(&Token::PathSep) {
            tree.read(&[]);
        }
        let imports = tree.imports;
        self.scope().imports.extend(imports);
    }
}

/// Keywords before a name that others can import.
const DEFINERS: [&str; 10] = [
    "const", "enum", "extern", "fn", "static", "struct", "trait", "type", "union", "unsafe",
];
/// Items that end with a pair of braces, where they have one.
const BODIES: [&str; 8] = [
    "enum",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "struct",
    "trait",
    "union",
];

/// Whether `cfg(..)` holds in tests alone.
fn is_test_only(attribute: &[Token]) -> bool {
    let has = |word| attribute.iter().any(|token| token.is_word(word));
    attribute.get(1).is_some_and(|token| token.is_word("cfg")) && has("test") && !has("not")
}

/// Whether what follows these tokens has a `pub`, `pub(crate)` or the like before it.
fn is_public(before: &[Token]) -> bool {
    let end = if before.last() == Some(&Token::Mark(')')) {
        before.iter().rposition(|token| *token == Token::Mark('('))
    } else {
        Some(before.len())
    };
    let word = end.and_then(|end| before[..end].last());
    word.is_some_and(|token| token.is_word("pub"))
}

struct UseTree<'a> {
    tokens: &'a [Token],
    imports: Vec<Import>,
    is_handed_on: bool,
}

impl UseTree<'_> {
    fn next(&mut self) -> Option<Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first.clone())
    }

    /// Reads one tree: a path and what it ends with.
    fn read(&mut self, prefix: &[String]) {
        let mut path = prefix.to_vec();
        while let Some(token) = self.next() {
            match token {
                Token::Word(word) if word == "self" && !path.is_empty() => {}
                Token::Word(word) => path.push(word),
                Token::Mark('*') => return self.keep(path, None),
                Token::Mark('{') => return self.list(&path),
                Token::PathSep | Token::Mark(_) => continue,
            }
            match self.tokens.first() {
                Some(Token::PathSep) => {}
                Some(token) if token.is_word("as") => {
                    self.next();
                    let Some(Token::Word(name)) = self.next() else {
                        return;
                    };
                    return self.keep(path, Some(name));
                }
                _ => {
                    let name = path.last().cloned();
                    return self.keep(path, name);
                }
            }
        }
    }

    /// `{a, b::{c, d}}`, from behind its first brace.
    fn list(&mut self, prefix: &[String]) {
        loop {
            match self.tokens.first() {
                None => return,
                Some(Token::Mark('}')) => {
                    self.next();
                    return;
                }
                Some(Token::Mark(',')) => {
                    self.next();
                }
                Some(_) => self.read(prefix),
            }
        }
    }

    fn keep(&mut self, path: Vec<String>, name: Option<String>) {
        self.imports.push(Import {
            path,
            name,
            is_handed_on: self.is_handed_on,
        });
    }
}
