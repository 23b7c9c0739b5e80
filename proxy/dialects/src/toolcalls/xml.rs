//! A call as Qwen3-Coder writes it between its markers:
//! `<function=name><parameter=key>value</parameter></function>`, each value on lines of its own.
//!
//! Values are not escaped: one may hold any of the tags. So a closing tag counts only where what has to
//! follow it follows.

use serde_json::Value;

use super::{call::Call, names, options::Options};

pub(super) const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

/// The longest function without parameters that is looked at, tags included, in bytes.
const MAX_BARE: usize = 256;

/// Whether a call whose text is `text` may end after it: its function and the last parameter are closed.
pub(super) fn may_end(text: &[u8]) -> bool {
    let inside = text.trim_ascii_end().strip_suffix(FUNCTION_END.as_bytes());
    inside.is_some_and(|inside| {
        let inside = inside.trim_ascii();
        let is_bare = inside.len() <= MAX_BARE
            && inside.iter().position(|byte| *byte == b'>') == inside.len().checked_sub(1);
        is_bare || inside.ends_with(PARAMETER_END.as_bytes())
    })
}

/// The call; `None` where it is none.
pub(super) fn call(text: &str, id: String, options: &Options) -> Option<Call> {
    let inside = text.trim().strip_prefix(FUNCTION)?;
    let (name, inside) = inside.split_once('>')?;
    let mut rest = inside.trim_end().strip_suffix(FUNCTION_END)?.trim();
    let name = name.trim();
    if !is_name(name) {
        return None;
    }
    let mut arguments = Vec::new();
    while !rest.is_empty() {
        let (key, written, after) = parameter(rest)?;
        let value = options.schemas.value(name, key, written);
        arguments.push(format!("{}: {value}", Value::from(key)));
        rest = after;
    }
    let arguments = format!("{{{}}}", arguments.join(", "));
    Some(Call {
        id,
        name: names::normalised(name, &arguments, &options.tools),
        arguments,
    })
}

/// The first parameter of `text`, its value and what follows it.
fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let (key, inside) = text.strip_prefix(PARAMETER)?.split_once('>')?;
    let ends = inside.match_indices(PARAMETER_END).map(|(at, _)| at);
    let mut ends = ends.map(|at| {
        (
            &inside[..at],
            inside[at + PARAMETER_END.len()..].trim_start(),
        )
    });
    let (value, after) =
        ends.find(|(_, after)| after.is_empty() || after.starts_with(PARAMETER))?;
    let value = value.strip_prefix('\n').unwrap_or(value);
    let value = value.strip_suffix('\n').unwrap_or(value);
    let key = key.trim();
    is_name(key).then_some((key, value, after))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['<', '\n'])
}
