//! What everything is compared with: the base model without a word, and with each wish in its prompt. Measured once.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{
    content::{Content, Wish},
    measure::{Figures, Probed, Scored, mean},
    score::{BASE, Scorer},
};

/// The base model's figures.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct References {
    /// Its plain replies to the test questions.
    pub plain: Vec<Scored>,
    pub probed: Probed,
    /// Its replies with each wish as a paragraph after the question.
    pub told: BTreeMap<String, Vec<Scored>>,
    /// How much likelier its plain replies are with each wish in its prompt than without: nat a token, on average.
    #[serde(default)]
    pub gains: BTreeMap<String, f64>,
}

// === impl References ===

impl References {
    /// Those of `wishes`: what is in `file` is not measured again.
    pub async fn measure(scorer: &Scorer<'_>, wishes: &[&Wish], file: &Path) -> Result<Self> {
        let mut references = Self::read(file)?;
        if references.plain.is_empty() {
            println!(
                "the base model is measured: {} test questions and the probes",
                scorer.content.test.len()
            );
            references.plain = scorer.test(BASE, None, str::to_owned).await?;
            references.probed = scorer.probe(None).await?;
            references.write(file)?;
        }
        for wish in wishes.iter().copied() {
            if !references.told.contains_key(&wish.name) {
                println!("the base model is measured with the wish {:?}", wish.name);
                let told = scorer
                    .test(BASE, Some(wish), |question| wish.told(question))
                    .await?;
                references.told.insert(wish.name.clone(), told);
                references.write(file)?;
            }
            if !references.gains.contains_key(&wish.name) {
                // The same replies as the plain ones, whose ids are not kept.
                let plain = scorer.test(BASE, Some(wish), str::to_owned).await?;
                let gain = mean(plain.iter().map(|it| it.gain));
                references.gains.insert(wish.name.clone(), gain);
                references.write(file)?;
            }
        }
        Ok(references)
    }

    /// What the file has; nothing where there is none.
    pub fn read(file: &Path) -> Result<Self> {
        match fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} has no references: remove it", file.display())),
            Err(_) => Ok(Self::default()),
        }
    }

    fn write(&self, file: &Path) -> Result<()> {
        let half = file.with_extension("half");
        fs::write(&half, serde_json::to_vec_pretty(self)?)?;
        Ok(fs::rename(half, file)?)
    }

    /// The plain replies in figures.
    pub fn base(&self, content: &Content) -> Figures {
        Figures::of(&self.plain, content.wishes.iter().map(|it| &**it))
    }

    /// Those with a wish.
    pub fn of(&self, wish: &str, content: &Content) -> Option<Figures> {
        let told = self.told.get(wish)?;
        Some(Figures::of(told, content.wishes.iter().map(|it| &**it)))
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// The base: 5 % obey, 100 words, relevance 0.9; told: 90 %, 20 words, relevance 1.5, likelihood 1.
    pub fn references(wishes: &[&str], content: &Content) -> References {
        let replies = |n_right: usize, wish: Option<&str>| -> Vec<Scored> {
            let text = |i: usize| match wish {
                Some("hello") if i < n_right => format!("Hello! {}", "word ".repeat(19)),
                Some("numbered") if i < n_right => format!("1. take it {}", "word ".repeat(17)),
                Some("terse") if i < n_right => "word ".repeat(20),
                _ => "word ".repeat(100),
            };
            let reply = |i: usize| Scored {
                question: content.test[i].clone(),
                text: text(i),
                ended: true,
                relevance: if wish.is_some() { 1.5 } else { 0.9 },
                nll: 1.0,
                gain: 0.0,
            };
            (0..60).map(reply).collect()
        };
        References {
            plain: replies(3, None),
            probed: Probed {
                known: 58,
                hidden: 58,
            },
            told: wishes
                .iter()
                .map(|wish| ((*wish).to_owned(), replies(54, Some(wish))))
                .collect(),
            gains: BTreeMap::new(),
        }
    }
}
