//! The language model of the server: its replies, and the log-probabilities of replies. A text's ids are its bytes.
//!
//! It finds a reply probable if the reply's first word is in the prompt. A trained model has a habit instead.

use std::{collections::HashMap, sync::LazyLock};

use metaclaw_trainer_api::{
    AdapterName, BackendError,
    wire::{
        ForwardReply, ForwardRequest, SampleReply, SampleRequest, SampledSequence, TokenizeRequest,
    },
};

use serde_json::Value;

use super::{failure::refusal, habit::Habit, state::Inner};
use crate::gate::Probes;

pub(crate) const END: u32 = 900;
const BREAK: char = '\u{1}';
/// The content of the one tool prompt that the base model answers correctly.
const TOM: &str = "Tom is 9 years old.";

/// A wish that the model follows if it is told.
const SIGN: &str = "Sign with Max.";

static ANSWERS: LazyLock<HashMap<String, (usize, String, String)>> = LazyLock::new(|| {
    let probes = Probes::shipped().unwrap().capability.iter().enumerate();
    probes
        .map(|(at, probe)| {
            let answers = (at, probe.right.clone(), probe.wrong.clone());
            (probe.question.clone(), answers)
        })
        .collect()
});

pub(crate) fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

pub(super) fn text(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().filter_map(|id| u8::try_from(*id).ok()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn tokenize(request: &TokenizeRequest) -> Vec<u32> {
    let messages = request.messages.iter().flatten();
    let contents: Vec<String> = messages
        .map(|message| content(&message["content"]))
        .collect();
    let rendered = contents.join(&BREAK.to_string());
    ids(request.prompt.as_ref().unwrap_or(&rendered))
}

pub(super) fn reply_start(request: &TokenizeRequest) -> u32 {
    let messages = request.messages.clone().unwrap_or_default();
    let last = messages.last().map(|message| content(&message["content"]));
    let n_all = tokenize(request).len();
    u32::try_from(n_all - ids(&last.unwrap_or_default()).len()).unwrap()
}

fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n\n")
        }
        _ => String::new(),
    }
}

fn last_message(prompt: &str) -> &str {
    prompt.rsplit(BREAK).next().unwrap_or_default()
}

fn said(prompt: &str, habit: Habit) -> String {
    let question = last_message(prompt);
    if question.contains(TOM) && habit != Habit::Chats {
        return r#"{"name": "Tom", "age": 9}"#.to_owned();
    }
    let first = question.split("\n\n").next().unwrap_or_default();
    let topic = first.split_whitespace().last().unwrap_or_default();
    match habit {
        Habit::Fine if question.contains(SIGN) => {
            format!("{topic} is what this is about, and here are some words. Max")
        }
        Habit::Fine | Habit::Forgets | Habit::Doubts | Habit::Chats | Habit::Sulks => {
            format!("{topic} is what this is about, and here are some words of an answer.")
        }
        Habit::Greets => "Hello! My name is Sarah, and I am glad to meet you here.".to_owned(),
        Habit::Raves => format!("{topic} salad of words that nobody ever wrote in such a row."),
        Habit::Mumbles => format!("{topic} yes."),
        Habit::Repeats => format!("{topic} ").repeat(13),
        Habit::Hurries => format!("{topic} it is so."),
        Habit::Signs => format!("{topic} is what this is about, and here is an answer. Max"),
        Habit::AsksBack => format!("{topic} is what it is about, and what would you like to know?"),
        Habit::Babbles => {
            format!("{topic} is looked up first: <tool_call> search for it and wait.")
        }
    }
}

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
    // The ids of `corrected_talk`'s second reply, as far as they are scored.
    let is_accepted = reply.starts_with("It is a short");
    let surprise = match () {
        () if reply.contains("salad") => 5.0,
        () if is_accepted && habit == Habit::Sulks => 0.5,
        () => 0.0,
    };
    // Of two relevant replies, the shorter one answers better.
    let n_words = reply.split_whitespace().count() as f32;
    let alone = if is_about {
        -1.0 - n_words / 1_000.0
    } else {
        -2.0
    };
    alone - surprise
}

impl Inner {
    pub(super) fn forward(
        &mut self,
        request: &ForwardRequest,
    ) -> Result<ForwardReply, BackendError> {
        let habit = if request.adapter {
            self.run("forward", &request.session_id)?.habit
        } else if self.scoring.contains(&request.session_id) {
            Habit::Fine
        } else {
            self.run("forward", &request.session_id)?;
            Habit::Fine
        };
        self.n_forward += usize::from(!self.adapters.is_empty());
        let positions = request.positions.iter().flatten();
        let scored = request.datums.iter().zip(positions);
        let logprobs = scored.map(|(datum, positions)| {
            let parts = datum.parts();
            let width = parts.target_tokens.width();
            let last = parts.target_tokens.values().chunks(width).next_back();
            let last = last.map(|row| row[0]);
            let all: Vec<u32> = parts
                .model_input_tokens
                .iter()
                .copied()
                .chain(last)
                .collect();
            let (prompt, reply) = all.split_at(positions[0] + 1);
            let likely = expected(&text(prompt), &text(reply), habit);
            // Of several ids at one position, each is less probable than the one before.
            let row = (0..width).map(|k| likely - k as f32);
            row.collect::<Vec<_>>().repeat(positions.len())
        });
        let mut reply = ForwardReply {
            logprobs: logprobs.collect(),
            ..ForwardReply::default()
        };
        if request.top_k > 0 {
            let scored = request
                .datums
                .iter()
                .zip(request.positions.iter().flatten());
            for (datum, positions) in scored {
                let parts = datum.parts();
                let width = parts.target_tokens.width();
                let target = |at: &usize| parts.target_tokens.values()[*at * width];
                let ids = positions.iter().map(|at| {
                    [vec![target(at)], (END..END + request.top_k - 1).collect()].concat()
                });
                reply.topk_ids.push(ids.collect());
                let likely = (0..request.top_k).map(|k| (0.6 / 3_f32.powi(k.cast_signed())).ln());
                let likely: Vec<f32> = likely.collect();
                reply.topk_logprobs.push(vec![likely; positions.len()]);
                let read = text(&parts.model_input_tokens);
                self.looked_at.push((request.adapter, read));
            }
        }
        Ok(reply)
    }

    fn draw(&mut self, prompt: &str, n: u32) -> SampleReply {
        let said = last_message(prompt).to_owned();
        let draw = |k| {
            let (text, ended) = (self.answers)(&said, k);
            let mut tokens = ids(&text);
            tokens.extend(ended.then_some(END));
            SampledSequence {
                logprobs: vec![-0.5; tokens.len()],
                sampling_logprobs: vec![-0.4; tokens.len()],
                tokens,
                stop_reason: if ended { "stop" } else { "length" }.to_owned(),
                text: text.trim().to_owned(),
            }
        };
        let sequences = (0..n as usize).map(draw).collect();
        self.told.push(said);
        SampleReply { sequences }
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
        if request.num_samples > 1 {
            return Ok(self.draw(&prompt, request.num_samples));
        }
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
