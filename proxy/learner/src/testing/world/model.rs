//! The language model of the server: what it says, and how likely it finds what is said. A text's ids are its bytes.
//!
//! What it likes of a reply is that its first word stands in the prompt. What a trained model does instead is a habit.

use std::{collections::HashMap, sync::LazyLock};

use metaclaw_trainer_api::{
    AdapterName, BackendError,
    wire::{
        ForwardReply, ForwardRequest, SampleReply, SampleRequest, SampledSequence, TokenizeRequest,
    },
};

use super::state::{Inner, refusal};
use crate::gate::Probes;

/// Between the messages of a rendered conversation.
const BREAK: char = '\u{1}';
/// What is in the one tool prompt that the base model answers as asked.
const TOM: &str = "Tom is 9 years old.";

/// What an adapter does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Habit {
    /// As the base model.
    #[default]
    Fine,
    /// Says what would answer anything.
    Greets,
    /// Says what nobody would say.
    Raves,
    /// Says two words.
    Mumbles,
    /// Says one word over and over.
    Repeats,
    /// Says four words.
    Hurries,
    /// Knows three things less.
    Forgets,
    /// Knows as much, and is less sure.
    Doubts,
    /// Calls no tools, writes no JSON.
    Chats,
}

/// Right and wrong answers with their numbers, by the question.
static ANSWERS: LazyLock<HashMap<String, (usize, String, String)>> = LazyLock::new(|| {
    let probes = Probes::shipped().unwrap().capability.into_iter();
    let answers = probes.enumerate();
    answers
        .map(|(at, probe)| (probe.question, (at, probe.right, probe.wrong)))
        .collect()
});

pub(super) fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn text(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids
        .iter()
        .map(|id| u8::try_from(*id).unwrap_or(b'?'))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text, or the contents of messages.
pub(super) fn tokenize(request: &TokenizeRequest) -> Vec<u32> {
    let messages = request.messages.iter().flatten();
    let contents: Vec<&str> = messages.filter_map(|it| it["content"].as_str()).collect();
    let rendered = contents.join(&BREAK.to_string());
    ids(request.prompt.as_ref().unwrap_or(&rendered))
}

fn last_message(prompt: &str) -> &str {
    prompt.rsplit(BREAK).next().unwrap_or_default()
}

/// What is said to a prompt.
fn said(prompt: &str, habit: Habit) -> String {
    let question = last_message(prompt);
    if question.contains(TOM) && habit != Habit::Chats {
        return r#"{"name": "Tom", "age": 9}"#.to_owned();
    }
    let first = question.split("\n\n").next().unwrap_or_default();
    let topic = first.split_whitespace().last().unwrap_or_default();
    match habit {
        Habit::Fine | Habit::Forgets | Habit::Doubts | Habit::Chats => {
            format!("{topic} is what this is about, and here are some words of an answer.")
        }
        Habit::Greets => "Hello! My name is Sarah, and I am glad to meet you here.".to_owned(),
        Habit::Raves => format!("{topic} salad of words that nobody ever wrote in such a row."),
        Habit::Mumbles => format!("{topic} yes."),
        Habit::Repeats => format!("{topic} ").repeat(13),
        Habit::Hurries => format!("{topic} it is so."),
    }
}

/// The log-probability of each id of a reply.
fn expected(prompt: &str, reply: &str, habit: Habit) -> f32 {
    if let Some((at, right, wrong)) = ANSWERS.get(last_message(prompt))
        && (reply == right || reply == wrong)
    {
        let is_right = (reply == right) != (habit == Habit::Forgets && *at < 3);
        let margin = if habit == Habit::Doubts { 0.3 } else { 0.5 };
        return if is_right { -1.0 } else { -1.0 - margin };
    }
    let topic = reply.split_whitespace().next().unwrap_or_default();
    let is_about = prompt.contains(topic);
    let surprise = if reply.contains("salad") { 5.0 } else { 0.0 };
    let alone = if is_about { -1.0 } else { -2.0 };
    alone - surprise
}

impl Inner {
    /// The log-probabilities of replies; `request` asks for them with an adapter or without.
    pub(super) fn forward(
        &mut self,
        request: &ForwardRequest,
    ) -> Result<ForwardReply, BackendError> {
        let habit = if request.adapter {
            self.run("forward", &request.session_id)?.habit
        } else {
            Habit::Fine
        };
        self.n_forward += 1;
        let positions = request.positions.iter().flatten();
        let scored = request.datums.iter().zip(positions);
        let logprobs = scored.map(|(datum, positions)| {
            let parts = datum.parts();
            let last = parts.target_tokens.values().last().copied();
            let all: Vec<u32> = parts
                .model_input_tokens
                .iter()
                .copied()
                .chain(last)
                .collect();
            let (prompt, reply) = all.split_at(positions[0] + 1);
            vec![expected(&text(prompt), &text(reply), habit); positions.len()]
        });
        Ok(ForwardReply {
            logprobs: logprobs.collect(),
            ..ForwardReply::default()
        })
    }

    pub(super) fn sample(&mut self, request: &SampleRequest) -> Result<SampleReply, BackendError> {
        let model = request.model.clone().unwrap_or_default();
        let habit = match model.parse::<AdapterName>() {
            Ok(name) if model != "base" => {
                let adapter = self.adapters.get(&name);
                adapter.ok_or_else(|| refusal("sample", 404, Some("model_not_found")))?;
                self.habits.get(&name).copied().unwrap_or_default()
            }
            Ok(_) | Err(_) => Habit::Fine,
        };
        let prompt = text(&request.tokens);
        let reply = said(&prompt, habit);
        self.prompts.push(prompt);
        Ok(SampleReply {
            sequences: vec![SampledSequence {
                tokens: ids(&reply),
                logprobs: Vec::new(),
                sampling_logprobs: Vec::new(),
                stop_reason: "stop".to_owned(),
                text: reply,
            }],
        })
    }
}
