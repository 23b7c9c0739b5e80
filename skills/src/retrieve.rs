//! Which skills a request asks for: BM25 over their words, behind a gate.
//!
//! A skill that has keywords is a candidate if one of them stands in the request; one of the bank also if the request is
//! like its sample requests. One that has none is a candidate
//! only if its name, description or category shares a selective word with the request: those say when it applies. Its
//! body then helps to rank it. So "What is the capital of France?" brings in nothing, however many skills mention
//! capitals in passing.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    sync::Arc,
};

use bm25::{Embedder, EmbedderBuilder, Scorer, Tokenizer};

use self::{keywords::Keywords, samples::Samples};
use crate::{bank, skill::Skill, words::terms};

/// Characters of a request that are looked at, from its beginning and from its end.
const EDGE: usize = 2_000;
/// Terms of a body that are indexed: what a skill is about stands at its beginning.
const BODY_TERMS: usize = 300;
/// From this many skills on, a word that most of them have selects nothing.
const MIN_FOR_COMMON: usize = 4;

/// Of what is found, less than this part of the best is noise.
const WORTH: f32 = 0.2;

mod keywords;
mod samples;

/// The skills of all agents, ready to be searched for any of them.
pub(crate) struct Index {
    embedder: Embedder<u32, Terms>,
    scorer: Scorer<usize>,
    /// Which skills without keywords have a word in their name, description or category.
    triggers: BTreeMap<String, BTreeSet<usize>>,
    keywords: Keywords,
    samples: Samples,
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
            if skill.keywords.is_empty() {
                for word in &words {
                    triggers.entry(word.clone()).or_default().insert(number);
                }
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
            keywords: Keywords::build(
                skills
                    .iter()
                    .enumerate()
                    .map(|(number, skill)| (number, skill.keywords.as_slice())),
            ),
            samples: Samples::build(
                bank::EVERYDAY,
                skills
                    .iter()
                    .enumerate()
                    .filter_map(|(number, skill)| Some((number, bank::requests(skill)?))),
            ),
        }
    }

    /// The numbers of the visible skills that the request asks for, best first.
    pub(crate) fn search(&self, query: &str, visible: &Visible) -> Vec<usize> {
        let query = edges(query);
        let words: BTreeSet<String> = terms(&query).into_iter().collect();
        let triggered = words.iter().flat_map(|word| self.selective(word, visible));
        let mut found: BTreeMap<usize, f32> = triggered.map(|number| (number, 0.0)).collect();
        let by_keyword = self.keywords.search(&query, visible.len());
        let by_sample = self.samples.search(&words);
        for (number, score) in by_keyword.into_iter().chain(by_sample) {
            if visible.has(number) {
                *found.entry(number).or_default() += score;
            }
        }
        let words: Vec<String> = words.into_iter().collect();
        let query = self.embedder.embed(&words.join(" "));
        for (number, score) in &mut found {
            *score += self.scorer.score(number, &query).unwrap_or_default();
        }
        let mut scored: Vec<(usize, f32)> = found.into_iter().collect();
        scored.sort_by(|a, b| b.1.total_cmp(&a.1));
        let worth = scored.first().map_or(0.0, |best| best.1 * WORTH);
        scored.retain(|(_, score)| *score >= worth);
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

/// A request, or of a long one its beginning and its end: a pasted file is no question, and a huge one costs little.
fn edges(query: &str) -> Cow<'_, str> {
    let head = query.char_indices().nth(EDGE).map(|(at, _)| at);
    let tail = query.char_indices().rev().nth(EDGE - 1).map(|(at, _)| at);
    match (head, tail) {
        (Some(head), Some(tail)) if head < tail => {
            format!("{}\n{}", &query[..head], &query[tail..]).into()
        }
        _ => query.into(),
    }
}

#[cfg(test)]
mod tests;
