//! Content is data: control tokens come from the chat template, never from what the template was given.
//!
//! A message, a tool's result or a web page may spell `<|im_end|>`, and would open a forged turn were the
//! rendered text tokenised as it stands. So before rendering, each control token that a text spells is broken
//! by a *mark*, a private-use character that nothing else of the request holds. After rendering, what still
//! reads as a control token was written by the template; the marks are taken out, and all text between is
//! tokenised with control tokens off. A request that spells none is rendered untouched, with the ids it had.
//!
//! The mark stands within the token: trimming, cutting, changing case or printing as JSON do not mend it.

mod spelling;

use std::collections::BTreeMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};
use tokenizers::AddedToken;

use self::spelling::Spellings;

pub(crate) use self::spelling::Kind;

/// Where marks are taken from: plane 15, which is for private use.
const MARKS: Range<u32> = 0xF_0000..0xF_FFFE;

/// The control tokens of a model.
#[derive(Debug)]
pub(crate) struct ControlTokens {
    tokens: Vec<(u32, AddedToken)>,
    /// The longest at the leftmost place, as `tokenizers` looks for them.
    exact: AhoCorasick,
    spellings: Spellings,
}

/// A part of a rendered text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    /// A token of the template's.
    Control(u32),
}

impl ControlTokens {
    /// Those among a tokenizer's added tokens.
    ///
    /// # Errors
    /// When there are too many to look for.
    pub(crate) fn new(
        added: impl IntoIterator<Item = (u32, AddedToken)>,
    ) -> Result<Self, BuildError> {
        let controls = added.into_iter().filter(|(_, token)| is_control(token));
        // By id, so that the same model always gives the same automaton.
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

    /// Whether an id is a control token's.
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.tokens.binary_search_by_key(&id, |(id, _)| *id).is_ok()
    }

    /// The tokens as ones that `tokenizers` can be told to leave alone.
    pub(crate) fn as_special(&self) -> Vec<AddedToken> {
        let tokens = self.tokens.iter();
        tokens
            .map(|(_, token)| token.clone().special(true))
            .collect()
    }

    /// Cuts a text at the control tokens it spells, as `tokenizers` does, with the blanks that some of them swallow.
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

    /// Where to break `text` so that it spells no control token, alone or together with what stands beside it.
    pub(crate) fn breaks(&self, text: &str, kind: Kind) -> Vec<usize> {
        let kept = |pattern: usize| kind == Kind::Said && !self.tokens[pattern].1.special;
        self.spellings.breaks(text, kind, kept)
    }
}

/// A private-use character that is not among `taken`.
pub(crate) fn free_mark(taken: impl Fn(char) -> bool) -> Option<char> {
    MARKS.filter_map(char::from_u32).find(|&mark| !taken(mark))
}

/// Whether a mark could be this character.
pub(crate) fn may_be_mark(c: char) -> bool {
    MARKS.contains(&u32::from(c))
}

/// Special tokens, and those that only look like it (Qwen's `<think>`, `<tool_call>`): other added tokens are
/// words or runs of blanks. One character can be broken by nothing; no model has such a control token.
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
