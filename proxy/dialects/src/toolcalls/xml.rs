//! Reads a call in Qwen3-Coder's notation between its markers:
//! `<function=name><parameter=key>value</parameter></function>`, each value on separate lines.
//!
//! Values are not escaped, so a value may contain any of the tags. Therefore a closing tag counts only if the text
//! after it is what has to follow. For offered tools, calls with a missing tag are read: the `<tool_call>` before or
//! after, or the end of a parameter. If a tag may also be part of a value, it is treated as such.

use serde_json::Value;

use super::{call::TextCall, names, options::ToolCallOptions};

pub(super) const FUNCTION: &str = "<function=";
pub(super) const CALL_END: &str = "</tool_call>";
const CALL: &str = "<tool_call>";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

/// The longest function without parameters that is considered, including tags, in bytes.
const MAX_BARE: usize = 256;

/// The largest number of parameters of a call whose ends may be missing.
const MAX_PARAMETERS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookahead {
    Open,
    /// The text was cut here.
    Cut,
    /// Nothing follows, because the text is complete.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallEnding {
    /// The position at which the call ends.
    pub call: usize,
    /// The position at which its markup ends.
    pub all: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct XmlScan {
    pub at: usize,
    candidate: Option<CallEnding>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CallAsWritten {
    /// Whether a `<tool_call>` comes before it.
    pub is_wrapped: bool,
    pub is_offered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follows {
    CallEnd,
    Call,
    Nothing,
    Text,
}

struct Parameter<'a> {
    key: &'a str,
    value: &'a str,
    after: &'a str,
}

// === impl Scan ===

impl XmlScan {
    /// Finds the call's end: the position after a `</function>` that closes it.
    pub(super) fn find(
        &mut self,
        text: &[u8],
        call: CallAsWritten,
        rest: Lookahead,
    ) -> Option<CallEnding> {
        while let Some(n) = position(&text[self.at..], FUNCTION_END.as_bytes()) {
            let begin = self.at + n;
            let at = begin + FUNCTION_END.len();
            let (n_blank, follows) = follows(&text[at..], rest)?;
            let here = Some(CallEnding { call: at, all: at });
            let closed = at + n_blank + CALL_END.len();
            let ends = match (is_closed(&text[..begin]), follows) {
                (true, Follows::CallEnd) => Some(CallEnding {
                    call: at,
                    all: closed,
                }),
                (true, Follows::Nothing) => here,
                (true, Follows::Text) if !call.is_wrapped => here,
                (_, Follows::Call | Follows::Nothing) if call.is_offered => here,
                _ if !call.is_offered => None,
                (_, Follows::CallEnd) => {
                    let end = CallEnding {
                        call: at,
                        all: closed,
                    };
                    let (_, then) = self::follows(&text[closed..], rest)?;
                    if then == Follows::Text {
                        self.candidate.get_or_insert(end);
                    }
                    (then != Follows::Text).then_some(end)
                }
                (_, _) => {
                    self.candidate
                        .get_or_insert(CallEnding { call: at, all: at });
                    None
                }
            };
            if let Some(end) = ends {
                // A tag that closes another function does not close this one.
                let is_others =
                    |it: &CallEnding| position(&text[it.all..begin], FUNCTION.as_bytes()).is_some();
                return Some(self.candidate.filter(is_others).unwrap_or(end));
            }
            self.at = at;
        }
        // A tag may be cut in two.
        self.at = self.at.max(text.len().saturating_sub(FUNCTION_END.len()));
        self.candidate.filter(|_| rest == Lookahead::Nothing)
    }
}

/// Returns what comes after the white space of `text`, and the length of that white space, or `None` until that is
/// clear.
fn follows(text: &[u8], rest: Lookahead) -> Option<(usize, Follows)> {
    let word = text.trim_ascii_start();
    let n_blank = text.len() - word.len();
    let tags = [
        (CALL_END, Follows::CallEnd),
        (FUNCTION, Follows::Call),
        (CALL, Follows::Call),
    ];
    let is_it = |(tag, _): &&(&str, Follows)| word.starts_with(tag.as_bytes());
    if let Some((_, follows)) = tags.iter().find(is_it) {
        return Some((n_blank, *follows));
    }
    let may_be = tags.iter().any(|(tag, _)| tag.as_bytes().starts_with(word));
    match (may_be, rest) {
        (true, Lookahead::Nothing) if word.is_empty() => Some((n_blank, Follows::Nothing)),
        (false, _) | (true, Lookahead::Nothing) => Some((n_blank, Follows::Text)),
        (true, Lookahead::Open | Lookahead::Cut) => None,
    }
}

fn position(text: &[u8], word: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(n) = text[from..].iter().position(|byte| *byte == word[0]) {
        if text[from + n..].starts_with(word) {
            return Some(from + n);
        }
        from += n + 1;
    }
    None
}

/// Returns whether a function with the text `inside` may be closed after it: its last parameter is closed, or it has
/// none.
fn is_closed(inside: &[u8]) -> bool {
    let inside = inside.trim_ascii();
    let is_bare = inside.len() <= MAX_BARE
        && inside.iter().position(|byte| *byte == b'>') == inside.len().checked_sub(1);
    is_bare || inside.ends_with(PARAMETER_END.as_bytes())
}

/// Returns whether `text`, which follows `<function=`, begins with the name of an offered tool, or `None` until that is
/// clear.
pub(super) fn is_offered(text: &[u8], options: &ToolCallOptions) -> Option<bool> {
    if !options.has_tools() {
        return Some(false);
    }
    let head = &text[..text.len().min(MAX_BARE)];
    let Some(end) = head.iter().position(|byte| matches!(byte, b'>' | b'<')) else {
        return (text.len() > MAX_BARE).then_some(false);
    };
    let name = std::str::from_utf8(&head[..end]).unwrap_or_default();
    Some(head[end] == b'>' && options.offers(name.trim()))
}

pub(super) fn call(text: &str, id: String, options: &ToolCallOptions) -> Option<TextCall> {
    let (name, inside) = text.split_once('>')?;
    let mut rest = inside.trim_end().strip_suffix(FUNCTION_END)?.trim();
    let name = name.trim();
    if !is_name(name) {
        return None;
    }
    let tool = names::normalised(name, "{}", &options.tools);
    let reads_slips = options.offers(name);
    let (mut arguments, mut keys) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let parameter = parameter(rest, |key| {
            let is_new = keys.len() < MAX_PARAMETERS && !keys.contains(&key);
            reads_slips && is_new && options.schemas.may_have(&tool, key)
        })?;
        let missing_end = parameter.after.is_empty() && !rest.ends_with(PARAMETER_END);
        if missing_end && !reads_slips {
            return None;
        }
        let Parameter { key, value, after } = parameter;
        let value = options.schemas.value(&tool, key, value);
        arguments.push(format!("{}: {value}", Value::from(key)));
        keys.push(key);
        rest = after;
    }
    let arguments = format!("{{{}}}", arguments.join(", "));
    Some(TextCall {
        id,
        name: names::normalised(name, &arguments, &options.tools),
        arguments,
    })
}

/// Returns the first parameter of `text`. Its end may be missing before the end of the text, or before another
/// parameter that `may_follow`.
fn parameter<'a>(text: &'a str, may_follow: impl Fn(&'a str) -> bool) -> Option<Parameter<'a>> {
    let (key, inside) = text.strip_prefix(PARAMETER)?.split_once('>')?;
    let ends = inside.match_indices(PARAMETER_END).map(|(at, _)| at);
    let mut ends = ends.map(|at| {
        (
            &inside[..at],
            inside[at + PARAMETER_END.len()..].trim_start(),
        )
    });
    let closed = ends.find(|(_, after)| after.is_empty() || after.starts_with(PARAMETER));
    let (value, after) = match closed {
        Some((value, after)) => (value, after),
        None => (inside, ""),
    };
    let next = unclosed(key.trim(), value, may_follow);
    let (value, after) = match next {
        Some(at) => (&value[..at], &inside[at..]),
        // Text after a false end cannot be distinguished from the value.
        None if closed.is_none() && inside.contains(PARAMETER_END) => return None,
        None => (value, after),
    };
    let value = value.strip_prefix('\n').unwrap_or(value);
    let value = value.strip_suffix('\n').unwrap_or(value);
    let key = key.trim();
    is_name(key).then_some(Parameter { key, value, after })
}

/// Returns where another parameter begins in the value of `key`, whose own end is missing. A value that quotes the
/// markup quotes both tags.
fn unclosed<'a>(key: &str, value: &'a str, may_follow: impl Fn(&'a str) -> bool) -> Option<usize> {
    // The other parameter must begin like this one: on separate lines, or without white space.
    let has_lines = value.starts_with('\n');
    let begins = value.match_indices(PARAMETER).map(|(at, _)| at);
    let last_end = value.rfind(PARAMETER_END);
    let mut next = begins.filter(|at| {
        let (before, inside) = (&value[..*at], &value[at + PARAMETER.len()..]);
        let Some((name, inside)) = inside.split_once('>') else {
            return false;
        };
        let is_alike = if has_lines {
            before.ends_with('\n') && inside.starts_with('\n')
        } else {
            let blank = char::is_whitespace;
            !before.ends_with(blank) && !inside.starts_with(blank)
        };
        let name = name.trim();
        is_alike && is_name(name) && name != key && may_follow(name)
    });
    next.find(|at| last_end.is_none_or(|end| end < *at))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['<', '\n'])
}
