//! Other servers' words for known things: a table with the source of each word.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::Value;

static TABLE: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut table: HashMap<_, Vec<_>> = HashMap::new();
    for line in include_str!("words.tsv").lines() {
        let mut columns = line.split('\t');
        if let (Some(kind), Some(word)) = (columns.next(), columns.next()) {
            table.entry(kind).or_default().push(word);
        }
    }
    table
});

/// Returns the words of a kind, the most common first.
pub fn words(kind: &str) -> &'static [&'static str] {
    TABLE.get(kind).map_or(&[], Vec::as_slice)
}

/// Returns a token count in a `usage`, by any server's name: `prompt`, `completion`, `cached`, `written` or
/// `reasoning`. Servers that have several names repeat the same count.
pub fn token_count(usage: &Value, kind: &str) -> u64 {
    let count = |path: &&str| {
        let mut names = path.split('/').skip(1);
        names
            .try_fold(usage, |value, name| value.get(name))?
            .as_u64()
    };
    words(kind).iter().filter_map(count).max().unwrap_or(0)
}

/// Returns the thinking in a field of a chat message or a delta, by any server's name.
pub fn thinking(message: &Value) -> Option<&str> {
    let mut texts = words("thinking").iter();
    texts.find_map(|name| message[*name].as_str().filter(|text| !text.is_empty()))
}
