//! Selects the skills for a request: those that it clearly needs, usually one, or none.
//!
//! All evidence becomes a probability that the skill is needed, and one threshold decides. A skill of the bank has
//! sample requests. The request is compared with those of all skills and with sentences that need none ([`CountedSamples`]).
//! Keywords are further evidence. Any other skill is judged by itself: by its keywords ([`Keywords`]), its name, and,
//! if it has no keywords, the words of its name and description ([`OwnWords`]). A word that is rarer in all samples
//! counts more. So "What is the capital of France?" selects nothing, whatever skills mention capitals in passing. A
//! skill that the owner calls by its name is always selected.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    sync::{Arc, LazyLock},
};

use self::{keywords::Keywords, own_words::OwnWords, samples::CountedSamples};
use crate::{
    bank,
    skill::Skill,
    words::{all_terms, is_cjk},
};

/// Characters at the beginning and at the end of a request that are used.
const EDGE: usize = 2_000;

/// Probability from which a skill is selected. This and the numbers below were chosen on the 200 requests of
/// `testdata/retrieval.jsonl` and the half of `retrieval_2.jsonl` that is not held out. The results change little
/// around them.
const GIVEN: f32 = 0.35;
/// Probability from which a second skill of the bank is selected. All of them share a probability of 1.
const GIVEN_TOO: f32 = 0.25;
/// Weight of the keywords of a skill of the bank beside its samples, because both see the same words.
const KEYWORDS_COUNT: f32 = 0.3;
/// The largest evidence from its keywords for a skill of the bank, in nats, because a long pasted text contains many.
const KEYWORDS_AT_MOST: f32 = 4.0;
/// Prior: one request in so many needs a given skill of those that are judged by themselves.
const ONE_IN: f32 = 100.0;

/// The samples of the bank.
static SAMPLES: LazyLock<CountedSamples> =
    LazyLock::new(|| CountedSamples::build(bank::requests(), bank::BACKGROUND.into_iter()));

mod keywords;
mod own_words;
mod samples;

/// The skills of all agents, indexed so that each agent's can be searched.
#[derive(Default)]
pub(crate) struct Index {
    keywords: Keywords,
    /// The words of skills that have neither keywords nor samples.
    own_words: OwnWords,
    /// The skills that have samples, and their indices among these.
    of_bank: BTreeMap<usize, usize>,
    /// The names by which the owner may call each.
    names: Vec<Vec<String>>,
}

/// The skills of an index that one agent sees: first the shared ones, then the agent's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Visible {
    pub(crate) shared: Range<usize>,
    pub(crate) own: Range<usize>,
    /// Shared skills that an own skill of the same name replaces.
    pub(crate) hidden: BTreeSet<usize>,
}

// === impl Index ===

impl Index {
    /// Reads the words of all skills. Their indices in `skills` are their numbers here.
    pub(crate) fn build(skills: &[Arc<Skill>]) -> Self {
        if skills.is_empty() {
            return Self::default();
        }
        let mut of_bank = BTreeMap::new();
        let mut own_words = OwnWords::default();
        let mut keywords = Vec::new();
        for (number, skill) in skills.iter().enumerate() {
            let of_skill = skill.keywords.iter().map(|it| (number, it.as_str()));
            keywords.extend(of_skill);
            if let Some(place) = bank::place(skill) {
                of_bank.insert(number, place);
                continue;
            }
            keywords.push((number, skill.name.as_str()));
            if skill.keywords.is_empty() {
                own_words.add(number, skill, &SAMPLES);
            }
        }
        Self {
            keywords: Keywords::build(keywords.into_iter(), &SAMPLES),
            own_words,
            of_bank,
            names: skills.iter().map(|it| calls(it.name.as_str())).collect(),
        }
    }

