//! Prints a subcommand's answer on standard output, and everything else on standard error.
//!
//! Much of the output was written by a model, a web page or the author of a skill. On a terminal, control characters
//! are shown in escaped form, because they could set the title, clear the screen or fill the clipboard.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
};

use metaclaw_chat::now_ms;
use serde::Serialize;
use textwrap::core::display_width;

/// Prints a text and a line end. A reader that has ended, such as `head`, is no error.
pub(crate) fn line(text: impl AsRef<str>) -> io::Result<()> {
    lines_are_read(&[text]).map(drop)
}

/// Prints lines; returns whether anybody reads them.
pub(crate) fn lines_are_read(lines: &[impl AsRef<str>]) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    let is_terminal = out.is_terminal();
    let mut write = || {
        for line in lines {
            out.write_all(for_reader(line.as_ref(), is_terminal).as_bytes())?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    match write() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

pub(crate) fn safe_line(text: &str) -> String {
    let line = text.replace(['\n', '\t'], " ");
    for_reader(&line, true).into_owned()
}

/// The error that nobody reads the output any more, which ends the command without a failure.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output any more")]
struct ReaderGone;

pub(crate) fn is_reader_gone(error: &anyhow::Error) -> bool {
    let io = |cause: &(dyn std::error::Error + 'static)| {
        let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
        Some(inner.is::<ReaderGone>())
    };
    error.chain().any(|cause| io(cause) == Some(true))
}

struct OutputPieces(io::StdoutLock<'static>);

impl Write for OutputPieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        io::Error::other(ReaderGone)
    } else {
        error
    }
}

pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

pub(crate) fn answer<T: Serialize>(
    value: &T,
    is_json: bool,
    words: impl FnOnce(&T) -> String,
) -> io::Result<()> {
    if is_json {
        json(value)
    } else {
        line(words(value))
    }
}

pub(crate) fn answer_table<T: Serialize>(
    values: &[T],
    is_json: bool,
    head: &[&str],
    row: impl FnMut(&T) -> Vec<String>,
) -> io::Result<()> {
    answer(&values, is_json, |values| {
        let rows: Vec<Vec<String>> = values.iter().map(row).collect();
        table(head, &rows)
    })
}

pub(crate) fn done(done: &str, is_json: bool) -> io::Result<()> {
    let value = BTreeMap::from([("done", done)]);
    answer(&value, is_json, |_| done.to_owned())
}

/// A writer for lines that come in pieces; on a terminal each is printed as [`line()`] prints it.
pub(crate) fn lines() -> Box<dyn Write> {
    let out = io::stdout().lock();
    if out.is_terminal() {
        let line = Vec::new();
        Box::new(ForReader { line, out })
    } else {
        Box::new(OutputPieces(out))
    }
}

struct ForReader<W> {
    line: Vec<u8>,
    out: W,
}

impl<W: Write> Write for ForReader<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            let whole: Vec<u8> = self.line.drain(..=end).collect();
            let text = String::from_utf8_lossy(&whole);
            self.out.write_all(for_reader(&text, true).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Asks a question. `preset` is the default answer.
pub(crate) fn ask(question: &str, preset: bool) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    let choice = if preset { "[Y/n]" } else { "[y/N]" };
    write!(out, "{question} {choice} ")?;
    out.flush()?;
    let mut answer = String::new();
    // The end of the input is not an answer, so it does not mean yes.
    if io::stdin().read_line(&mut answer)? == 0 {
        return Ok(false);
    }
    let answer = answer.trim().to_lowercase();
    Ok(answer.is_empty() && preset || answer == "y" || answer == "yes")
}

/// Prints a message on standard error.
pub(crate) fn aside(text: impl AsRef<str>) {
    let mut out = io::stderr().lock();
    let text = for_reader(text.as_ref(), out.is_terminal());
    // If standard error is closed, the message is lost.
    writeln!(out, "{text}").ok();
}

pub(crate) fn for_reader(text: &str, is_terminal: bool) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || is_bidi_control(c);
    if is_terminal {
        escaped(text, is_harmful)
    } else {
        text.into()
    }
}

/// Characters that change the order in which others are shown.
pub(crate) fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a text whose harmful characters are escaped as in JSON, for example `\u001b`.
pub(crate) fn escaped(text: &str, is_harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_harmful(c) {
            safe.extend(format!("\\u{:04x}", u32::from(c)).chars());
        } else {
            safe.push(c);
        }
    }
    safe.into()
}

pub(crate) fn since(at_ms: u64) -> String {
    span(now_ms().saturating_sub(at_ms))
}

/// Returns a duration in its largest unit: `12 s`, `5 min`, `3 h`, `2 d`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Returns a number with its noun: `1 turn`, `2 turns`.
pub(crate) fn count(n: u64, thing: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {thing}{plural}")
}

pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| display_width(cell)).max();
        widest.unwrap_or(0).max(display_width(head[column]))
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let render = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| {
            let gap = width.saturating_sub(display_width(cell));
            format!("{cell}{:gap$}", "")
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![render(&mut head.iter().copied())];
    lines.extend(
        rows.iter()
            .map(|row| render(&mut row.iter().map(String::as_str))),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    #[test]
    fn a_terminal_is_given_no_control_characters() {
        let text = "a\tb\n\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\r\u{7f} ü";
        assert_eq!(super::for_reader(text, false), text);
        assert_eq!(
            super::for_reader(text, true),
            "a\tb\n\\u001b]0;x\\u0007\\u009b2J\\u202e\\u000d\\u007f ü"
        );
    }

    #[test]
    fn pieces_of_lines_are_escaped_as_whole_lines_are() {
        let (line, out) = (Vec::new(), Vec::new());
        let mut lines = super::ForReader { line, out };
        let text = "{\"said\": \"\u{9b}2J ü\"}\n{}\n";
        for byte in text.as_bytes() {
            lines.write_all(&[*byte]).unwrap();
        }
        assert_eq!(lines.out, b"{\"said\": \"\\u009b2J \xc3\xbc\"}\n{}\n");
    }

    #[test]
    fn a_span_is_told_in_its_largest_unit() {
        let spans = [5, 59_000, 61_000, 7_200_000, 200_000_000].map(super::span);
        assert_eq!(spans, ["0 s", "59 s", "1 min", "2 h", "2 d"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["a", "long cell"]),
            row(["简短", "回答"]),
            row(["é", ""]),
        ];
        assert_eq!(
            super::table(&["name", "it"], &rows),
            "name  it\na     long cell\n简短  回答\né"
        );
    }
}
