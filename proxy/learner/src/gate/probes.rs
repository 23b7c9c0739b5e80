//! What adapters are asked: texts of our own, in files that a person can read.

use std::borrow::Borrow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::checks::ProbeCheck;

/// Questions of one test; later steps have others.
pub(super) const AT_ONCE: usize = 16;

const QUESTIONS: &str = include_str!("probes/questions.yaml");
const CAPABILITY: &str = include_str!("probes/capability.yaml");
const TOOL_PROMPTS: &str = include_str!("probes/tool_prompts.yaml");

#[derive(Debug)]
pub(crate) struct Probes {
    /// Everyday questions, for what replies are like.
    pub(super) questions: Vec<String>,
    /// For what is known.
    pub(crate) capability: Vec<CapabilityProbe>,
    /// For what agents need.
    pub(super) tools: Vec<ToolPrompt>,
    /// Of all their texts.
    pub(super) hash: String,
}

/// One set of the everyday questions.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeSet<'a> {
    pub(super) probes: &'a Probes,
    pub(super) set: usize,
}

/// A question with a right and a wrong answer of one length and form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapabilityProbe {
    #[expect(dead_code, reason = "people find a probe by it")]
    id: String,
    #[expect(dead_code, reason = "people sort probes by it")]
    kind: String,
    #[expect(dead_code, reason = "people sort probes by it")]
    lang: String,
    pub(crate) question: String,
    pub(crate) right: String,
    pub(crate) wrong: String,
}

/// A request of the form that agents live on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolPrompt {
    #[expect(dead_code, reason = "people find a prompt by it")]
    id: String,
    pub(super) max_tokens: u32,
    #[serde(default)]
    earlier: Vec<Exchange>,
    user: String,
    #[serde(default)]
    pub(super) tools: Vec<Value>,
    pub(super) check: ProbeCheck,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    user: String,
    assistant: String,
}

// === impl Probes ===

impl Probes {
    /// Those that the product ships.
    ///
    /// # Errors
    /// In words; the tests see to it that there is none.
    pub(crate) fn shipped() -> Result<Self, String> {
        let probes = Self {
            questions: read("questions", QUESTIONS)?,
            capability: read("capability", CAPABILITY)?,
            tools: read("tool_prompts", TOOL_PROMPTS)?,
            hash: hash(&[QUESTIONS, CAPABILITY, TOOL_PROMPTS]),
        };
        if probes.questions.len() < AT_ONCE || probes.capability.is_empty() {
            return Err(format!(
                "the gate's probes are too few: {AT_ONCE} questions at least"
            ));
        }
        Ok(probes)
    }

    /// How many sets of questions there are.
    pub(super) fn n_sets(&self) -> usize {
        self.questions.len() / AT_ONCE
    }

    /// The questions of one set.
    pub(super) fn set(&self, set: usize) -> &[String] {
        let mut sets = self.questions.chunks_exact(AT_ONCE);
        sets.nth(set).unwrap_or_default()
    }
}

// === impl ProbeSet ===

impl<'a> ProbeSet<'a> {
    pub(super) fn texts(self) -> &'a [String] {
        self.probes.set(self.set)
    }
}

// === impl ToolPrompt ===

impl ToolPrompt {
    /// The conversation, up to where the assistant is to answer.
    pub(super) fn messages(&self) -> Vec<Value> {
        let earlier = self.earlier.iter().flat_map(|it| {
            let (user, assistant) = (&it.user, &it.assistant);
            [
                user_says(user),
                json!({"role": "assistant", "content": assistant}),
            ]
        });
        earlier.chain([user_says(&self.user)]).collect()
    }

    /// The tools of the request, where it has some.
    pub(super) fn offered(&self) -> Option<Value> {
        (!self.tools.is_empty()).then(|| Value::Array(self.tools.clone()))
    }
}

/// One message of the owner's.
pub(super) fn user_says(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The same with wishes as a paragraph after it, where there are some.
pub(super) fn user_told<S: Borrow<str>>(question: &str, wishes: &[S]) -> Value {
    if wishes.is_empty() {
        return user_says(question);
    }
    user_says(&format!("{question}\n\n{}", wishes.join(" ")))
}

fn hash(texts: &[&str]) -> String {
    let mut hash = blake3::Hasher::new();
    for text in texts {
        hash.update(text.as_bytes()).update(&[0]);
    }
    hash.finalize().to_hex().to_string()
}

fn read<T: for<'de> Deserialize<'de>>(name: &str, text: &str) -> Result<Vec<T>, String> {
    let probes = serde_saphyr::from_str(text);
    probes.map_err(|error| format!("the gate's probes {name} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_shipped_probes_read_and_are_as_many_as_is_said() {
        let probes = Probes::shipped().unwrap();
        assert_eq!(
            (
                probes.questions.len(),
                probes.capability.len(),
                probes.tools.len()
            ),
            (48, 64, 16)
        );
        assert_eq!(probes.n_sets(), 3);
        let distinct: BTreeSet<&String> = probes.questions.iter().collect();
        assert_eq!(distinct.len(), 48);
        assert!(
            probes
                .questions
                .iter()
                .all(|question| question.ends_with('?'))
        );
        assert_eq!(probes.set(2), &probes.questions[32..]);
        for probe in &probes.capability {
            assert_ne!(probe.right, probe.wrong, "{probe:?}");
        }
        let last = |prompt: &ToolPrompt| prompt.messages().last().unwrap()["role"].clone();
        assert!(probes.tools.iter().all(|prompt| last(prompt) == "user"));
    }
}
