//! Which skills a request asks for: BM25 over their words, behind a gate.
//!
//! A skill is a candidate only if its name, description or category shares a selective word with the
//! request: those say when it applies. Its body then helps to rank it. So "What is the capital of
//! France?" brings in nothing, however many skills mention capitals in passing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    sync::Arc,
};

use bm25::{Embedder, EmbedderBuilder, Scorer, Tokenizer};

use crate::{skill::Skill, words::terms};

/// Terms of a request that are looked at, from its beginning and from its end: a pasted file is no question.
const QUERY_EDGE: usize = 64;
/// Terms of a body that are indexed: what a skill is about stands at its beginning.
const BODY_TERMS: usize = 300;
/// From this many skills on, a word that most of them have selects nothing.
const MIN_FOR_COMMON: usize = 4;

/// The skills of all agents, ready to be searched for any of them.
pub(crate) struct Index {
    embedder: Embedder<u32, Terms>,
    scorer: Scorer<usize>,
    /// Which skills have a word in their name, description or category.
    triggers: BTreeMap<String, BTreeSet<usize>>,
}

/// Which skills one agent sees, of those that an index numbers: everyone's come first, then each agent's
/// own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Visible {
    /// Everyone's.
    pub(crate) shared: Range<usize>,
    /// The agent's own.
    pub(crate) own: Range<usize>,
    /// Of everyone's, those that an own skill of the same name replaces.
    pub(crate) hidden: BTreeSet<usize>,
}

/// Our words, as the `bm25` crate wants them: texts here are terms already, joined by spaces.
#[derive(Debug, Default)]
struct Terms;

