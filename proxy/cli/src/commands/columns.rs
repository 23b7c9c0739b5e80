//! Texts beside each other.

use std::borrow::Cow;

use textwrap::core::display_width;

const GAP: &str = " | ";
/// Narrower columns cannot be read: the texts stand below each other then.
const NARROWEST: usize = 24;

#[derive(Debug, Clone, Copy)]
pub(super) struct TextColumn<'t> {
    pub(super) title: &'t str,
    pub(super) text: &'t str,
}

/// Returns a text on one line of at most `width` characters.
pub(super) fn short(text: &str, width: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= width {
        return line;
    }
    let cut: String = line.chars().take(width - 1).collect();
    format!("{cut}…")
}

pub(super) fn side_by_side(columns: &[TextColumn<'_>], width: usize) -> String {
    let n_columns = columns.len().max(1);
    let each = width.saturating_sub((n_columns - 1) * GAP.len()) / n_columns;
    if each < NARROWEST {
        let below = |column: &TextColumn<'_>| {
            format!(
                "{}:\n{}",
                column.title,
                textwrap::fill(column.text, width.max(NARROWEST))
            )
        };
        let parts: Vec<String> = columns.iter().map(below).collect();
        return parts.join("\n\n");
    }
    let wrap = |column: &TextColumn<'_>| {
        let mut lines = vec![column.title.to_owned(), "-".repeat(each)];
        let wrapped = textwrap::wrap(column.text.trim(), each).into_iter();
        lines.extend(wrapped.map(Cow::into_owned));
        lines
    };
    let columns: Vec<Vec<String>> = columns.iter().map(wrap).collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or_default();
    let row = |at: usize| {
        let cell = |lines: &Vec<String>| {
            let text = lines.get(at).map_or("", String::as_str);
            format!(
                "{text}{}",
                " ".repeat(each.saturating_sub(display_width(text)))
            )
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        cells.join(GAP).trim_end().to_owned()
    };
    let rows: Vec<String> = (0..height).map(row).collect();
    rows.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [TextColumn<'_>; 2] = [
        TextColumn {
            title: "without",
            text: "Rain is water that falls from clouds.\n\n1. It evaporates.",
        },
        TextColumn {
            title: "with",
            text: "雨是从云里落下来的水，落到地面上又流进江河湖海里去。",
        },
    ];

    #[test]
    fn texts_stand_beside_each_other_however_wide_their_characters_are() {
        insta::assert_snapshot!(side_by_side(&COLUMNS, 56), @r"
        without                    | with
        -------------------------- | --------------------------
        Rain is water that falls   | 雨是从云里落下来的水，落到
        from clouds.               | 地面上又流进江河湖海里去。
                                   |
        1. It evaporates.          |
        ");
    }

    #[test]
    fn in_a_narrow_terminal_they_stand_below_each_other() {
        insta::assert_snapshot!(side_by_side(&COLUMNS, 40), @r"
        without:
        Rain is water that falls from clouds.

        1. It evaporates.

        with:
        雨是从云里落下来的水，落到地面上又流进江
        河湖海里去。
        ");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(short("one  two\nthree", 20), "one two three");
        assert_eq!(short("日本語のテキスト", 4), "日本語…");
    }
}
