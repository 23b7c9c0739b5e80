//! Whether the owner's words support a fact.

use std::collections::BTreeSet;

use metaclaw_skills::terms;

/// The share of a fact's words that the owner must have typed.
const SHARE: f32 = 0.6;

/// Returns whether a fact says nothing that the owner did not say: most of its words are the owner's, and all numbers
/// and names are. A name is a word with a capital letter that does not begin the fact.
pub(crate) fn is_supported(fact: &str, said: &str) -> bool {
    let (of_fact, of_owner) = (words(fact), words(said));
    if of_fact.is_empty() {
        return false;
    }
    let n_own = of_fact.intersection(&of_owner).count() as f32;
    let lower = said.to_lowercase();
    let is_own = |word: &str| lower.contains(&word.to_lowercase());
    n_own / of_fact.len() as f32 >= SHARE && hard_words(fact).all(is_own)
}

/// Returns the numbers, the names and the parts of addresses of a fact.
fn hard_words(fact: &str) -> impl Iterator<Item = &str> {
    let split = |c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | '/'));
    let words = fact
        .split(split)
        .map(|it| it.trim_matches(['.', '-', '_', '/']));
    let words = words.filter(|it| !it.is_empty()).enumerate();
    let is_hard = |at: usize, word: &str| {
        let begins = word.chars().next().is_some_and(char::is_uppercase) && at > 0 && word != "I";
        begins || word.contains(|c: char| c.is_ascii_digit() || c == '@' || c == '/')
    };
    words
        .filter(move |(at, word)| is_hard(*at, word))
        .map(|(_, word)| word)
}

fn words(text: &str) -> BTreeSet<String> {
    terms(text).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_may_shorten_what_was_said_and_add_nothing() {
        let said = "By the way, we moved the whole shop from MySQL to Postgres 16 last week.";
        for (fact, expected) in [
            ("The shop moved from MySQL to Postgres 16", true),
            ("We moved the shop to Postgres 16 last week", true),
            ("The shop moved to Postgres 17", false),
            ("The shop moved to Oracle from MySQL last week", false),
            (
                "The user likes databases very much and hates Mondays",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(is_supported(fact, said), expected, "{fact}");
        }
        assert!(is_supported(
            "我住在上海浦东",
            "对了，我住在上海浦东，离公司很远。"
        ));
        assert!(!is_supported(
            "我住在北京朝阳区附近",
            "对了，我住在上海浦东。"
        ));
    }
}