impl Tokenizer for Terms {
    fn tokenize(&self, text: &str) -> Vec<String> {
        text.split(' ')
            .filter(|term| !term.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

// === impl Index ===

impl Index {
    /// Reads the words of all skills; their places in `skills` are their numbers here.
    pub(crate) fn build(skills: &[Arc<Skill>]) -> Self {
        let mut triggers = BTreeMap::<String, BTreeSet<usize>>::new();
        let mut texts = Vec::new();
        for (number, skill) in skills.iter().enumerate() {
            let mut words = terms(&format!(
                "{} {} {}",
                skill.name, skill.description, skill.category
            ));
            for word in &words {
                triggers.entry(word.clone()).or_default().insert(number);
            }
            words.extend(terms(&skill.content).into_iter().take(BODY_TERMS));
            texts.push(words.join(" "));
        }
        let corpus: Vec<&str> = texts.iter().map(String::as_str).collect();
        let embedder: Embedder<u32, Terms> =
            EmbedderBuilder::with_tokenizer_and_fit_to_corpus(Terms, &corpus).build();
        let mut scorer = Scorer::new();
        for (number, text) in corpus.iter().enumerate() {
            scorer.upsert(&number, embedder.embed(text));
        }
        Self {
            embedder,
            scorer,
            triggers,
        }
    }

    /// The numbers of the visible skills that the request asks for, best first.
    pub(crate) fn search(&self, query: &str, visible: &Visible) -> Vec<usize> {
        let words = query_terms(query);
        let candidates: BTreeSet<usize> = words
            .iter()
            .flat_map(|word| self.selective(word, visible))
            .collect();
        let words: Vec<String> = words.into_iter().collect();
        let query = self.embedder.embed(&words.join(" "));
        let score = |number: usize| Some((number, self.scorer.score(&number, &query)?));
        let mut scored: Vec<(usize, f32)> = candidates.into_iter().filter_map(score).collect();
        scored.sort_by(|a, b| b.1.total_cmp(&a.1));
        scored.into_iter().map(|(number, _)| number).collect()
    }

    /// The visible skills that a word points to, unless it points to most of them.
    fn selective(&self, word: &str, visible: &Visible) -> Vec<usize> {
        let skills = self.triggers.get(word).into_iter().flatten().copied();
        let skills: Vec<usize> = skills.filter(|number| visible.has(*number)).collect();
        let n_visible = visible.len();
        let common = n_visible >= MIN_FOR_COMMON && skills.len() * 2 > n_visible;
        if common { Vec::new() } else { skills }
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").finish_non_exhaustive()
    }
}

// === impl Visible ===

impl Visible {
    fn has(&self, number: usize) -> bool {
        self.own.contains(&number)
            || self.shared.contains(&number) && !self.hidden.contains(&number)
    }

    fn len(&self) -> usize {
        self.own.len() + self.shared.len() - self.hidden.len()
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        let shared = self.shared.clone().filter(|number| self.has(*number));
        shared.chain(self.own.clone())
    }
}

/// The request's different words, from both of its ends.
fn query_terms(query: &str) -> BTreeSet<String> {
    let end_of_head = boundary(query.char_indices());
    let start_of_tail = boundary(query.char_indices().rev());
    match (end_of_head, start_of_tail) {
        (Some(head), Some(tail)) if head < tail => {
            let (head, tail) = (terms(&query[..head]), terms(&query[tail..]));
            let both = head
                .iter()
                .take(QUERY_EDGE)
                .chain(tail.iter().rev().take(QUERY_EDGE));
            both.cloned().collect()
        }
        _ => {
            let all = terms(query);
            let both = all
                .iter()
                .take(QUERY_EDGE)
                .chain(all.iter().rev().take(QUERY_EDGE));
            both.cloned().collect()
        }
    }
}

/// The place of the character that is far enough in for [`QUERY_EDGE`] words, so that a huge paste costs little.
fn boundary(mut chars: impl Iterator<Item = (usize, char)>) -> Option<usize> {
    chars.nth(QUERY_EDGE * 64).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skills() -> Vec<Arc<Skill>> {
        let skill = |name: &str, description: &str, body: &str| {
            let text = format!("---\nname: {name}\ndescription: {description}\n---\n{body}");
            Arc::new(Skill::parse(&text).unwrap())
        };
        vec![
            skill(
                "debug-systematically",
                "Use when a program fails or has a bug",
                "Reproduce. Bisect.",
            ),
            skill(
                "professional-email-drafting",
                "Use when the user wants an email written",
                "Greeting. The capital letter.",
            ),
            skill(
                "sql-best-practices",
                "Use when writing a SQL query",
                "Name columns. A slow query has a bug.",
            ),
            skill("data-cleaning", "清洗数据时使用", "检查缺失值"),
        ]
    }

    fn found(query: &str) -> Vec<String> {
        let skills = skills();
        let all = Visible {
            shared: 0..skills.len(),
            ..Visible::default()
        };
        let numbers = Index::build(&skills).search(query, &all);
        numbers
            .into_iter()
            .map(|number| skills[number].name.to_string())
            .collect()
    }

    #[test]
    fn finds_what_the_request_is_about_best_first() {
        assert_eq!(
            found("please draft two emails to my boss"),
            ["professional-email-drafting"]
        );
        assert_eq!(
            found("my SQL query has a bug"),
            ["sql-best-practices", "debug-systematically"]
        );
        assert_eq!(found("帮我清洗数据"), ["data-cleaning"]);
    }

    #[test]
    fn finds_nothing_for_words_in_passing() {
        assert!(found("What is the capital of France?").is_empty());
        assert!(found("use this when the user asks").is_empty());
        assert!(found("").is_empty());
        let nothing = Visible::default();
        assert!(Index::build(&[]).search("bug", &nothing).is_empty());
    }

    #[test]
    fn a_huge_paste_is_read_at_both_ends_only() {
        let paste = format!("fix the bug {} in an email", "本".repeat(1_000_000));
        assert_eq!(found(&paste).len(), 2);
        let middle = format!("{} email {}", "x ".repeat(100_000), "y ".repeat(100_000));
        assert!(found(&middle).is_empty());
    }
}
