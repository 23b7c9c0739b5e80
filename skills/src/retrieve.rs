//! Selects the skills for a request: those that it clearly needs, usually one, or none.
//!
//! All evidence becomes a probability that the skill is needed, and one threshold decides. A skill of the bank has
//! sample requests. The request is compared with those of all skills and with sentences that need none ([`CountedSamples`]).
//! Keywords are further evidence. Any other skill is judged by itself: by its keywords ([`Keywords`]), its name, and,
//! if it has no keywords, the words of its name and description ([`OwnWords`]). A word that is rarer in all samples
//! counts more. So "What is the capital of France?" selects nothing, whatever skills mention capitals in passing. A
//! skill that the owner calls by its name is always selected.
//!
//! Searches a request for a skill's keywords: words, phrases, and parts of the text.
//!
//! People seldom say the name of a skill. They name what they see: an error, a file, a tool, a situation. A word must
//! occur by itself. All words of a phrase must occur close together. A keyword with Chinese characters or symbols must
//! occur exactly.
//!
//! Uses a skill's own name and description, if it has neither keywords nor samples.

mod samples;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{Arc, LazyLock},
};

use aho_corasick::AhoCorasick;

use self::samples::CountedSamples;
use crate::{
    bank,
    skill::Skill,
    words::{all_terms, is_cjk, stems, terms},
};

/// Characters at the beginning and at the end of a request that are used.
const EDGE: usize = 2_000;

/// Probability from which a skill of the bank is selected. This and the numbers below were chosen on the 200 requests
/// of `testdata/retrieval.jsonl`, the half of `retrieval_2.jsonl` that is not held out, and the part "tune" of
/// `public_requests.tsv`. The results change little around them.
const GIVEN: f32 = 0.3;
/// Probability from which a second skill of the bank is selected. All of them share a probability of 1.
const GIVEN_TOO: f32 = 0.25;
/// Weight of the keywords of a skill of the bank beside its samples, because both see the same words.
const KEYWORDS_COUNT: f32 = 0.3;
/// The largest evidence from its keywords for a skill of the bank, in nats, because a long pasted text contains many.
const KEYWORDS_AT_MOST: f32 = 4.0;
/// Probability from which any other skill is selected.
const GIVEN_ALONE: f32 = 0.35;
/// Prior: one request in so many needs a given skill of those that are judged by themselves.
const ONE_IN: f32 = 100.0;

static SAMPLES: LazyLock<CountedSamples> =
    LazyLock::new(|| CountedSamples::build(bank::requests(), bank::BACKGROUND.into_iter()));

