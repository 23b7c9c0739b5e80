//! What the base model comes to: asked once, kept on disk.

use std::{collections::BTreeMap, path::Path};

use metaclaw_trainer_api::BackendError;

use super::{
    baseline_cache::{Baseline, BaselineCache},
    capability::{self, CapabilityPrompt, CapabilityScore},
    preference::Margins,
    probes::{ProbeSet, Probes},
    reference::{self, Prompts, ReplyFigures},
    tools::{self, ToolAnswer},
};
use crate::policy::{By, DrawnReply, PolicyModel};

/// Wish lists whose rendered questions are in memory.
const MAX_LISTS: usize = 16;

/// What is known of the base model.
#[derive(Debug)]
pub(super) struct BaseFigures {
    shelf: BaselineCache,
    /// Its fingerprint, where the server tells.
    fingerprint: Option<String>,
    figures: Baseline,
    /// By how much it prefers what owners accepted: in memory alone, with the pairs of the agents that were tested last.
    pub(super) margins: Margins,
    /// The capability probes, rendered.
    asked: Vec<CapabilityPrompt>,
    /// Questions, rendered, by wishes and set.
    prompts: BTreeMap<(Vec<String>, usize), Prompts>,
    /// What it said to them: drawn with the same seeds, so that what is drawn again after a restart is the same.
    drawn: BTreeMap<(Vec<String>, usize), Vec<DrawnReply>>,
}

// === impl BaseFigures ===

impl BaseFigures {
    /// What is known is kept in `folder`; without one for as long as the process.
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Self {
            shelf: BaselineCache::new(folder),
            fingerprint: None,
            figures: Baseline::default(),
            margins: Margins::new(),
            asked: Vec::new(),
            prompts: BTreeMap::new(),
            drawn: BTreeMap::new(),
        }
    }

    /// It is this model from now on. A server that does not tell which it has may have another after a restart: nothing of it
    /// is kept on disk.
    pub(super) async fn is(&mut self, fingerprint: Option<&str>, probes: &Probes) {
        if self.fingerprint.as_deref() == fingerprint {
            return;
        }
        let figures = match fingerprint {
            Some(fingerprint) => self.shelf.read(&of(fingerprint, probes)).await,
            None => Baseline::default(),
        };
        *self = Self {
            shelf: std::mem::take(&mut self.shelf),
            fingerprint: fingerprint.map(str::to_owned),
            figures,
            margins: Margins::new(),
            asked: Vec::new(),
            prompts: BTreeMap::new(),
            drawn: BTreeMap::new(),
        };
    }

    async fn keep(&self) {
        if self.fingerprint.is_some() {
            self.shelf.write(&self.figures).await;
        }
    }

    /// A set of questions with wishes, rendered.
    pub(super) async fn prompts(
        &mut self,
        policy: &PolicyModel,
        questions: ProbeSet<'_>,
        wishes: &[String],
    ) -> Result<Prompts, BackendError> {
        let key = (wishes.to_vec(), questions.set);
        if let Some(known) = self.prompts.get(&key) {
            return Ok(known.clone());
        }
        let prompts = reference::render(policy, questions.texts(), wishes).await?;
        // Old wish lists are not asked about again; which one goes is of no matter, but the plain ones.
        if self.prompts.len() >= MAX_LISTS * questions.probes.n_sets() {
            self.prompts.retain(|(wishes, _), _| wishes.is_empty());
            self.drawn.retain(|(wishes, _), _| wishes.is_empty());
        }
        self.prompts.insert(key, prompts.clone());
        Ok(prompts)
    }

    /// What it says to a set of questions, with wishes.
    pub(super) async fn drawn(
        &mut self,
        policy: &PolicyModel,
        questions: ProbeSet<'_>,
        wishes: &[String],
    ) -> Result<Vec<DrawnReply>, BackendError> {
        let key = (wishes.to_vec(), questions.set);
        if let Some(known) = self.drawn.get(&key) {
            return Ok(known.clone());
        }
        let prompts = self.prompts(policy, questions, wishes).await?;
        let drawn = reference::draw(policy, None, prompts.asked()).await?;
        self.drawn.insert(key, drawn.clone());
        Ok(drawn)
    }

    /// How much more it expects its plain replies to a set of questions with these wishes than without; none where there are
    /// no wishes.
    pub(super) async fn plain_gain(
        &mut self,
        policy: &PolicyModel,
        questions: ProbeSet<'_>,
        wishes: &[String],
    ) -> Result<Option<f64>, BackendError> {
        if let Some(known) = self.figures.plain_gain(wishes, questions.set) {
            return Ok(Some(known));
        }
        let plain = self.reference(policy, questions, &[]).await?;
        let drawn = self.drawn(policy, questions, &[]).await?;
        let prompts = self.prompts(policy, questions, wishes).await?;
        let gain = reference::gain(policy, &prompts, &drawn, plain.surprise).await?;
        if let Some(gain) = gain {
            self.figures.put_plain_gain(wishes, questions.set, gain);
            self.keep().await;
        }
        Ok(gain)
    }

    /// What its own replies to a set of questions are like, with wishes.
    pub(super) async fn reference(
        &mut self,
        policy: &PolicyModel,
        questions: ProbeSet<'_>,
        wishes: &[String],
    ) -> Result<ReplyFigures, BackendError> {
        if let Some(known) = self.figures.reference(wishes, questions.set) {
            return Ok(known);
        }
        let prompts = self.prompts(policy, questions, wishes).await?;
        let drawn = self.drawn(policy, questions, wishes).await?;
        let replies = reference::measure(policy, &prompts, &drawn).await?;
        self.figures.put_reference(wishes, questions.set, replies);
        self.keep().await;
        Ok(replies)
    }

    /// The capability probes, and how it answers them.
    pub(super) async fn capability(
        &mut self,
        policy: &PolicyModel,
        probes: &Probes,
    ) -> Result<(&[CapabilityPrompt], CapabilityScore), BackendError> {
        if self.asked.is_empty() {
            self.asked = capability::render(policy, probes).await?;
        }
        let capability = match self.figures.capability {
            Some(known) => known,
            None => capability::capability(policy, By::Base, &self.asked).await?,
        };
        if self.figures.capability.replace(capability).is_none() {
            self.keep().await;
        }
        Ok((&self.asked, capability))
    }

    /// How it answers each of the tool prompts.
    pub(super) async fn tools(
        &mut self,
        policy: &PolicyModel,
        probes: &Probes,
    ) -> Result<Vec<ToolAnswer>, BackendError> {
        if let Some(known) = &self.figures.tools {
            return Ok(known.clone());
        }
        let answered = tools::each(policy, None, &probes.tools).await?;
        self.figures.tools = Some(answered.clone());
        self.keep().await;
        Ok(answered)
    }
}

/// What figures are of: the model, the probes, and how they are asked.
fn of(fingerprint: &str, probes: &Probes) -> String {
    let mut hash = blake3::Hasher::new();
    for part in [fingerprint, &probes.hash, &reference::manner()] {
        hash.update(part.as_bytes()).update(&[0]);
    }
    hash.finalize().to_hex().to_string()
}
