//! Finds the tags in a text, and which of them belong together.

use std::{collections::HashMap, ops::Range};

use memchr::{memchr, memchr_iter, memrchr};

use super::work::looks_at;

/// No known tag has a longer name. Longer ones are not treated as tags.
const LONGEST_NAME: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `<name …>`.
    Open,
    /// `</name>`.
    Close,
    /// `<name …/>`.
    Empty,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tag<'t> {
    pub kind: Kind,
    pub name: &'t str,
    pub attributes: &'t str,
    pub span: Range<usize>,
    /// Whether only white space and other tags come before it on its line.
    pub opens_line: bool,
    /// The index of the closing tag that ends the element which this tag opens.
    pub close: Option<usize>,
    /// Whether the tag closes an element that an earlier tag opens.
    pub is_paired: bool,
    /// For an opening tag: the index of the last closing tag with its name. A client's content may close the client's
    /// element and open it again, so that this is the only certain end.
    pub last_close: Option<usize>,
}

// === impl Tag ===

impl<'t> Tag<'t> {
    /// Returns all tags of a text in order, with the closing tag of each opening one. `may_open` decides whether a tag
    /// in the middle of a line may open an element.
    pub(super) fn all(text: &'t str, may_open: impl Fn(&str) -> bool) -> Vec<Self> {
        let mut tags: Vec<Self> = Vec::new();
        let mut open: HashMap<&str, Vec<usize>> = HashMap::new();
        for at in memchr_iter(b'<', text.as_bytes()) {
            let Some(mut tag) = Self::at(text, at) else {
                continue;
            };
            tag.opens_line = opens_line(text, at, tags.last());
            match tag.kind {
                Kind::Open if tag.opens_line || may_open(tag.name) => {
                    open.entry(tag.name).or_default().push(tags.len());
                }
                Kind::Close => {
                    if let Some(from) = open.get_mut(tag.name).and_then(Vec::pop) {
                        tag.is_paired = true;
                        tag.opens_line |= tags[from].opens_line;
                        tags[from].close = Some(tags.len());
                    }
                }
                Kind::Open | Kind::Empty => {}
            }
            tags.push(tag);
        }
        let mut last: HashMap<&str, usize> = HashMap::new();
        for at in (0..tags.len()).rev() {
            let name = tags[at].name;
            match tags[at].kind {
                Kind::Open => tags[at].last_close = last.get(name).copied(),
                Kind::Close => {
                    last.entry(name).or_insert(at);
                }
                Kind::Empty => {}
            }
        }
        tags
    }

    pub(super) fn alone(text: &'t str) -> Option<Self> {
        let text = text.trim();
        let tag = text.starts_with('<').then(|| Self::at(text, 0)).flatten()?;
        (tag.span.end == text.len()).then_some(tag)
    }

    fn at(text: &'t str, at: usize) -> Option<Self> {
        let rest = text.get(at + 1..)?;
        let (is_close, rest) = match rest.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let is_of_name =
            |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b':' | b'.');
        let bytes = rest.as_bytes();
        if !bytes.first()?.is_ascii_alphabetic() {
            return None;
        }
        let n_name = bytes
            .iter()
            .take(LONGEST_NAME + 1)
            .take_while(|c| is_of_name(**c))
            .count();
        let (name, rest) = rest
            .split_at_checked(n_name)
            .filter(|_| n_name <= LONGEST_NAME)?;
        // An attribute may contain anything except `<`.
        let until = memchr(b'<', rest.as_bytes()).unwrap_or(rest.len());
        looks_at(n_name + until);
        let n_attributes = memchr(b'>', &rest.as_bytes()[..until])?;
        let attributes = &rest[..n_attributes];
        if !attributes.is_empty()
            && !attributes.starts_with(|c: char| c.is_whitespace() || c == '/')
        {
            return None;
        }
        let (kind, attributes) = match (is_close, attributes.strip_suffix('/')) {
            (true, _) => (Kind::Close, attributes),
            (false, Some(attributes)) => (Kind::Empty, attributes),
            (false, None) => (Kind::Open, attributes),
        };
        let end = at + 1 + usize::from(is_close) + n_name + n_attributes + 1;
        Some(Self {
            kind,
            name,
            attributes: attributes.trim(),
            span: at..end,
            opens_line: false,
            close: None,
            is_paired: false,
            last_close: None,
        })
    }
}

fn opens_line(text: &str, at: usize, before: Option<&Tag<'_>>) -> bool {
    let from = before.map_or(0, |tag| tag.span.end.min(at));
    let between = &text[from..at];
    looks_at(between.len());
    match memrchr(b'\n', between.as_bytes()) {
        Some(newline) => between[newline..].trim().is_empty(),
        None => between.trim().is_empty() && before.is_none_or(|tag| tag.opens_line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Tag<'_>> {
        Tag::all(text, |name| name == "known")
    }

    #[test]
    fn tags_are_read_with_their_names_and_pairs() {
        let tags = all("<a-b c=\"d\">\n x <known>y</known></a-b><e/>\n<f> text <g>");
        let names: Vec<(&str, Kind, bool)> = tags
            .iter()
            .map(|tag| (tag.name, tag.kind, tag.opens_line))
            .collect();
        assert_eq!(
            names,
            [
                ("a-b", Kind::Open, true),
                ("known", Kind::Open, false),
                ("known", Kind::Close, false),
                ("a-b", Kind::Close, true),
                ("e", Kind::Empty, true),
                ("f", Kind::Open, true),
                ("g", Kind::Open, false),
            ]
        );
        assert_eq!(tags[0].close, Some(3));
        assert_eq!(tags[0].attributes, "c=\"d\"");
        assert_eq!(tags[1].close, Some(2));
        assert_eq!(tags[5].close, None);
    }

    #[test]
    fn an_element_in_doubt_ends_at_the_last_closing_tag_of_its_name() {
        let text = "<f>a</f> b </f> c <f>d</f> e";
        let tags = all(text);
        assert_eq!((tags[0].close, tags[0].last_close), (Some(1), Some(4)));
    }

    #[test]
    fn what_is_no_tag_is_none() {
        for text in ["a < b", "<3", "<>", "<a", "<a\n", "</>", "<é>", "<a<b"] {
            assert!(all(text).is_empty(), "{text:?}: {:?}", all(text));
        }
    }
}
