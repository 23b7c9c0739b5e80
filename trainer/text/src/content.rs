//! Content is data: control tokens come only from the chat template, never from its input.
//!
//! A message, a tool's result or a web page may contain the text `<|im_end|>`. If the rendered text were tokenised
//! unchanged, this would open a forged turn. So before rendering, each control token that a text spells is broken by a
//! *mark*, a private-use character that occurs nowhere else in the request. After rendering, the remaining control
//! tokens are the template's own. The marks are removed, and all text in between is tokenised with control tokens off.
//! A request that spells no control token is rendered unchanged, with the same ids as before.
//!
//! The mark is inside the token, so trimming, cutting, changing case or printing as JSON does not repair it.

mod spelling;

use std::{collections::BTreeMap, ops::Range};

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use tokenizers::AddedToken;

use self::spelling::Spellings;

pub(crate) use self::spelling::Kind;

/// Marks are taken from plane 15, which is for private use.
const MARKS: Range<u32> = 0xF_0000..0xF_FFFE;

#[derive(Debug)]
pub(crate) struct ControlTokens {
    tokens: Vec<(u32, AddedToken)>,
    /// The longest match at the leftmost place, as `tokenizers` searches them.
    exact: AhoCorasick,
    spellings: Spellings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    /// A control token of the template.
    Control(u32),
}

impl ControlTokens {
    /// Selects the control tokens from a tokenizer's added tokens.
    ///
    /// # Errors
    /// Fails if there are too many to search for.
    pub(crate) fn new(
        added: impl IntoIterator<Item = (u32, AddedToken)>,
    ) -> Result<Self, BuildError> {
        let controls = added.into_iter().filter(|(_, token)| is_control(token));
        // They are sorted by id, so that the same model always gives the same automaton.
        let sorted: BTreeMap<u32, AddedToken> = controls.collect();
        let tokens: Vec<_> = sorted.into_iter().collect();
        Ok(Self {
            exact: AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(tokens.iter().map(|(_, token)| &token.content))?,
            spellings: Spellings::new(tokens.iter().map(|(_, token)| token))?,
            tokens,
        })
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.tokens.binary_search_by_key(&id, |(id, _)| *id).is_ok()
    }

    /// Returns the tokens in a form that `tokenizers` can be told to ignore.
    pub(crate) fn as_special(&self) -> Vec<AddedToken> {
        let tokens = self.tokens.iter();
        tokens
            .map(|(_, token)| token.clone().special(true))
            .collect()
    }

    /// Cuts a text at the control tokens in it, as `tokenizers` does, with the white space that some of them swallow.
    pub(crate) fn split<'a>(&self, text: &'a str) -> Vec<Part<'a>> {
        let (mut parts, mut done) = (Vec::new(), 0);
        for found in self.exact.find_iter(text) {
            let (id, token) = &self.tokens[found.pattern()];
            let (before, after) = (&text[..found.start()], &text[found.end()..]);
            if token.single_word && (before.ends_with(is_word) || after.starts_with(is_word)) {
                continue;
            }
            let swallowed = |on: bool, blanks: usize| if on { blanks } else { 0 };
            let left = swallowed(token.lstrip, before.len() - before.trim_end().len());
            let right = swallowed(token.rstrip, after.len() - after.trim_start().len());
            let start = (found.start() - left).max(done);
            if done < start {
                parts.push(Part::Text(&text[done..start]));
            }
            parts.push(Part::Control(*id));
            done = found.end() + right;
        }
        if done < text.len() {
            parts.push(Part::Text(&text[done..]));
        }
        parts
    }

    /// Returns where to break `text` so that it spells no control token, alone or together with the text beside it.
    pub(crate) fn breaks(&self, text: &str, kind: Kind) -> Vec<usize> {
        let kept = |pattern: usize| kind == Kind::Said && !self.tokens[pattern].1.special;
        self.spellings.breaks(text, kind, kept)
    }
}

pub(crate) fn free_mark(taken: impl Fn(char) -> bool) -> Option<char> {
    MARKS.filter_map(char::from_u32).find(|&mark| !taken(mark))
}

pub(crate) fn may_be_mark(c: char) -> bool {
    MARKS.contains(&u32::from(c))
}

/// Returns whether it is a special token, or one that only looks like it (Qwen's `<think>`, `<tool_call>`). Other added
/// tokens are words or runs of white space. A token of one character cannot be broken. No model has such a control
/// token.
fn is_control(token: &AddedToken) -> bool {
    let text = token.content.as_str();
    let bracketed = |open: char, close: char| text.starts_with(open) && text.ends_with(close);
    text.chars().nth(1).is_some() && (token.special || bracketed('<', '>') || bracketed('[', ']'))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests;
