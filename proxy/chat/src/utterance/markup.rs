//! Decides which elements are a person's own text, such as a pasted page or document, and not a client's wrapper.

use super::{
    tables::{Name, is_named},
    tags::{Kind, Tag},
    work::looks_at,
};

/// Attributes of web pages and XML documents. No client's wrapper has them.
const ATTRIBUTES: [&str; 7] = [
    "xmlns", "class=", "style=", "slot=", "@click", "(click)", "v-if=",
];

/// Bytes before a document that are searched for its introduction.
const INTRODUCTION: usize = 256;

pub(super) fn is_markup(tag: &Tag<'_>) -> bool {
    let is_listed = || is_named(Name::Markup, &tag.name.to_ascii_lowercase());
    is_of_two_cases(tag.name)
        || tag.name.contains(['.', ':'])
        || tag.name.len() == 1
        || is_listed()
        || ATTRIBUTES.iter().any(|name| tag.attributes.contains(name))
}

/// Returns whether the element that `tags[open]` opens is an XML document: it is declared as one, or has mixed-case
/// names in it, or its introduction calls it one and it contains only elements.
pub(super) fn is_document(text: &str, tags: &[Tag<'_>], open: usize, close: usize) -> bool {
    let before = text[..tags[open].span.start].trim_end();
    let from = before.ceil_char_boundary(before.len().saturating_sub(INTRODUCTION));
    let introduction = &before[from..];
    let last_line = introduction
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .trim_start();
    if last_line.starts_with("<?xml") || last_line.starts_with("<!") {
        return true;
    }
    let inner = &tags[open + 1..close];
    looks_at(INTRODUCTION + tags[close].span.start - tags[open].span.start);
    // A client names the file that it shows.
    if !tags[open].attributes.is_empty() {
        return false;
    }
    if inner.iter().any(|tag| is_of_two_cases(tag.name)) {
        return true;
    }
    let (Some(first), Some(last)) = (inner.first(), inner.last()) else {
        return false;
    };
    let begins = text[tags[open].span.end..first.span.start]
        .trim()
        .is_empty();
    let ends = text[last.span.end..tags[close].span.start]
        .trim()
        .is_empty();
    let is_introduced = last_line.ends_with([':', '：']);
    is_introduced && begins && ends && first.kind != Kind::Close
}

fn is_of_two_cases(name: &str) -> bool {
    let has = |is: fn(&u8) -> bool| name.as_bytes().iter().any(is);
    has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase)
}
