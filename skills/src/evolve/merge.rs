//! Compares a draft with existing skills: it may be new, the same, or the same with an additional step.
//!
//! The evolver does not always know that it writes an existing skill again. If every similar draft were refused, its
//! additions would be lost. If every draft were accepted under its own name, the library would have many similar
//! skills.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    answer::WrittenSkill,
    draft::{DraftRefusal, SkillDraft, says_the_same, without_bullet, words},
};
use crate::{
    skill::{KeywordList, Skill},
    words::terms,
};

// === impl Draft ===

impl SkillDraft {
    /// Returns what to propose: the draft, or, if a skill of another name says nearly the same, that skill with the
    /// steps that it lacked.
    ///
    /// # Errors
    /// Returns [`DraftRefusal::Known`] if the draft adds nothing.
    pub(super) fn beside(self, library: &[Arc<Skill>]) -> Result<Self, DraftRefusal> {
        let is_this = |skill: &Skill| skill.name == self.skill.name;
        let same = library.iter().find(|skill| {
            let is_same = is_this(skill) && skill.version == self.skill.version;
            is_same || (!is_this(skill) && says_the_same(skill, &self.skill))
        });
        match same {
            None => {
                let before = library.iter().find(|skill| is_this(skill));
                Ok(before.map_or_else(|| self.clone(), |it| self.clone().with_keywords_of(it)))
            }
            Some(same) => {
                let known = || DraftRefusal::Known(same.name.clone());
                self.steps_for(same).unwrap_or_else(|| Err(known()))
            }
        }
    }

    /// If the draft names no keywords, a skill that is written again keeps its own.
    fn with_keywords_of(self, before: &Skill) -> Self {
        if before.keywords.is_empty() || !self.skill.keywords.is_empty() {
            return self;
        }
        let Skill {
            name,
            description,
            category,
            content,
            ..
        } = &self.skill;
        let written = WrittenSkill {
            name: name.to_string(),
            description: description.clone(),
            category: category.clone(),
            content: content.clone(),
            keywords: Some(KeywordList::List(before.keywords.clone())),
        };
        Self::new(&written).unwrap_or(self)
    }

    /// Returns what replaces a waiting proposal, if both say nearly the same.
    ///
    /// # Errors
    /// Returns [`DraftRefusal::Proposed`] if the draft adds nothing.
    pub(super) fn beside_waiting(&self, n: u64, text: &str) -> Result<Option<Self>, DraftRefusal> {
        let same = Skill::parse(text).ok();
        let Some(same) = same.filter(|it| says_the_same(it, &self.skill)) else {
            return Ok(None);
        };
        let renewed = self.steps_for(&same);
        renewed.map_or(Err(DraftRefusal::Proposed(n)), |it| it.map(Some))
    }

    /// Returns the new text of a skill that says nearly the same: the draft's text if the names are equal, otherwise
    /// the skill's text with the steps that it lacked. Returns `None` if it lacks none.
    fn steps_for(&self, known: &Skill) -> Option<Result<Self, DraftRefusal>> {
        let said = words(known);
        let lacked = |line: &&str| {
            let words: BTreeSet<String> = terms(line).into_iter().collect();
            !words.is_empty() && 2 * words.difference(&said).count() >= words.len()
        };
        let lines = self.skill.content.lines().map(without_bullet);
        let steps: Vec<&str> = lines.filter(lacked).collect();
        if steps.is_empty() {
            return None;
        }
        if known.name == self.skill.name {
            return Some(Ok(self.clone()));
        }
        Some(Self::new(&WrittenSkill {
            name: known.name.to_string(),
            description: known.description.clone(),
            category: known.category.clone(),
            content: with_steps(&known.content, &steps),
            keywords: Some(KeywordList::List(known.keywords.clone())),
        }))
    }
}

/// Adds items to a text, and continues its numbers if it has some.
fn with_steps(content: &str, steps: &[&str]) -> String {
    let number = |line: &str| line.trim().split_once(". ")?.0.parse::<usize>().ok();
    let mut last = content.lines().filter_map(number).max();
    let mut content = content.trim_end().to_owned();
    for step in steps {
        last = last.map(|n| n.saturating_add(1));
        let bullet = last.map_or_else(|| "-".to_owned(), |n| format!("{n}."));
        content.extend(["\n", &bullet, " ", step]);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "1. Ask which city the person is in before looking anything up.\n2. Then look the forecast up.";

    fn draft(name: &str, content: &str) -> SkillDraft {
        SkillDraft::new(&WrittenSkill {
            name: name.to_owned(),
            description: "Use when asked for the weather.".to_owned(),
            content: content.to_owned(),
            ..WrittenSkill::default()
        })
        .unwrap()
    }

    fn library() -> [Arc<Skill>; 1] {
        [Arc::new(draft("weather", KNOWN).skill)]
    }

    #[test]
    fn a_step_that_a_skill_lacked_comes_into_it_whatever_the_draft_is_called() {
        let more = format!("{KNOWN}\n3. Say how old those figures are.");
        let reworded = more.replace("Then", "Next");
        let merged = draft("rain", &reworded).beside(&library()).unwrap();
        assert_eq!(merged.skill.name.as_str(), "weather");
        assert_eq!(merged.skill.content, more);
        // Under its own name, the skill gets the evolver's text.
        let renewed = draft("weather", &reworded).beside(&library()).unwrap();
        assert_eq!(renewed.skill.content, reworded);
        let other = draft("rain", "1. Carry an umbrella.");
        assert_eq!(other.clone().beside(&library()), Ok(other));
    }

    #[test]
    fn a_skill_that_is_written_anew_keeps_its_keywords() {
        let mut before = draft("weather", KNOWN).skill;
        before.keywords = vec!["forecast".to_owned()];
        let library = [Arc::new(before)];
        let anew = "1. Say that nobody knows the weather of next month.";
        let renewed = draft("weather", anew).beside(&library).unwrap();
        assert_eq!(renewed.skill.keywords, ["forecast"]);
        assert!(renewed.text.contains("keywords: [\"forecast\"]"));
        assert!(
            draft("rain", anew)
                .beside(&library)
                .unwrap()
                .skill
                .keywords
                .is_empty()
        );
    }

    #[test]
    fn what_adds_nothing_is_refused_with_what_it_repeats() {
        let known = DraftRefusal::Known("weather".parse().unwrap());
        for (name, content) in [("weather", KNOWN), ("rain", &KNOWN.replace("city", "town"))] {
            let again = draft(name, content);
            assert_eq!(again.clone().beside(&library()), Err(known.clone()));
            let waits = &draft("weather", KNOWN).text;
            assert_eq!(
                again.beside_waiting(4, waits),
                Err(DraftRefusal::Proposed(4))
            );
        }
    }

    #[test]
    fn what_waits_is_renewed() {
        let waits = &draft("weather", KNOWN).text;
        let more = format!("{KNOWN}\n3. Say how old those figures are.");
        let renewed = draft("rain", &more).beside_waiting(4, waits).unwrap();
        assert_eq!(renewed.unwrap().text, draft("weather", &more).text);
        let other = draft("rain", "1. Carry an umbrella.");
        assert_eq!(other.beside_waiting(4, waits), Ok(None));
    }

    #[test]
    fn items_go_on_as_they_are() {
        assert_eq!(with_steps("- a\n- b\n", &["c"]), "- a\n- b\n- c");
        assert_eq!(
            with_steps("1. a\n2. b", &["c", "d"]),
            "1. a\n2. b\n3. c\n4. d"
        );
    }
}