    /// Returns the numbers of the visible skills that the request needs, best first.
    pub(crate) fn search(&self, query: &str, visible: &Visible) -> Vec<usize> {
        let query = edges(query).to_lowercase();
        let said: BTreeSet<String> = all_terms(&query).into_iter().collect();
        let is_there = |number| visible.has(number);
        let by_keyword = self.keywords.search(&query, is_there);
        let mut found = self.of_bank(&said, &by_keyword, visible);
        let mut alone = self.own_words.search(&said, is_there);
        for (number, says) in by_keyword {
            if !self.of_bank.contains_key(&number) {
                *alone.entry(number).or_default() += says;
            }
        }
        let alone = alone.into_iter().map(|(it, says)| (it, probability(says)));
        found.extend(alone.filter(|(_, probability)| *probability >= GIVEN));
        let called = visible.numbers().filter(|it| self.is_called(*it, &query));
        found.extend(called.map(|number| (number, 1.0)));
        let mut ranked: Vec<(usize, f32)> = found.into_iter().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked.into_iter().map(|(number, _)| number).collect()
    }

    /// Returns the skills with samples that the request needs, with their probabilities.
    fn of_bank(
        &self,
        said: &BTreeSet<String>,
        by_keyword: &BTreeMap<usize, f32>,
        visible: &Visible,
    ) -> BTreeMap<usize, f32> {
        let there = self.of_bank.iter().filter(|(it, _)| visible.has(**it));
        let there: Vec<(usize, usize)> = there.map(|(it, place)| (*it, *place)).collect();
        let Some(last) = there.iter().map(|(_, place)| *place).max() else {
            return BTreeMap::new();
        };
        let mut besides = vec![0.0; last + 1];
        for (number, place) in &there {
            let says = by_keyword.get(number).copied().unwrap_or_default();
            besides[*place] = (KEYWORDS_COUNT * says).min(KEYWORDS_AT_MOST);
        }
        let probabilities = SAMPLES.probabilities(said, &besides);
        let probable = there
            .into_iter()
            .filter_map(|(number, place)| Some((number, *probabilities.get(place)?)));
        let mut found: BTreeMap<usize, f32> = probable.filter(|it| it.1 >= GIVEN_TOO).collect();
        if !found.values().any(|it| *it >= GIVEN) {
            found.clear();
        }
        found
    }

    /// Returns whether the owner calls a skill by its name.
    fn is_called(&self, number: usize, query: &str) -> bool {
        let mut names = self.names.get(number).into_iter().flatten();
        names.any(|name| stands_alone(name, query))
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

    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        let shared = self.shared.clone().filter(|number| self.has(*number));
        shared.chain(self.own.clone())
    }
}

/// Returns the evidence of a word in a text, in nats. A word that is rarer in all samples counts more.
pub(crate) fn selectivity(word: &str) -> f32 {
    SAMPLES.selectivity([word].into_iter())
}

/// Converts the evidence for a skill that is judged by itself, in nats, to the probability that it is needed.
fn probability(says: f32) -> f32 {
    1.0 / (1.0 + ONE_IN * (-says).exp())
}

/// Returns how a skill may be called in a request: as a command, beside the word "skill", and, if it has several words,
/// as it is written.
fn calls(name: &str) -> Vec<String> {
    let name = name.to_lowercase();
    let plain = name.replace(['-', '_'], " ");
    let mut calls = vec![format!("/{name}"), format!("${name}")];
    for name in [&name, &plain] {
        calls.extend([
            format!("{name} skill"),
            format!("skill {name}"),
            format!("{name} 技能"),
            format!("{name}技能"),
            format!("技能 {name}"),
            format!("技能{name}"),
        ]);
    }
    if name != plain {
        calls.push(name);
    }
    calls
}

/// Returns whether a name occurs in a text and is not a part of another word, of a path or of a file's name.
fn stands_alone(name: &str, text: &str) -> bool {
    let is_of_word =
        |c: char| (c.is_alphanumeric() && !is_cjk(c)) || matches!(c, '-' | '_' | '/' | '\\');
    text.match_indices(name).any(|(at, found)| {
        let mut after = text[at + found.len()..].chars();
        let next = after.next();
        let is_extended = next == Some('.') && after.next().is_some_and(is_of_word);
        !text[..at].ends_with(is_of_word) && !next.is_some_and(is_of_word) && !is_extended
    })
}

/// Returns a request, or the beginning and the end of a long one, because a pasted file is no question, and a huge one
/// must be cheap.
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
