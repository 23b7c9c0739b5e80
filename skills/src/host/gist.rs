//! Decides whether two sentences ask for the same. In doubt they do not, because a repeated wish costs one line, but an
//! omitted one is lost.

use metaclaw_chat::one_line;

use crate::{
    hearing::Facet,
    words::{WORD_LISTS, stems, terms},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gist {
    /// Its words in lower case and original order.
    said: String,
    /// Its subject, and the words that say what is wished, or `None` if one of both is missing.
    wished: Option<(Facet, Vec<String>)>,
}

// === impl Gist ===

impl Gist {
    pub(crate) fn new(sentence: &str) -> Self {
        let plain = sentence.to_lowercase().replace(['*', '`', '_', '"'], "");
        let line = one_line(&plain);
        let said = line
            .trim_end_matches(['.', '!', ';', '。', '！', '；'])
            .trim();
        let words = wished(said);
        let facet = Facet::of_wish(said).filter(|_| !words.is_empty());
        Self {
            said: said.to_owned(),
            wished: facet.map(|facet| (facet, words)),
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        !self.said.is_empty() && self.said == other.said
            || self.wished.is_some() && self.wished == other.wished
    }
}

/// Returns the independent sentences of a line. A line with an exception is one sentence, because half of it would be
/// another wish.
pub(crate) fn gists(line: &str) -> Vec<Gist> {
    let lower = line.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    let limits = WORD_LISTS.list("limits");
    let is_limited = words.any(|word| limits.contains(&word))
        || limits.iter().any(|w| !w.is_ascii() && lower.contains(w));
    if is_limited {
        return vec![Gist::new(line)];
    }
    let mut gists = Vec::new();
    let mut from = 0;
    for (at, end) in line.char_indices() {
        let after = &line[at + end.len_utf8()..];
        let is_end = matches!(end, '。' | '！' | '；')
            || matches!(end, '.' | '!' | ';') && after.starts_with(' ');
        if is_end {
            gists.push(Gist::new(&line[from..at]));
            from = at + end.len_utf8();
        }
    }
    gists.push(Gist::new(&line[from..]));
    gists.retain(|gist| !gist.said.is_empty());
    gists
}

/// Returns the words that say what is wished, without their endings, in order.
fn wished(said: &str) -> Vec<String> {
    let mut said = said.replace("from now on", "");
    for frame in WORD_LISTS.list("around") {
        said = said.replace(frame, "");
    }
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '’' | '-');
    let words = said
        .split(|c: char| !is_part(c))
        .filter(|word| !word.is_empty());
    let (frame, negations) = (WORD_LISTS.list("frame"), WORD_LISTS.list("not"));
    let words = words.filter(|word| !frame.contains(word));
    let word = |word: &str| {
        if negations.contains(&word) {
            return "not".to_owned();
        }
        let stem = stems(word).concat();
        // Scripts without spaces have no endings.
        if stem.is_empty() {
            word.to_owned()
        } else {
            stem
        }
    };
    words.map(word).collect()
}

pub(crate) fn is_alike(one: &str, other: &str) -> bool {
    let said = Gist::new(one).said;
    let words = terms(one);
    !said.is_empty() && said == Gist::new(other).said || !words.is_empty() && words == terms(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: &str, other: &str) -> bool {
        let wish = Gist::new(one);
        gists(other).iter().any(|gist| gist.is_same(&wish))
    }

    #[test]
    fn the_same_in_the_same_words_or_about_the_same() {
        for (ours, hosts) in [
            (
                "Please always answer in one sentence.",
                "Always answer in one sentence",
            ),
            (
                "Always answer in one sentence.",
                "Prefer answers in one sentence.",
            ),
            ("Be brief.", "**Be brief**"),
            ("Do not use emojis.", "Never use any emojis. Prefer tables."),
            ("Keep answers short.", "User prefers short responses."),
            ("From now on answer in German.", "Answer in German."),
            ("Call me Max.", "Call me Max"),
            ("以后都用中文回答。", "请用中文回答"),
            (
                "Run the tests before you commit.",
                "- Run the tests before you commit.".trim_start_matches("- "),
            ),
        ] {
            assert!(same(ours, hosts), "{ours:?} {hosts:?}");
        }
    }

    #[test]
    fn in_doubt_it_is_not_the_same() {
        for (ours, hosts) in [
            ("Use emojis.", "Never use emojis."),
            (
                "Always answer in one sentence.",
                "Always answer in two sentences.",
            ),
            (
                "Answer in German.",
                "Answer in German when I write in German.",
            ),
            (
                "Answer in German.",
                "Answer in German. Except in code, unless I ask.",
            ),
            (
                "Answer in English, never in German.",
                "Answer in German, never in English.",
            ),
            ("Keep answers short.", "Keep commit messages short."),
            ("Be brief.", "Be thorough."),
            ("Call me Max.", "Call me Moritz."),
            ("Answer.", "Reply."),
            ("", ""),
            ("以后都用中文回答。", "以后都用英文回答。"),
            ("不要用表情。", "用表情。"),
        ] {
            assert!(!same(ours, hosts), "{ours:?} {hosts:?}");
        }
    }

    #[test]
    fn descriptions_are_alike_in_the_same_words_only() {
        assert!(is_alike("Use when asked for the weather.", "The weather"));
        assert!(!is_alike("The weather in the Alps", "The weather"));
        assert!(!is_alike("", ""));
    }
}
