//! What the base model comes to. It is asked once and kept on disk, because the results do not change, and measuring them
//! again takes a minute on two cores.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use metaclaw_chat::make_private;
use metaclaw_skills::write_private;
use metaclaw_trainer_api::BackendError;
use serde::{Deserialize, Serialize};

use super::{
    preference::Margins,
    probes::{self, CapabilityPrompt, CapabilityScore, ProbeSet, Probes, ToolAnswer},
    replies::{self, Prompts, ReplyFigures},
};
use crate::policy::{By, DrawnReply, PolicyModel};

const MAX_LISTS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct BaseFigures {
    shelf: BaselineCache,
    fingerprint: Option<String>,
    figures: Baseline,
    /// By how much it prefers what owners accepted: in memory alone, with the pairs of the agents that were tested last.
    pub(super) margins: Margins,
    asked: Vec<CapabilityPrompt>,
    prompts: BTreeMap<(Vec<String>, usize), Prompts>,
    /// What it said to them: drawn with the same seeds, so that what is drawn again after a restart is the same.
    drawn: BTreeMap<(Vec<String>, usize), Vec<DrawnReply>>,
}

// === impl BaseFigures ===

impl BaseFigures {
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Self {
            shelf: BaselineCache::new(folder),
            ..Self::default()
        }
    }

    /// It is this model from now on. A server that does not tell which it has may have another after a restart: nothing of it
    /// is kept on disk.
    pub(super) async fn is(&mut self, fingerprint: Option<&str>, probes: &Probes) {
        if self.fingerprint.as_deref() == fingerprint {
            return;
        }
        let figures = match fingerprint {
            Some(fingerprint) => self.shelf.read(&baseline_id(fingerprint, probes)).await,
            None => Baseline::default(),
        };
        *self = Self {
            shelf: std::mem::take(&mut self.shelf),
            fingerprint: fingerprint.map(str::to_owned),
            figures,
            ..Self::default()
        };
    }

    async fn keep(&self) {
        if self.fingerprint.is_some() {
            self.shelf.write(&self.figures).await;
        }
    }

    pub(super) async fn prompts(
        &mut self,
        policy: &PolicyModel,
        questions: ProbeSet,
        wishes: &[String],
    ) -> Result<Prompts, BackendError> {
        let key = (wishes.to_vec(), questions.set);
        if let Some(known) = self.prompts.get(&key) {
            return Ok(known.clone());
        }
        let prompts = replies::render(policy, questions.texts(), wishes).await?;
        // Old wish lists are not asked about again; which one goes is of no matter, but the plain ones.
        if self.prompts.len() >= MAX_LISTS * questions.probes.n_sets() {
            self.prompts.retain(|(wishes, _), _| wishes.is_empty());
            self.drawn.retain(|(wishes, _), _| wishes.is_empty());
        }
        self.prompts.insert(key, prompts.clone());
        Ok(prompts)
    }

    pub(super) async fn drawn(
        &mut self,
        policy: &PolicyModel,
        questions: ProbeSet,
        wishes: &[String],
    ) -> Result<Vec<DrawnReply>, BackendError> {
        let key = (wishes.to_vec(), questions.set);
        if let Some(known) = self.drawn.get(&key) {
            return Ok(known.clone());
        }
        let prompts = self.prompts(policy, questions, wishes).await?;
        let drawn = replies::draw(policy, None, prompts.asked()).await?;
        self.drawn.insert(key, drawn.clone());
        Ok(drawn)
    }

    pub(super) async fn plain_gain(
        &mut self,
        policy: &PolicyModel,
        questions: ProbeSet,
        wishes: &[String],
    ) -> Result<Option<f64>, BackendError> {
        if let Some(known) = self.figures.plain_gain(wishes, questions.set) {
            return Ok(Some(known));
        }
        let plain = self.reference(policy, questions, &[]).await?;
        let drawn = self.drawn(policy, questions, &[]).await?;
        let prompts = self.prompts(policy, questions, wishes).await?;
        let expected = replies::expected_told(policy, &prompts.with(&drawn)).await?;
        let gain = expected.map(|expected| expected + plain.surprise);
        if let Some(gain) = gain {
            self.figures.put_plain_gain(wishes, questions.set, gain);
            self.keep().await;
        }
        Ok(gain)
    }

    pub(super) async fn reference(
        &mut self,
        policy: &PolicyModel,
        questions: ProbeSet,
        wishes: &[String],
    ) -> Result<ReplyFigures, BackendError> {
        if let Some(known) = self.figures.reference(wishes, questions.set) {
            return Ok(known);
        }
        let prompts = self.prompts(policy, questions, wishes).await?;
        let drawn = self.drawn(policy, questions, wishes).await?;
        let replies = replies::measure(policy, &prompts.with(&drawn)).await?;
        self.figures.put_reference(wishes, questions.set, replies);
        self.keep().await;
        Ok(replies)
    }

    pub(super) async fn capability(
        &mut self,
        policy: &PolicyModel,
        probes: &Probes,
    ) -> Result<(&[CapabilityPrompt], CapabilityScore), BackendError> {
        if self.asked.is_empty() {
            self.asked = probes::render(policy, probes).await?;
        }
        let capability = match self.figures.capability {
            Some(known) => known,
            None => probes::capability(policy, By::Base, &self.asked).await?,
        };
        if self.figures.capability.replace(capability).is_none() {
            self.keep().await;
        }
        Ok((&self.asked, capability))
    }

    pub(super) async fn tools(
        &mut self,
        policy: &PolicyModel,
        probes: &Probes,
    ) -> Result<Vec<ToolAnswer>, BackendError> {
        if let Some(known) = &self.figures.tools {
            return Ok(known.clone());
        }
        let answered = probes::each(policy, None, &probes.tools).await?;
        self.figures.tools = Some(answered.clone());
        self.keep().await;
        Ok(answered)
    }
}

