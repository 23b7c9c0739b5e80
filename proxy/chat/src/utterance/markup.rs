//! Decides which elements are a person's own text, such as a pasted page or document, and not a client's wrapper.

use super::{
    tags::{Kind, Tag},
    work::looks_at,
};

/// Names of HTML, SVG and MathML elements, sorted. `summary` and `path` are missing because clients use them too.
const MARKUP: [&str; 157] = [
    "a",
    "abbr",
    "acronym",
    "address",
    "animate",
    "area",
    "article",
    "aside",
    "audio",
    "b",
    "base",
    "basefont",
    "bdi",
    "bdo",
    "big",
    "blockquote",
    "body",
    "br",
    "button",
    "canvas",
    "caption",
    "center",
    "circle",
    "cite",
    "code",
    "col",
    "colgroup",
    "data",
    "datalist",
    "dd",
    "defs",
    "del",
    "desc",
    "details",
    "dfn",
    "dialog",
    "dir",
    "div",
    "dl",
    "dt",
    "ellipse",
    "em",
    "embed",
    "fieldset",
    "figcaption",
    "figure",
    "filter",
    "font",
    "footer",
    "form",
    "frame",
    "frameset",
    "g",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hgroup",
    "hr",
    "html",
    "i",
    "iframe",
    "image",
    "img",
    "input",
    "ins",
    "kbd",
    "label",
    "legend",
    "li",
    "line",
    "link",
    "main",
    "map",
    "mark",
    "marker",
    "mask",
    "math",
    "menu",
    "meta",
    "meter",
    "mfrac",
    "mi",
    "mn",
    "mo",
    "mrow",
    "msqrt",
    "msub",
    "msup",
    "nav",
    "noscript",
    "object",
    "ol",
    "optgroup",
    "option",
    "output",
    "p",
    "param",
    "pattern",
    "picture",
    "polygon",
    "polyline",
    "portal",
    "pre",
    "progress",
    "q",
    "rb",
    "rect",
    "rp",
    "rt",
    "ruby",
    "s",
    "samp",
    "script",
    "search",
    "section",
    "select",
    "set",
    "slot",
    "small",
    "source",
    "span",
    "stop",
    "strike",
    "strong",
    "style",
    "sub",
    "sup",
    "svg",
    "switch",
    "symbol",
    "table",
    "tbody",
    "td",
    "template",
    "text",
    "textarea",
    "tfoot",
    "th",
    "thead",
    "time",
    "title",
    "tr",
    "track",
    "tspan",
    "tt",
    "u",
    "ul",
    "use",
    "var",
    "video",
    "view",
    "wbr",
];

/// Attributes of web pages and XML documents. No client's wrapper has them.
const ATTRIBUTES: [&str; 7] = [
    "xmlns", "class=", "style=", "slot=", "@click", "(click)", "v-if=",
];

/// Bytes before a document that are searched for its introduction.
const INTRODUCTION: usize = 256;

/// Returns whether a tag by itself looks like one of a page, a drawing or a component.
pub(super) fn is_markup(tag: &Tag<'_>) -> bool {
    let is_listed = || {
        let name = tag.name.to_ascii_lowercase();
        MARKUP.binary_search(&name.as_str()).is_ok()
    };
    is_of_two_cases(tag.name)
        || tag.name.contains(['.', ':'])
        || tag.name.len() == 1
        || is_listed()
        || ATTRIBUTES.iter().any(|it| tag.attributes.contains(it))
}

/// Returns whether the element that `tags[open]` opens is an XML document: it is declared as one, or has mixed-case
/// names in it, or its introduction calls it one and it contains only elements.
pub(super) fn is_document(text: &str, tags: &[Tag<'_>], open: usize, close: usize) -> bool {
    let before = text[..tags[open].span.start].trim_end();
    let from = before.len().saturating_sub(INTRODUCTION);
    let from = (from..before.len()).find(|at| before.is_char_boundary(*at));
    let before = &before[from.unwrap_or(before.len())..];
    let last_line = before.rsplit('\n').next().unwrap_or_default().trim_start();
    if last_line.starts_with("<?xml") || last_line.starts_with("<!") {
        return true;
    }
    let inner = &tags[open + 1..close];
    looks_at(INTRODUCTION + tags[close].span.start - tags[open].span.start);
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
    is_introduced && tags[open].attributes.is_empty() && begins && ends && first.kind != Kind::Close
}

/// Recognises a component (`MyButton`), or a document's name (`groupId`).
fn is_of_two_cases(name: &str) -> bool {
    let has = |is: fn(&u8) -> bool| name.as_bytes().iter().any(is);
    has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_sorted() {
        assert!(super::MARKUP.is_sorted());
    }
}
