//! The contents of the bench: questions, wishes and knowledge, from the files beside this one and the gate's own
//! probes.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use metaclaw_chat::{Message, Score};
use metaclaw_reward::{Evidence, Rule, Rules};
use serde::Deserialize;

const WISHES: &str = include_str!("wishes.yaml");
const TRAIN: &str = include_str!("questions/train.txt");
const TEST: &str = include_str!("questions/test.txt");
const HIDDEN: &str = include_str!("hidden_probes.yaml");
const CAPABILITY: &str = include_str!("../../../proxy/learner/src/gate/probes/capability.yaml");

/// A hash of the files, because results with other files cannot be compared.
pub const FILES: [&str; 5] = [WISHES, TRAIN, TEST, HIDDEN, CAPABILITY];

#[derive(Debug)]
pub struct Content {
    pub wishes: Vec<Arc<Wish>>,
    pub train: Vec<String>,
    pub test: Vec<String>,
    /// Probes that the gate asks too.
    pub probes: Vec<Probe>,
    /// Probes that the gate never uses.
    pub hidden: Vec<Probe>,
}

/// What an owner wishes, and how a reply is checked against it.
#[derive(Debug)]
pub struct Wish {
    pub name: String,
    pub complaint: String,
    /// The part of it that is a request.
    pub sentence: String,
    /// A wish that this one replaces.
    pub undoes: Option<String>,
    /// A rule as in `judge.rules`.
    pub rules: Vec<Rule>,
    compiled: Rules,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[expect(dead_code, reason = "for readers of the file")]
    fit: bool,
    complaint: String,
    wish: String,
    undoes: Option<String>,
    rules: Vec<Rule>,
}

/// A question with one right and one wrong answer of equal length and form.
#[derive(Debug, Clone, Deserialize)]
pub struct Probe {
    pub question: String,
    pub right: String,
    pub wrong: String,
}

// === impl Content ===

impl Content {
    /// Reads the files; takes the first `n_test` of the questions for measuring, spread evenly.
    pub fn read(n_test: usize) -> Result<Self> {
        let written: Vec<Written> = serde_saphyr::from_str(WISHES).context("wishes.yaml")?;
        let wishes = written
            .into_iter()
            .map(|it| Wish::try_from(it).map(Arc::new));
        let test = lines(TEST);
        ensure!(
            n_test > 2 && n_test <= test.len(),
            "{n_test} test questions: 3 to {} are there",
            test.len()
        );
        let test = (0..n_test).map(|i| test[i * test.len() / n_test].clone());
        Ok(Self {
            wishes: wishes.collect::<Result<_>>()?,
            train: lines(TRAIN),
            test: test.collect(),
            probes: serde_saphyr::from_str(CAPABILITY).context("capability.yaml")?,
            hidden: serde_saphyr::from_str(HIDDEN).context("hidden_probes.yaml")?,
        })
    }

    /// Returns a wish by its name.
    pub fn wish(&self, name: &str) -> Result<&Arc<Wish>> {
        let found = self.wishes.iter().find(|it| it.name == name);
        found.with_context(|| {
            let names: Vec<&str> = self.wishes.iter().map(|it| it.name.as_str()).collect();
            format!("no such wish: {name:?}; there are {}", names.join(", "))
        })
    }
}

fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

// === impl Wish ===

impl TryFrom<Written> for Wish {
    type Error = anyhow::Error;

    fn try_from(written: Written) -> Result<Self> {
        let compiled = Rules::compile(&written.rules);
        Ok(Self {
            compiled: compiled.with_context(|| format!("the wish {:?}", written.name))?,
            name: written.name,
            complaint: written.complaint,
            sentence: written.wish,
            undoes: written.undoes,
            rules: written.rules,
        })
    }
}

impl Wish {
    /// Returns whether a reply does what is wished.
    pub fn is_obeyed(&self, reply: &str) -> bool {
        let evidence = Evidence::new(&[], Message::assistant(reply), &[]);
        let verdict = self.compiled.judge(&evidence);
        verdict.is_some_and(|verdict| verdict.score == Score::Good)
    }

    /// Returns a question with the wish as a paragraph of its own, as the reference gets it.
    pub fn told(&self, question: &str) -> String {
        format!("{question}\n\n{}", self.sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_can_be_read() {
        let content = Content::read(60).unwrap();
        assert_eq!((content.train.len(), content.test.len()), (60, 60));
        assert_eq!((content.probes.len(), content.hidden.len()), (64, 64));
        assert!(content.train.iter().all(|it| !content.test.contains(it)));
        for wish in &content.wishes {
            let undone = wish.undoes.as_deref().map(|name| content.wish(name));
            assert!(undone.is_none_or(|it| it.is_ok()), "{}", wish.name);
            assert!(wish.complaint.ends_with(&wish.sentence), "{}", wish.name);
        }
        assert!(content.wish("magic").is_err());
    }

    #[test]
    fn fewer_test_questions_are_taken_from_all() {
        let content = Content::read(20).unwrap();
        let all = lines(TEST);
        assert_eq!(content.test.len(), 20);
        assert_eq!((&content.test[1], &content.test[19]), (&all[3], &all[57]));
        assert!(Content::read(61).is_err());
    }

    #[test]
    fn the_rules_tell_who_obeys() {
        let content = Content::read(60).unwrap();
        let obeys = |wish: &str, reply: &str| content.wish(wish).unwrap().is_obeyed(reply);
        assert!(obeys("terse", "Boil it for ten minutes."));
        assert!(!obeys("terse", &"word ".repeat(41)));
        assert!(obeys("hello", "Hello! Boil it."));
        assert!(!obeys("hello", "Boil it. Hello!"));
        assert!(obeys("detail", &"word ".repeat(41)));
        assert!(!obeys("detail", "Boil it."));
    }
}
