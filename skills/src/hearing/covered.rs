//! Covers what is not the owner's in a message: quotations, code, elements, and texts of others that go on to its end.

use std::sync::LazyLock;

use regex::Regex;

use super::lexicon::voice;
use crate::words::pattern;

/// The character that replaces covered words (SUBSTITUTE, one byte). No cue contains it.
pub(super) const COVER: char = '\u{1a}';
/// The longest quotation, in bytes, that is read as part of the owner's sentence.
const FEW_WORDS: usize = 60;
/// Of a longer text, in bytes, the lines at its ends are read, half of this at each. Nobody types so much.
pub(super) const MOST_READ: usize = 32 * 1024;
/// Matches the beginning of somebody else's text, which extends to the end of the message.
static FOREIGN: LazyLock<Regex> = LazyLock::new(|| {
    let lines = FOREIGN_LINES
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let any = lines.collect::<Vec<_>>().join("|");
    pattern(&format!(r"(?im)^\s*(?:{any})"))
});
const FOREIGN_LINES: &str = include_str!("../../data/foreign.txt");
const QUOTED: [&str; 4] = [">", "|", "//", "/*"];
/// The prompt of an interpreter, whose answer follows.
const INTERPRETER: &str = ">>> ";
static INLINE: LazyLock<Regex> = LazyLock::new(|| voice("inline"));
static ELEMENTS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)<\p{L}[^<>]*>.*</\p{L}[^<>]*>"));
/// Matches the marks of code in a line, and those that end a quotation in TeX, which begins with two marks of code.
static TICKS: LazyLock<Regex> = LazyLock::new(|| pattern("`+|''"));
/// Each a mark, and another way to write it, which is never shorter.
const WAYS: &str = "\"&quot; \"&#34; \"＂ <&lt; <＜ >&gt; >＞";
const BREAKS: &str = "\r\u{b}\u{c}\u{1c}\u{1d}\u{1e}\u{85}\u{2028}\u{2029}";
/// Marks that open a quotation, each before those that may close it.
static MARKS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let marks = "“” ”” ‟”“‟ „“”‟\" »«» «»« ›‹› ‹›‹ 〝〞〟 「」 『』 《》 \"\" ‘’ ‚‘’ ''";
    marks.split(' ').collect()
});

fn is_quoted(line: &str) -> bool {
    let is_sentence = || line.split_whitespace().count() > 3;
    let adds = line.strip_prefix('+');
    QUOTED.iter().any(|mark| line.starts_with(mark))
        || line.starts_with("# ") && is_sentence()
        || adds.is_some_and(|added| added.starts_with(char::is_alphabetic))
}

/// Returns whether a part of a message is somebody else's. A few quoted words are part of the sentence that has them.
pub(super) fn has_foreign(text: &str) -> bool {
    let is_long = |quoted: &str| quoted.len() > FEW_WORDS || quoted.contains('\n');
    mask_with(&plain(text), is_long).contains(COVER)
}

/// Returns the text with one way to write line breaks and marks. Its length in bytes stays the same. Blanks come before
/// a mark, so that a sentence ends where a character of the text ends.
pub(super) fn plain(text: &str) -> String {
    let breaks = BREAKS.split_inclusive(|_| true).map(|from| ("\n", from));
    let ways = WAYS.split(' ').map(|way| way.split_at(1)).chain(breaks);
    ways.fold(text.replace("\r\n", " \n"), |text, (to, from)| {
        text.replace(from, &format!("{to:>0$}", from.len()))
    })
}

/// Covers foreign parts of the text, and quotations that `covers` accepts. Its length in bytes stays the same.
pub(super) fn mask_with(text: &str, covers: impl Fn(&str) -> bool) -> String {
    let mut masked = text.as_bytes().to_vec();
    let mut spans = code(text);
    cover(&mut masked, &spans);
    spans = quotations(&as_text(&masked));
    spans.retain(|(from, to)| covers(&text[*from..*to]));
    cover(&mut masked, &spans);
    let begins = FOREIGN.find(&as_text(&masked)).map(|found| found.start());
    spans = begins.map(|from| (from, text.len())).into_iter().collect();
    cover(&mut masked, &spans);
    let seen = as_text(&masked);
    let inline = INLINE.find_iter(&seen).chain(ELEMENTS.find(&seen));
    spans = inline.map(|found| (found.start(), found.end())).collect();
    cover(&mut masked, &spans);
    cover(&mut masked, &[middle(text)]);
    as_text(&masked)
}

