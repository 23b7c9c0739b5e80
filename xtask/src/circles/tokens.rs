//! Rust's text as words and marks: comments, strings, numbers and lifetimes are gone.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// An identifier or a keyword; a raw identifier without its `r#`.
    Word(String),
    /// `::`.
    PathSep,
    Mark(char),
}

impl Token {
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found == word)
    }
}

/// Takes `text` apart. What is not Rust comes out as something: rustc says what is wrong with it.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&first) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        at = match (first, next) {
            ('/', Some('/')) => skip_while(&chars, at, |c| c != '\n'),
            ('/', Some('*')) => block_comment(&chars, at),
            ('"', _) => quoted(&chars, at),
            ('\'', _) => char_or_lifetime(&chars, at),
            (':', Some(':')) => {
                found.push(Token::PathSep);
                at + 2
            }
            _ if first.is_ascii_digit() => skip_while(&chars, at, is_word),
            _ if is_word(first) => word(&chars, at, &mut found),
            _ => {
                if !first.is_whitespace() {
                    found.push(Token::Mark(first));
                }
                at + 1
            }
        };
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn skip_while(chars: &[char], from: usize, keep: impl Fn(char) -> bool) -> usize {
    let length = chars.iter().skip(from).take_while(|c| keep(**c)).count();
    from + length
}

fn block_comment(chars: &[char], from: usize) -> usize {
    let mut depth = 0;
    let mut at = from;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => depth += 1,
            ('*', Some('/')) => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            break;
        }
    }
    at
}

/// A string, from its first quote.
fn quoted(chars: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// A raw string, from the first of its `#`s or its quote; `None` where there is no quote behind them.
fn raw_quoted(chars: &[char], from: usize) -> Option<usize> {
    let quote = skip_while(chars, from, |c| c == '#');
    let n_hashes = quote - from;
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    let mut at = quote + 1;
    while at < chars.len() {
        let end = at + 1 + n_hashes;
        let closes = chars[at] == '"' && chars.get(at + 1..end).is_some_and(all_hashes);
        if closes {
            return Some(end);
        }
        at += 1;
    }
    Some(at)
}

fn all_hashes(chars: &[char]) -> bool {
    chars.iter().all(|c| *c == '#')
}

/// `'a'`, `'\''`, or the `'a` of a lifetime.
fn char_or_lifetime(chars: &[char], from: usize) -> usize {
    match (chars.get(from + 1), chars.get(from + 2)) {
        (Some('\\'), _) => skip_while(chars, from + 3, |c| c != '\'') + 1,
        (Some(_), Some('\'')) => from + 3,
        _ => skip_while(chars, from + 1, is_word),
    }
}

/// A word, or the string whose prefix it is (`b"..."`, `r#"..."#`, `c"..."`).
fn word(chars: &[char], from: usize, found: &mut Vec<Token>) -> usize {
    let end = skip_while(chars, from, is_word);
    let text: String = chars[from..end].iter().collect();
    let next = chars.get(end);
    match (text.as_str(), next) {
        ("r" | "br" | "cr", Some('#' | '"')) => {
            if let Some(end) = raw_quoted(chars, end) {
                return end;
            }
            let end = end + 1;
            return word(chars, end, found);
        }
        ("b" | "c", Some('"')) => return quoted(chars, end),
        ("b", Some('\'')) => return char_or_lifetime(chars, end),
        _ => found.push(Token::Word(text)),
    }
    end
}
