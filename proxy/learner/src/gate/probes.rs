//! What adapters are asked: texts of our own, in files that a person can read. The capability probes measure what a model
//! knows; the tool prompts, whether agents can still work with what it writes: JSON alone, a tool call, a whole file.

use std::{borrow::Borrow, collections::BTreeMap, sync::LazyLock};

use futures_util::{
    StreamExt as _, TryFutureExt as _, future::try_join_all, stream::FuturesUnordered,
};
use metaclaw_trainer_api::BackendError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::report::{
    Bound::{AtLeast, AtMost},
    GateTest,
};
use crate::{
    calls::{Type, fit, has_broken_call, only_call, parameters},
    formulas::mean,
    policy::{By, DrawRequest, PolicyModel, ScoredPair},
};

/// Questions of one test; later steps have others.
pub(super) const AT_ONCE: usize = 16;

const QUESTIONS: &str = include_str!("probes/questions.yaml");
const CAPABILITY: &str = include_str!("probes/capability.yaml");
const TOOL_PROMPTS: &str = include_str!("probes/tool_prompts.yaml");

#[derive(Debug)]
pub(crate) struct Probes {
    pub(super) questions: Vec<String>,
    pub(crate) capability: Vec<CapabilityProbe>,
    pub(super) tools: Vec<ToolPrompt>,
    pub(super) hash: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbesError {
    #[error("the gate's probes {name} cannot be read: {source}")]
    Unreadable {
        name: &'static str,
        source: Box<serde_saphyr::Error>,
    },
    #[error("the gate's probes are too few: {AT_ONCE} questions at least")]
    TooFew,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeSet {
    pub(super) probes: &'static Probes,
    pub(super) set: usize,
}

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
    /// [`ProbesError`]; the tests see to it that there is none.
    pub(crate) fn shipped() -> Result<&'static Self, &'static ProbesError> {
        static SHIPPED: LazyLock<Result<Probes, ProbesError>> = LazyLock::new(Probes::read);
        SHIPPED.as_ref()
    }

    fn read() -> Result<Self, ProbesError> {
        let probes = Self {
            questions: read("questions", QUESTIONS)?,
            capability: read("capability", CAPABILITY)?,
            tools: read("tool_prompts", TOOL_PROMPTS)?,
            hash: hash(&[QUESTIONS, CAPABILITY, TOOL_PROMPTS]),
        };
        if probes.questions.len() < AT_ONCE || probes.capability.is_empty() {
            return Err(ProbesError::TooFew);
        }
        Ok(probes)
    }

    pub(super) fn n_sets(&self) -> usize {
        self.questions.len() / AT_ONCE
    }

    pub(super) fn set(&self, set: usize) -> &[String] {
        let mut sets = self.questions.chunks_exact(AT_ONCE);
        sets.nth(set).unwrap_or_default()
    }
}

// === impl ProbeSet ===

impl ProbeSet {
    pub(super) fn texts(self) -> &'static [String] {
        self.probes.set(self.set)
    }
}

// === impl ToolPrompt ===

impl ToolPrompt {
    pub(super) fn messages(&self) -> Vec<Value> {
        let earlier = self.earlier.iter().flat_map(|exchange| {
            let (user, assistant) = (&exchange.user, &exchange.assistant);
            [
                user_says(user),
                json!({"role": "assistant", "content": assistant}),
            ]
        });
        earlier.chain([user_says(&self.user)]).collect()
    }

    pub(super) fn offered(&self) -> Option<Value> {
        (!self.tools.is_empty()).then(|| Value::Array(self.tools.clone()))
    }
}

pub(super) fn user_says(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

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

fn read<T: for<'de> Deserialize<'de>>(
    name: &'static str,
    text: &str,
) -> Result<Vec<T>, ProbesError> {
    serde_saphyr::from_str(text).map_err(|error| ProbesError::Unreadable {
        name,
        source: Box::new(error),
    })
}

const FENCE: &str = "```";

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ProbeCheck {
    /// A JSON object with at least these keys, alone or in one code fence.
    Json { keys: BTreeMap<String, Type> },
    /// One call of this tool, with arguments that fit its parameters.
    Call { name: String },
    /// One code block that contains each of these texts.
    File {
        contains: Vec<String>,
        #[serde(default)]
        json: bool,
    },
}

// === impl ProbeCheck ===

impl ProbeCheck {
    pub(super) fn passes(&self, reply: &str, tools: &[Value]) -> bool {
        match self {
            Self::Json { keys } => {
                let json = serde_json::from_str::<Map<String, Value>>(unfenced(reply));
                let has = |object: &Map<String, Value>| {
                    let mut keys = keys.iter();
                    keys.all(|(key, is)| object.get(key).is_some_and(|value| is.is_of(value)))
                };
                json.is_ok_and(|object| has(&object))
            }
            Self::Call { name } => match only_call(reply) {
                Some(call) => {
                    call.name == *name
                        && parameters(tools, name).is_some_and(|s| fit(&call.arguments, s))
                }
                None => false,
            },
            Self::File { contains, json } => match only_block(reply) {
                Some(block) => {
                    let reads = || serde_json::from_str::<Value>(&block).is_ok();
                    contains.iter().all(|text| block.contains(text.as_str())) && (!json || reads())
                }
                None => false,
            },
        }
    }
}

fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text
        .strip_prefix(FENCE)
        .and_then(|rest| rest.strip_suffix(FENCE));
    // The first line belongs to the fence, and has the language's name.
    let inner = inner.and_then(|inner| inner.split_once('\n'));
    inner.map_or(text, |(_, inside)| inside.trim())
}

