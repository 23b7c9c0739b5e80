//! Finds texts that spell a control token completely or in part.

use std::collections::{BTreeSet, HashSet};

use aho_corasick::{AhoCorasick, BuildError};
use tokenizers::AddedToken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// The model's own text. `<think>` and similar tokens are its own, special ones are not.
    Said,
    /// A word that templates compare (a role, a type, a switch). It is broken only if it spells a complete token.
    Word,
}

/// All control tokens in lower case, because a filter may change the case of a text.
#[derive(Debug)]
pub(super) struct Spellings {
    anywhere: AhoCorasick,
    prefixes: HashSet<String>,
    suffixes: HashSet<String>,
    tokens: Vec<String>,
    longest: usize,
}

impl Spellings {
    pub(super) fn new<'a>(
        tokens: impl Iterator<Item = &'a AddedToken>,
    ) -> Result<Self, BuildError> {
        let lower = |token: &AddedToken| token.content.to_ascii_lowercase();
        let tokens: Vec<String> = tokens.map(lower).collect();
        let inner = |token: &String| -> Vec<usize> {
            token.char_indices().skip(1).map(|(at, _)| at).collect()
        };
        let cut = |part: fn(&str, usize) -> &str| {
            let parts = tokens.iter().flat_map(|token| {
                inner(token)
                    .into_iter()
                    .map(|at| part(token, at).to_owned())
            });
            parts.collect()
        };
        Ok(Self {
            anywhere: AhoCorasick::builder()
                .ascii_case_insensitive(true)
                .build(&tokens)?,
            prefixes: cut(|token, at| &token[..at]),
            suffixes: cut(|token, at| &token[at..]),
            longest: tokens.iter().map(String::len).max().unwrap_or(0),
            tokens,
        })
    }

    /// Returns byte positions for marks, in order: within each token that is spelled, unless its index is `kept`, and
    /// at an edge where the template or a neighbouring text could complete one.
    pub(super) fn breaks(
        &self,
        text: &str,
        kind: Kind,
        kept: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut places = BTreeSet::new();
        for found in self.anywhere.find_overlapping_iter(text) {
            if !kept(found.pattern().as_usize()) {
                let first = text[found.start()..].chars().next();
                places.insert(found.start() + first.map_or(0, char::len_utf8));
            }
        }
        if kind != Kind::Word && !text.is_empty() {
            if self.ends_a_token(text) {
                places.insert(0);
            }
            if self.begins_a_token(text) {
                places.insert(text.len());
            }
        }
        places.into_iter().collect()
    }

    /// Returns whether the text, or its beginning, is the end or the middle of a token.
    fn ends_a_token(&self, text: &str) -> bool {
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let lower = |end: usize| text[..end].to_ascii_lowercase();
        let mut heads = ends.take_while(|end| *end <= self.longest).map(lower);
        let is_middle = |text: String| self.tokens.iter().any(|token| token.contains(&text));
        let middle = text.len() <= self.longest && is_middle(lower(text.len()));
        middle || heads.any(|head| self.suffixes.contains(&head))
    }

    fn begins_a_token(&self, text: &str) -> bool {
        let starts = text.char_indices().rev().map(|(at, _)| at);
        let mut tails = starts
            .take_while(|at| text.len() - at <= self.longest)
            .map(|at| text[at..].to_ascii_lowercase());
        tails.any(|tail| self.prefixes.contains(&tail))
    }
}
