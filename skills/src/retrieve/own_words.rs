//! Uses a skill's own name and description, if it has neither keywords nor samples.

use std::collections::{BTreeMap, BTreeSet};

use super::samples::CountedSamples;
use crate::{
    skill::Skill,
    words::{is_cjk, terms},
};

/// Share of a word's evidence that counts if it is in the name, and again if it is in the description. A word in
/// passing is not enough alone. One that is in both is enough, and so are two rare ones.
const SAYS: f32 = 0.45;
/// Weight of pairs of Chinese characters, because neighbours share a character.
const PAIR: f32 = 0.7;

/// Number of skills from which a word that most of them contain selects nothing.
const MIN_FOR_COMMON: usize = 4;

/// The words of skills' names and descriptions.
#[derive(Debug, Default)]
pub(super) struct OwnWords {
    skills: BTreeSet<usize>,
    words: BTreeMap<String, Word>,
}

#[derive(Debug, Default)]
struct Word {
    selectivity: f32,
    /// The weight of the word for each skill that contains it.
    skills: BTreeMap<usize, f32>,
}

// === impl OwnWords ===

impl OwnWords {
    pub(super) fn add(&mut self, number: usize, skill: &Skill, samples: &CountedSamples) {
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
        let n_skills = self.skills.iter().filter(|it| is_there(**it)).count();
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