/// Returns the part of a text that is not read: the whole lines between its ends. It is empty for a text that somebody
/// may have typed.
pub(super) fn middle(text: &str) -> (usize, usize) {
    if text.len() <= MOST_READ {
        return (text.len(), text.len());
    }
    let is_break = |byte: &u8| *byte == b'\n';
    let (head, tail) = (
        &text.as_bytes()[..MOST_READ / 2],
        &text.as_bytes()[text.len() - MOST_READ / 2..],
    );
    let from = head.iter().rposition(is_break).map_or(0, |at| at + 1);
    let n_cut = tail.iter().position(is_break).unwrap_or(tail.len());
    (from, text.len() - tail.len() + n_cut)
}

/// Whole characters are covered, so that it is still text.
fn as_text(masked: &[u8]) -> String {
    String::from_utf8_lossy(masked).into_owned()
}

/// Covers spans with one mark followed by spaces, so that all positions stay the same.
fn cover(masked: &mut [u8], spans: &[(usize, usize)]) {
    for (from, to) in spans {
        for (place, byte) in masked[*from..*to].iter_mut().enumerate() {
            *byte = if place == 0 { COVER as u8 } else { b' ' };
        }
    }
}

pub(super) fn code(text: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut fence: Option<usize> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            match fence.take() {
                Some(from) => spans.push((from, at + line.len())),
                None => fence = Some(at),
            }
        } else if fence.is_none() && line.starts_with(INTERPRETER) {
            fence = Some(at);
            break;
        } else if fence.is_none() && is_quoted(trimmed) {
            spans.push((at, at + line.trim_end_matches('\n').len()));
        }
        at += line.len();
    }
    spans.extend(fence.map(|from| (from, text.len())));
    let mut covered = spans.iter().peekable();
    let mut outside = |place: &usize| {
        while covered.next_if(|(_, to)| to <= place).is_some() {}
        covered.peek().is_none_or(|(from, _)| place < from)
    };
    let (mut inline, mut open) = (Vec::new(), None::<regex::Match<'_>>);
    for tick in TICKS.find_iter(text).filter(|tick| outside(&tick.start())) {
        let is_tex = tick.as_str() == "''";
        match open {
            None if !is_tex => open = Some(tick),
            Some(from) if !is_tex || from.len() == 2 => {
                inline.push((from.start(), tick.end()));
                open = None;
            }
            _ => {}
        }
    }
    spans.extend(inline);
    spans
}

pub(super) fn quotations(text: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    // A quotation ends within its paragraph. One that never ends is an apostrophe or an inch sign. Its mark is not
    // searched again in that paragraph.
    let (mut paragraph_end, mut unclosed) = (0, Vec::new());
    let mut chars = text.char_indices();
    while let Some((from, c)) = chars.next() {
        let opens = c != '\''
            || text[..from].ends_with(|c: char| c.is_whitespace() || ":(,=[{".contains(c));
        let mark = MARKS.iter().find(|mark| mark.starts_with(c) && opens);
        let Some(closing) = mark.map(|mark| &mark[c.len_utf8()..]) else {
            continue;
        };
        let begin = from + c.len_utf8();
        if begin > paragraph_end {
            unclosed.clear();
            let end = text[begin..].find("\n\n");
            paragraph_end = end.map_or(text.len(), |end| begin + end);
        }
        if unclosed.contains(&c) {
            continue;
        }
        let paragraph = &text[begin..paragraph_end];
        let ends = |(at, close): &(usize, &str)| {
            let after = paragraph[at + close.len()..].chars().next();
            !matches!(*close, "'" | "’") || after.is_none_or(|c| !c.is_alphanumeric())
        };
        let end = paragraph.match_indices(|c| closing.contains(c)).find(ends);
        if let Some((end, close)) = end {
            let to = begin + end + close.len();
            if is_a_word(&paragraph[..end]) {
                // The quotation does not end its sentence.
                let ends = paragraph[..end].char_indices().filter(|(_, c)| is_end(*c));
                let place = |(at, c): (usize, char)| (begin + at, begin + at + c.len_utf8());
                spans.extend(ends.map(place));
            } else {
                spans.push((from, to));
            }
            while chars.as_str().len() > text.len() - to {
                chars.next();
            }
        } else {
            unclosed.push(c);
        }
    }
    spans
}

/// Returns whether a quotation is only a word or two, such as a form of address, which cannot contain an order.
fn is_a_word(quoted: &str) -> bool {
    let n_wide = quoted.chars().filter(|c| is_wide(*c)).count();
    quoted.split_whitespace().count() <= 2 && n_wide <= 4
}

pub(super) fn is_wide(c: char) -> bool {
    matches!(u32::from(c), 0x4E00..=0x9FFF | 0x3400..=0x4DBF)
}

pub(super) fn is_end(c: char) -> bool {
    matches!(
        c,
        '.' | '。' | '！' | '？' | '；' | ';' | '!' | '?' | '…' | '～'
    )
}
