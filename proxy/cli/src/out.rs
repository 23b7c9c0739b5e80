//! What a subcommand prints: its answer on standard output, everything else elsewhere.

use std::io::{self, Write};

use serde::Serialize;

/// Prints a text and a line end. A reader that went away, as `head` does, is no error.
pub(crate) fn line(text: impl AsRef<str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out
        .write_all(text.as_ref().as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints JSON that a person can read too.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

/// Says something beside the answer.
pub(crate) fn aside(text: impl AsRef<str>) {
    // Nobody can be told when the error output is gone.
    writeln!(io::stderr().lock(), "{}", text.as_ref()).ok();
}

/// Columns as wide as their widest cell.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).max(head[column].chars().count())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let render = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
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
    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["a".to_owned(), "long cell".to_owned()]];
        assert_eq!(
            super::table(&["name", "it"], &rows),
            "name  it\na     long cell"
        );
    }
}