fn baseline_id(fingerprint: &str, probes: &Probes) -> String {
    let mut hash = blake3::Hasher::new();
    for part in [fingerprint, &probes.hash, &replies::manner()] {
        hash.update(part.as_bytes()).update(&[0]);
    }
    hash.finalize().to_hex().to_string()
}

const FILE: &str = "gate.json";
/// A longer file was not written by MetaClaw.
const MOST_BYTES: u64 = 1 << 20;
/// The largest number of references that are kept. The references without wishes stay; of the others, the least
/// recently used is deleted.
const MOST_REFERENCES: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// A hash of the base model, the probes, and how they are asked. Results with another hash are not used.
    of: String,
    pub(super) capability: Option<CapabilityScore>,
    pub(super) tools: Option<Vec<ToolAnswer>>,
    /// The references, most recently used last.
    references: Vec<Reference>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Reference {
    /// A hash of the wishes, so that their words are stored only in the library; `None` without wishes.
    wishes: Option<String>,
    set: usize,
    replies: ReplyFigures,
    /// How much more probable the base model finds its plain replies with the wishes than without, or `None` if that
    /// was not measured.
    plain_gain: Option<f64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct BaselineCache(Option<PathBuf>);

// === impl Baseline ===

impl Baseline {
    pub(super) fn new(of: String) -> Self {
        Self {
            of,
            ..Self::default()
        }
    }

    fn place(&self, wishes: &[String], set: usize) -> Option<usize> {
        let key = key(wishes);
        let mut references = self.references.iter();
        references.position(|known| known.wishes == key && known.set == set)
    }

    pub(super) fn reference(&mut self, wishes: &[String], set: usize) -> Option<ReplyFigures> {
        let known = self.references.remove(self.place(wishes, set)?);
        let replies = known.replies;
        self.references.push(known);
        Some(replies)
    }

    pub(super) fn put_reference(&mut self, wishes: &[String], set: usize, replies: ReplyFigures) {
        if self.references.len() >= MOST_REFERENCES {
            let mut references = self.references.iter();
            let oldest = references.position(|known| known.wishes.is_some());
            self.references.remove(oldest.unwrap_or(0));
        }
        self.references.push(Reference {
            wishes: key(wishes),
            set,
            replies,
            plain_gain: None,
        });
    }

    pub(super) fn plain_gain(&self, wishes: &[String], set: usize) -> Option<f64> {
        self.references[self.place(wishes, set)?].plain_gain
    }

    pub(super) fn put_plain_gain(&mut self, wishes: &[String], set: usize, gain: f64) {
        if let Some(at) = self.place(wishes, set) {
            self.references[at].plain_gain = Some(gain);
        }
    }
}

fn key(wishes: &[String]) -> Option<String> {
    let mut hash = blake3::Hasher::new();
    for wish in wishes {
        hash.update(wish.as_bytes()).update(&[0]);
    }
    (!wishes.is_empty()).then(|| hash.finalize().to_hex().to_string())
}

// === impl BaselineCache ===

impl BaselineCache {
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Self(folder.map(Path::to_owned))
    }

    /// Reads the results with this hash. If the file is missing, damaged or has another hash, the results are empty.
    pub(super) async fn read(&self, of: &str) -> Baseline {
        let folder = self.0.clone();
        let read = tokio::task::spawn_blocking(move || read(&folder?)).await;
        let kept = read.ok().flatten().filter(|kept| kept.of == of);
        kept.unwrap_or_else(|| Baseline::new(of.to_owned()))
    }

    /// Replaces the stored results.
    ///
    /// # Cancel safety
    /// A write that has begun is completed if the future is dropped.
    pub(super) async fn write(&self, figures: &Baseline) {
        let (Some(folder), Ok(json)) = (self.0.clone(), serde_json::to_vec(figures)) else {
            return;
        };
        let file = folder.join(FILE);
        let written = tokio::task::spawn_blocking(move || write(&folder, &json)).await;
        let failed = match written {
            Ok(written) => written.err(),
            Err(panicked) => Some(io::Error::other(panicked)),
        };
        if let Some(error) = failed {
            tracing::warn!(file = %file.display(), %error, "what the gate asked of the base model is not kept: it is asked again after a restart");
        }
    }
}