fn only_block(reply: &str) -> Option<String> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in reply.lines() {
        let is_fence = line.trim_start().starts_with(FENCE);
        match (is_fence, &mut open) {
            (true, Some(lines)) => {
                blocks.push(lines.join("\n"));
                open = None;
            }
            (true, None) => open = Some(Vec::new()),
            (false, Some(lines)) => lines.push(line),
            (false, None) => {}
        }
    }
    let is_one = open.is_none() && blocks.len() == 1;
    blocks.pop().filter(|_| is_one)
}

#[derive(Debug)]
pub(super) struct CapabilityPrompt {
    prompt: Vec<u32>,
    right: Vec<u32>,
    wrong: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct CapabilityScore {
    pub(super) n_right: usize,
    pub(super) margin: f64,
}

pub(super) async fn render(
    policy: &PolicyModel,
    probes: &Probes,
) -> Result<Vec<CapabilityPrompt>, BackendError> {
    let mut asked = Vec::with_capacity(probes.capability.len());
    for probe in &probes.capability {
        asked.push(CapabilityPrompt {
            prompt: policy
                .render(vec![user_says(&probe.question)], None)
                .await?,
            right: policy.encode(&probe.right).await?,
            wrong: policy.encode(&probe.wrong).await?,
        });
    }
    Ok(asked)
}

pub(super) async fn capability(
    policy: &PolicyModel,
    by: By<'_>,
    asked: &[CapabilityPrompt],
) -> Result<CapabilityScore, BackendError> {
    let pairs: Vec<ScoredPair<'_>> = asked.iter().flat_map(CapabilityPrompt::answers).collect();
    let scores = policy.score(by, &pairs, usize::MAX).await?;
    let margins = scores.chunks_exact(2).map(|both| both[0] - both[1]);
    Ok(CapabilityScore::new(&margins.collect::<Vec<f64>>()))
}

// === impl CapabilityPrompt ===

impl CapabilityPrompt {
    fn answers(&self) -> [ScoredPair<'_>; 2] {
        let prompt = &self.prompt;
        [&self.right, &self.wrong].map(|reply| ScoredPair { prompt, reply })
    }
}

// === impl CapabilityScore ===

impl CapabilityScore {
    fn new(margins: &[f64]) -> Self {
        Self {
            n_right: margins.iter().filter(|margin| **margin > 0.0).count(),
            margin: mean(margins),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToolAnswer {
    pub(super) passed: bool,
    pub(super) broke_call: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ToolTally {
    passed: usize,
    asked: usize,
    broken: usize,
    broken_by_base: usize,
}

pub(super) async fn each(
    policy: &PolicyModel,
    adapter: Option<&str>,
    prompts: &[ToolPrompt],
) -> Result<Vec<ToolAnswer>, BackendError> {
    let answered = prompts.iter().map(|prompt| ask(policy, adapter, prompt));
    try_join_all(answered).await
}

/// Whether an adapter answers as many as the base model, and breaks no call that the base model does not: those first that
/// the base answers, since an adapter can hardly but lose these; the others only where it has. As soon as that is decided nothing
/// more is asked.
pub(super) async fn test(
    policy: &PolicyModel,
    adapter: &str,
    prompts: &[ToolPrompt],
    base: &[ToolAnswer],
) -> Result<Vec<GateTest>, BackendError> {
    let least = base.iter().filter(|answer| answer.passed).count();
    let mut tally = ToolTally::default();
    for is_base in [true, false] {
        let asked = prompts.iter().zip(base);
        let asked = asked.filter(|(_, of_base)| of_base.passed == is_base);
        let asked = asked.map(|(prompt, of_base)| {
            let own = ask(policy, Some(adapter), prompt);
            own.map_ok(|own| (own, *of_base))
        });
        if tally.is_decided(least, prompts.len()) {
            break;
        }
        let mut answers: FuturesUnordered<_> = asked.collect();
        while !tally.is_decided(least, prompts.len())
            && let Some(answered) = answers.next().await
        {
            let (own, of_base) = answered?;
            tally.add(own, of_base);
        }
    }
    let unit = format!(
        "of {} prompts with tools answered well, {} asked",
        prompts.len(),
        tally.asked
    );
    let broken = "replies with a broken tool call";
    let (least, most) = (least as f64, tally.broken_by_base as f64);
    Ok(vec![
        GateTest::measured("tools", tally.passed as f64, AtLeast, least, &unit),
        GateTest::measured("broken_calls", tally.broken as f64, AtMost, most, broken),
    ])
}

async fn ask(
    policy: &PolicyModel,
    adapter: Option<&str>,
    prompt: &ToolPrompt,
) -> Result<ToolAnswer, BackendError> {
    let ids = policy.render(prompt.messages(), prompt.offered()).await?;
    let request = DrawRequest {
        temperature: 0.0,
        ..DrawRequest::new(adapter, &ids, prompt.max_tokens)
    };
    let reply = policy.draw_one(request).await?.text;
    Ok(ToolAnswer {
        passed: prompt.check.passes(&reply, &prompt.tools),
        broke_call: has_broken_call(&reply, &prompt.tools),
    })
}

// === impl ToolTally ===

impl ToolTally {
    fn add(&mut self, own: ToolAnswer, base: ToolAnswer) {
        self.asked += 1;
        self.passed += usize::from(own.passed);
        self.broken += usize::from(own.broke_call);
        self.broken_by_base += usize::from(base.broke_call);
    }

    fn is_decided(self, least: usize, n: usize) -> bool {
        let most = self.passed + n.saturating_sub(self.asked);
        self.passed >= least || most < least
    }
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

    fn check(json: Value) -> ProbeCheck {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn json_alone_with_its_keys_passes() {
        let check = check(
            json!({"kind": "json", "keys": {"name": "string", "age": "integer", "likes": "strings"}}),
        );
        let good = r#"{"name": "Tom", "age": 9, "likes": ["tea"], "more": null}"#;
        for reply in [
            good.to_owned(),
            format!(" {good}\n"),
            format!("```json\n{good}\n```"),
        ] {
            assert!(check.passes(&reply, &[]), "{reply}");
        }
        for reply in [
            r#"{"name": "Tom", "age": 9}"#,
            r#"{"name": "Tom", "age": 9.5, "likes": ["tea"]}"#,
            r#"{"name": "Tom", "age": "9", "likes": ["tea"]}"#,
            r#"{"name": "Tom", "age": 9, "likes": []}"#,
            r#"{"name": "Tom", "age": 9, "likes": [1]}"#,
            r#"Here: {"name": "Tom", "age": 9, "likes": ["tea"]}"#,
            "[]",
            "Hello!",
            "",
            "```",
        ] {
            assert!(!check.passes(reply, &[]), "{reply}");
        }
    }

    #[test]
    fn one_call_that_fits_its_tool_passes() {
        let check = check(json!({"kind": "call", "name": "set_timer"}));
        let parameters = json!({"type": "object", "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}}, "required": ["minutes"]});
        let tools = [
            json!({"type": "function", "function": {"name": "set_timer", "parameters": parameters}}),
        ];
        let call = |body: &str| format!("<tool_call>{body}</tool_call>");
        let good = call(r#"{"name": "set_timer", "arguments": {"minutes": 5}}"#);
        assert!(check.passes(&good, &tools));
        assert!(check.passes(&format!("I set it.\n{good}"), &tools));
        assert!(!check.passes(&good, &[]), "a tool that is not there");
        for reply in [
            format!("{good}{good}"),
            call(r#"{"name": "other", "arguments": {"minutes": 5}}"#),
            call(r#"{"name": "set_timer", "arguments": {}}"#),
            call(r#"{"name": "set_timer", "arguments": {"minutes": "5"}}"#),
            call(r#"{"name": "set_timer", "arguments": {"minutes": 5, "x": 1}}"#),
            call("{"),
            good.replace("</tool_call>", ""),
        ] {
            assert!(!check.passes(&reply, &tools), "{reply}");
        }
    }

    #[test]
    fn one_whole_file_passes() {
        let check = check(json!({"kind": "file", "contains": ["\"a\"", "1"], "json": true}));
        assert!(check.passes("Here it is:\n```json\n{\"a\": 1}\n```\nDone.", &[]));
        for reply in [
            "{\"a\": 1}",
            "```\n{\"a\": 1}",
            "```\n{\"a\": 2}\n```",
            "```\n{\"a\": 1,}\n```",
            "```\n{\"a\": 1}\n```\n```\n{\"a\": 1}\n```",
        ] {
            assert!(!check.passes(reply, &[]), "{reply}");
        }
    }

    #[test]
    fn an_answer_is_right_that_is_likelier_than_the_wrong_one() {
        let CapabilityScore { n_right, margin } = CapabilityScore::new(&[0.5, -0.25, 0.0, 0.75]);
        assert_eq!(n_right, 2);
        assert!((margin - 0.25).abs() < 1e-9);
    }

    #[test]
    fn what_is_reached_or_out_of_reach_is_decided() {
        let is_decided = |passed, asked| {
            let tally = ToolTally {
                passed,
                asked,
                ..ToolTally::default()
            };
            tally.is_decided(8, 16)
        };
        assert!(!is_decided(0, 0));
        assert!(!is_decided(7, 15));
        assert!(is_decided(8, 8));
        assert!(!is_decided(0, 8), "the other eight may all be right");
        assert!(is_decided(0, 9));
        let is_so = ToolTally::default().is_decided(0, 16);
        assert!(is_so, "less is not possible");
    }
}
