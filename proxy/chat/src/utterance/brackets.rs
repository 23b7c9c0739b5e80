//! Removes text that clients put between square brackets or between lines of hyphens: notes to the model before what
//! was typed, and blocks of context with a closing mark.

use std::borrow::Cow;

use memchr::memmem;

use super::{
    tables::{Name, is_named},
    work::looks_at,
    wrappers::is_note,
};

/// The largest number of kinds of blocks that are removed from one text. No client writes more, and a text with more is nobody's.
const MOST_BLOCKS: usize = 16;

pub(super) fn without_brackets(text: &str) -> Cow<'_, str> {
    without_blocks(without_notes(text))
}

fn without_notes(text: &str) -> &str {
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start();
        if !is_note(trimmed) {
            return rest;
        }
        // A truncated one is the client's too.
        rest = closing(trimmed).map_or("", |end| &trimmed[end..]);
    }
}

/// Returns the position after the bracket that closes the one at the beginning. In a note of several lines, which may
/// quote others, it is the last one that ends a line.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.bytes().enumerate() {
        looks_at(1);
        match c {
            b'[' => depth += 1,
            b']' if depth == 1 => return Some(at + 1),
            b']' => depth -= 1,
            b'\n' => break,
            _ => {}
        }
    }
    let ends = |(line, end): (&str, usize)| line.trim_end().ends_with(']').then_some(end);
    let mut end = 0;
    let lines = text.split_inclusive('\n').map(|line| {
        end += line.len();
        (line, end)
    });
    looks_at(text.len());
    lines.filter_map(ends).last()
}

/// Removes `[Name …]`, `[/Name]` and everything between, and `--- Name ---`, `--- End of name ---` and everything
/// between. If the same mark closes twice, the last one counts.
fn without_blocks(text: &str) -> Cow<'_, str> {
    if !text.contains("[/") && !text.contains(END_OF) {
        return Cow::Borrowed(text);
    }
    let mut ends: Vec<(String, usize)> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len();
        let Some(opening) = opening_of(line.trim()) else {
            continue;
        };
        match ends.iter().position(|(known, _)| *known == opening) {
            Some(known) => ends[known].1 = at,
            None if ends.len() < MOST_BLOCKS => ends.push((opening, at)),
            // Which of them the client wrote is in doubt.
            None => return Cow::Borrowed(""),
        }
    }
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    for (opening, end) in ends {
        looks_at(end);
        blocks.extend(line_that_begins(&text[..end], &opening).map(|from| (from, end)));
    }
    blocks.sort_unstable();
    let (mut kept, mut from) = (String::new(), 0);
    for (start, end) in blocks {
        kept.push_str(text.get(from..start).unwrap_or_default());
        from = from.max(end);
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    kept.push_str(&text[from..]);
    Cow::Owned(kept)
}

const END_OF: &str = "--- End of ";

fn opening_of(line: &str) -> Option<String> {
    if let Some(name) = line
        .strip_prefix("[/")
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let is_forum = is_named(Name::Forum, &name.to_ascii_lowercase());
        let is_name = !is_forum && name.starts_with(|c: char| c.is_ascii_alphabetic());
        return is_name.then(|| format!("[{name}"));
    }
    (line.starts_with(END_OF) && line.ends_with("---")).then(|| "--- ".to_owned())
}

fn line_that_begins(text: &str, mark: &str) -> Option<usize> {
    let mut found = memmem::find_iter(text.as_bytes(), mark.as_bytes());
    found.find(|at| {
        text[..*at]
            .trim_end_matches([' ', '\t'])
            .bytes()
            .next_back()
            .is_none_or(|c| c == b'\n')
    })
}

pub(super) fn opens_block(part: &str) -> bool {
    let first = part
        .trim_start()
        .lines()
        .next()
        .unwrap_or_default()
        .trim_end();
    first.starts_with("--- ") && first.len() > 8 && first.ends_with(" ---") && !closes_block(part)
}

pub(super) fn closes_block(part: &str) -> bool {
    part.lines()
        .any(|line| line.trim_start().starts_with(END_OF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_before_and_blocks_anywhere_go() {
        for (text, rest) in [
            (
                "[System note: A new message has arrived.]\n\nHello",
                "\n\nHello",
            ),
            (
                "[IMPORTANT: x [SILENT] y]\n[System: z] Hello [a]",
                " Hello [a]",
            ),
            ("[System note: it was cut", ""),
            (
                "Hello\n\n[Runtime Context — metadata only, not instructions]\nTime: now\n[/Runtime Context]",
                "Hello\n\n",
            ),
            ("a\n[Goal Guidance]\nx\n[/Goal Guidance]\nb", "a\nb"),
            (
                "Sum @a up\n--- Content from files ---\nalways x\n--- End of content ---",
                "Sum @a up\n",
            ),
            ("[code]\nx\n[/code]\nwhy?", "[code]\nx\n[/code]\nwhy?"),
            ("[x] done\n[/y]", "[x] done\n[/y]"),
            ("[draft] Hello", "[draft] Hello"),
            ("---\na\n---\nb", "---\na\n---\nb"),
        ] {
            assert_eq!(without_brackets(text), rest, "{text}");
        }
    }
}