fn read(folder: &Path) -> Option<Baseline> {
    let file = folder.join(FILE);
    let size = fs::metadata(&file).ok()?.len();
    let bytes = (size <= MOST_BYTES).then(|| fs::read(&file)).transpose();
    let read = bytes.and_then(|bytes| Ok(serde_json::from_slice(&bytes.unwrap_or_default())?));
    if let Err(error) = &read {
        let file = file.display();
        tracing::warn!(%file, %error, "what the gate kept of the base model cannot be read: it is asked again");
    }
    read.ok()
}

fn write(folder: &Path, json: &[u8]) -> io::Result<()> {
    make_private(folder)?;
    write_private(&folder.join(FILE), json)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: ReplyFigures = ReplyFigures {
        relevance: 0.1,
        relevance_error: 0.01,
        surprise: 1.0 / 3.0,
        surprise_error: 0.02,
        gain: Some(0.4),
        asking: 0.0,
        calling: 0.0,
        short: 0.0,
        distinct: 0.9,
        words: 19.0,
    };

    fn wish(n: usize) -> Vec<String> {
        vec![format!("Wish {n}.")]
    }

    #[tokio::test]
    async fn figures_are_read_again_and_only_those_of_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = BaselineCache::new(Some(&dir.path().join("learning")));
        let mut figures = shelf.read("one").await;
        assert_eq!(figures, Baseline::new("one".to_owned()));
        let answered = |passed| ToolAnswer {
            passed,
            broke_call: !passed,
        };
        figures.tools = Some(vec![answered(true), answered(false)]);
        figures.put_reference(&wish(1), 2, REPLIES);
        figures.put_plain_gain(&wish(1), 2, -0.1);
        figures.put_plain_gain(&wish(2), 2, -0.2);
        shelf.write(&figures).await;
        let mut read = shelf.read("one").await;
        assert_eq!(read, figures);
        assert_eq!(read.reference(&wish(1), 2), Some(REPLIES));
        assert_eq!(read.plain_gain(&wish(1), 2), Some(-0.1));
        assert_eq!(read.plain_gain(&wish(2), 2), None, "there is no reference");
        assert_eq!(read.reference(&wish(1), 1), None);
        assert_eq!(read.reference(&[], 2), None);
        assert_eq!(shelf.read("two").await, Baseline::new("two".to_owned()));
        let text = fs::read_to_string(dir.path().join("learning").join(FILE)).unwrap();
        assert!(!text.contains("Wish"), "no word of the owner's: {text}");
    }

    #[tokio::test]
    async fn what_is_damaged_counts_as_not_asked() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = BaselineCache::new(Some(dir.path()));
        let mut figures = Baseline::new("one".to_owned());
        figures.put_reference(&[], 0, REPLIES);
        shelf.write(&figures).await;
        let file = dir.path().join(FILE);
        let whole = fs::read(&file).unwrap();
        let number = "x".repeat(2 << 20).into_bytes();
        for damaged in [&whole[..whole.len() - 1], b"", b"[]", b"\xff", &number] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(shelf.read("one").await, Baseline::new("one".to_owned()));
        }
        // JSON writes NaN as null.
        let ruined = ReplyFigures {
            relevance: f64::NAN,
            ..REPLIES
        };
        figures.put_reference(&[], 1, ruined);
        shelf.write(&figures).await;
        assert_eq!(shelf.read("one").await, Baseline::new("one".to_owned()));
        // A file that cannot be written causes no failure either.
        let nowhere = BaselineCache::new(Some(&file.join("below")));
        nowhere.write(&figures).await;
        assert_eq!(nowhere.read("one").await, Baseline::new("one".to_owned()));
        let found = BaselineCache::default().read("one").await.references.len();
        assert_eq!(found, 0);
    }

    #[test]
    fn old_wishes_go_first_and_no_more_are_kept_than_the_bound() {
        let mut figures = Baseline::default();
        figures.put_reference(&[], 0, REPLIES);
        for n in 0..MOST_REFERENCES - 1 {
            figures.put_reference(&wish(n), 0, REPLIES);
        }
        assert!(figures.reference(&wish(0), 0).is_some(), "asked for again");
        figures.put_reference(&wish(100), 0, REPLIES);
        assert_eq!(figures.references.len(), MOST_REFERENCES);
        let kept = [&wish(0)[..], &[], &wish(100)].map(|w| figures.reference(w, 0).is_some());
        assert_eq!(kept, [true; 3]);
        assert_eq!(figures.reference(&wish(1), 0), None);
    }
}