#[derive(Debug, Default)]
pub(crate) struct Index {
    keywords: Keywords,
    /// The words of skills that have neither keywords nor samples.
    own_words: OwnWords,
    /// The skills that have samples, and their indices among these.
    of_bank: BTreeMap<usize, usize>,
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
            let of_skill = skill.keywords.iter().map(|k| (number, k.as_str()));
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
            names: skills.iter().map(|s| calls(s.name.as_str())).collect(),
        }
    }

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
        found.extend(alone.filter(|(_, probability)| *probability >= GIVEN_ALONE));
        let called = visible.numbers().filter(|n| self.is_called(*n, &query));
        found.extend(called.map(|number| (number, 1.0)));
        let mut ranked: Vec<(usize, f32)> = found.into_iter().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked.into_iter().map(|(number, _)| number).collect()
    }

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
        let mut found: BTreeMap<usize, f32> = probable.filter(|s| s.1 >= GIVEN_TOO).collect();
        if !found.values().any(|probability| *probability >= GIVEN) {
            found.clear();
        }
        found
    }

    fn is_called(&self, number: usize, query: &str) -> bool {
        let mut names = self.names.get(number).into_iter().flatten();
        names.any(|name| stands_alone(name, query))
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

/// The largest number of other words between those of a phrase.
const SLACK: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Keywords {
    words: BTreeMap<String, Keyword>,
    phrases: BTreeMap<String, Vec<Phrase>>,
    parts: Option<AhoCorasick>,
    of_part: Vec<Keyword>,
}

#[derive(Debug, Clone, Default)]
struct Keyword {
    skills: BTreeSet<usize>,
    says: f32,
}

#[derive(Debug)]
struct Phrase {
    words: Vec<String>,
    keyword: Keyword,
}

// === impl Keywords ===

impl Keywords {
    fn build<'k>(
        keywords: impl Iterator<Item = (usize, &'k str)>,
        samples: &CountedSamples,
    ) -> Self {
        let mut words = BTreeMap::<String, Keyword>::new();
        let mut phrases = BTreeMap::<Vec<String>, Keyword>::new();
        let mut parts = BTreeMap::<String, Keyword>::new();
        for (skill, keyword) in keywords {
            let keyword = keyword.to_lowercase();
            let stems = stems(&keyword);
            let found = if is_part(&keyword) {
                parts.entry(keyword).or_default()
            } else if let [word] = stems.as_slice() {
                words.entry(word.clone()).or_default()
            } else {
                phrases.entry(stems).or_default()
            };
            found.skills.insert(skill);
        }
        phrases.remove(&Vec::new());
        for (word, keyword) in &mut words {
            keyword.says = samples.selectivity([&**word].into_iter());
        }
        for (part, keyword) in &mut parts {
            let terms = all_terms(part);
            keyword.says = match terms.as_slice() {
                // Symbols alone occur in few requests.
                [] => samples.rarest(),
                terms => samples.selectivity(terms.iter().map(String::as_str)),
            };
        }
        let mut by_word = BTreeMap::<String, Vec<Phrase>>::new();
        for (words, mut keyword) in phrases {
            keyword.says = samples.selectivity(words.iter().map(String::as_str));
            let longest = words.iter().max_by_key(|word| word.len());
            let longest = longest.cloned().unwrap_or_default();
            let phrase = Phrase { words, keyword };
            by_word.entry(longest).or_default().push(phrase);
        }
        let automaton = AhoCorasick::new(parts.keys()).ok();
        Self {
            words,
            phrases: by_word,
            parts: automaton.filter(|_| !parts.is_empty()),
            of_part: parts.into_values().collect(),
        }
    }

    /// Returns the evidence of the keywords in a text for each skill, in nats. Each keyword counts once. A rarer
    /// keyword counts more, and one that several of these skills share counts less.
    pub(super) fn search(
        &self,
        text: &str,
        is_there: impl Fn(usize) -> bool,
    ) -> BTreeMap<usize, f32> {
        let text = text.to_lowercase();
        let said = stems(&text);
        let mut scores = BTreeMap::<usize, f32>::new();
        let mut count = |keyword: &Keyword| {
            let there = keyword.skills.iter().filter(|skill| is_there(**skill));
            let there: Vec<_> = there.collect();
            let shared = (there.len().max(1) as f32).ln();
            for skill in there {
                *scores.entry(*skill).or_default() += (keyword.says - shared).max(0.0);
            }
        };
        let different: BTreeSet<&str> = said.iter().map(String::as_str).collect();
        for word in &different {
            self.words.get(*word).into_iter().for_each(&mut count);
            for phrase in self.phrases.get(*word).into_iter().flatten() {
                if stands(&phrase.words, &said) {
                    count(&phrase.keyword);
                }
            }
        }
        let found = self
            .parts
            .iter()
            .flat_map(|parts| parts.find_overlapping_iter(&text));
        let found: BTreeSet<usize> = found.map(|found| found.pattern().as_usize()).collect();
        for part in found {
            count(&self.of_part[part]);
        }
        scores
    }
}

/// Returns whether it must occur exactly, because it has Chinese characters or symbols.
fn is_part(keyword: &str) -> bool {
    let is_word =
        |c: char| c.is_alphanumeric() && !is_cjk(c) || matches!(c, ' ' | '-' | '\'' | '’');
    !keyword.chars().all(is_word)
}

/// Returns whether all words of a phrase occur within a short distance, in any order.
fn stands(phrase: &[String], said: &[String]) -> bool {
    let reach = phrase.len() + SLACK;
    (0..said.len()).any(|from| {
        let window = &said[from..said.len().min(from + reach)];
        phrase.contains(&said[from]) && phrase.iter().all(|word| window.contains(word))
    })
}

/// Share of a word's evidence that counts if it is in the name, and again if it is in the description. A word in
/// passing is not enough alone. One that is in both is enough, and so are two rare ones.
const SAYS: f32 = 0.45;
/// Weight of pairs of Chinese characters, because neighbours share a character.
const PAIR: f32 = 0.7;

/// Number of skills from which a word that most of them contain selects nothing.
const MIN_FOR_COMMON: usize = 4;

#[derive(Debug, Default)]
pub(super) struct OwnWords {
    skills: BTreeSet<usize>,
    words: BTreeMap<String, Word>,
}

#[derive(Debug, Default)]
struct Word {
    selectivity: f32,
    skills: BTreeMap<usize, f32>,
}

// === impl OwnWords ===

impl OwnWords {
    fn add(&mut self, number: usize, skill: &Skill, samples: &CountedSamples) {
        self.skills.insert(number);
        for text in [skill.name.as_str(), &skill.description] {
            for word in terms(text).into_iter().collect::<BTreeSet<_>>() {
                let part = if word.starts_with(is_cjk) { PAIR } else { 1.0 };
                let selectivity = samples.selectivity([&*word].into_iter());
                let word = self.words.entry(word).or_default();
                word.selectivity = selectivity;
                *word.skills.entry(number).or_default() += SAYS * part;
            }
        }
    }

    /// Returns the evidence of a request's terms for each skill, in nats. A word that several of them contain counts
    /// less for each.
    pub(super) fn search(
        &self,
        said: &BTreeSet<String>,
        is_there: impl Fn(usize) -> bool,
    ) -> BTreeMap<usize, f32> {
        let n_skills = self.skills.iter().filter(|skill| is_there(**skill)).count();
        let mut scores = BTreeMap::<usize, f32>::new();
        for word in said.iter().filter_map(|word| self.words.get(word)) {
            let there = word.skills.iter().filter(|(skill, _)| is_there(**skill));
            let there: Vec<_> = there.collect();
            if n_skills >= MIN_FOR_COMMON && there.len() * 2 > n_skills {
                continue;
            }
            let shared = (there.len().max(1) as f32).ln();
            for (skill, counts) in there {
                let says = counts * (word.selectivity - shared).max(0.0);
                *scores.entry(*skill).or_default() += says;
            }
        }
        scores
    }
}

#[cfg(test)]
mod keywords_tests {
    use super::*;

    fn scores(text: &str, is_there: impl Fn(usize) -> bool) -> BTreeMap<usize, f32> {
        let keywords: [&[&str]; 3] = [
            &["debug", "stack trace", "报错"],
            &["=if(", "how many"],
            &["schedule", "debug"],
        ];
        let numbered = keywords.iter().enumerate();
        let samples = CountedSamples::build(
            ["I debug\nwhat a trace\nthe end"].into_iter(),
            std::iter::empty(),
        );
        let index = Keywords::build(
            numbered.flat_map(|(number, it)| it.iter().map(move |it| (number, *it))),
            &samples,
        );
        index.search(text, is_there)
    }

    fn found(text: &str) -> Vec<usize> {
        scores(text, |number| number < 2).into_keys().collect()
    }

    #[test]
    fn words_phrases_and_parts_are_found_and_nothing_else() {
        assert_eq!(found("I am debugging this"), [0]);
        assert_eq!(found("here is the trace of the whole stack"), [0]);
        assert_eq!(
            found("the stack is deep, and I lost every trace"),
            Vec::<usize>::new()
        );
        assert_eq!(found("程序报错了"), [0]);
        assert_eq!(found("=IF(B2>1,2)"), [1]);
        assert_eq!(found("how very many are there"), [1]);
        assert_eq!(found("many ask how"), [1]);
        assert_eq!(found("what if"), Vec::<usize>::new());
        assert_eq!(found("it was scheduled"), Vec::<usize>::new());
        let all = scores("it was scheduled", |_| true);
        assert!(all.into_keys().eq([2]));
    }

    #[test]
    fn what_is_rare_says_more_and_what_skills_share_less() {
        let alone = |text: &str| scores(text, |number| number == 0)[&0];
        assert!(alone("debug") < alone("报错"));
        let shared = scores("debug", |_| true);
        assert!(shared[&0] < alone("debug"), "{shared:?}");
        assert!(shared[&0].total_cmp(&shared[&2]).is_eq(), "{shared:?}");
    }
}
