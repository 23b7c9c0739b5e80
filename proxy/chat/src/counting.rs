//! How many words a text has.

/// Counts the words of a text: parts between spaces that contain a letter or a digit. In a script without spaces
/// (Chinese, Japanese), two characters are a word.
///
/// About as many as a person would say: "well-known" is one, "你好吗" two, "—" none.
///
/// # Examples
/// ```
/// assert_eq!(metaclaw_chat::count_words("Paris, of course."), 3);
/// ```
pub fn count_words(text: &str) -> usize {
    text.split_whitespace().map(count_in_piece).sum()
}

fn count_in_piece(piece: &str) -> usize {
    let n_wide = piece.chars().filter(|&c| is_unspaced(c)).count();
    if n_wide == 0 {
        return usize::from(piece.chars().any(char::is_alphanumeric));
    }
    let others = piece.split(is_unspaced);
    let n_others = others
        .filter(|part| part.chars().any(char::is_alphanumeric))
        .count();
    n_wide.div_ceil(2) + n_others
}

/// Han, Hiragana, Katakana; Korean has spaces.
fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x323AF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_as_a_person_would() {
        for (text, words) in [
            ("", 0),
            ("Paris is the capital of France.", 6),
            ("a well-known fact — it's 3.5 %", 5),
            ("- one\n- two", 2),
            ("你好吗", 2),
            ("用Rust写的程序。", 4),
            ("안녕 하세요", 2),
        ] {
            assert_eq!(count_words(text), words, "{text:?}");
        }
    }
}
