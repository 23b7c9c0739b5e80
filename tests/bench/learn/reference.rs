//! What everything is compared with: the base model without a word, and with each wish in its prompt. Measured once.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{
    content::{Content, Wish},
    measure::{Figures, Probed, Scored},
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
