//! What the base model of the world says, and how likely it finds what others say.
//!
//! A word is a token. The model answers the owner's last message by its first two words, which make the reply relevant: an
//! id is likely after a prompt that has it.

use metaclaw_trainer_api::{
    BackendError, Datum,
    wire::{
        ForwardReply, ForwardRequest, SampleReply, SampleRequest, SampledSequence, TokenizeRequest,
    },
};
use serde_json::Value;

use super::{
    Failure, lost,
    state::{Inner, refusal},
};

/// Ends each message, and each reply that ends by itself.
pub(crate) const END: u32 = 900;
/// Where a message of each role begins.
const ROLES: [(&str, u32); 5] = [
    ("system", 901),
    ("user", 902),
    ("assistant", 903),
    ("tool", 904),
    ("developer", 905),
];
/// The first word's.
const FIRST_WORD: u32 = 1_000;

// === impl Inner ===

impl Inner {
    /// How calls about text fail now, if they do.
    pub(super) fn text_fails(&self, call: &'static str) -> Result<(), BackendError> {
        match self.text_failure {
            None => Ok(()),
            Some(Failure::Unreachable) => Err(BackendError::NoEndpoint { call }),
            Some(Failure::Refused) => Err(refusal(call, 400, None)),
            Some(_) => Err(lost(call)),
        }
    }

    pub(super) fn tokenize(&mut self, request: &TokenizeRequest) -> Vec<u32> {
        let mut ids = Vec::new();
        for message in request.messages.iter().flatten() {
            let role = message["role"].as_str().unwrap();
            ids.push(ROLES.iter().find(|(name, _)| *name == role).unwrap().1);
            ids.extend(self.ids_of(&text(&message["content"])));
            ids.push(END);
        }
        ids.push(903);
        ids
    }

    /// A text's ids.
    pub(super) fn ids_of(&mut self, text: &str) -> Vec<u32> {
        text.split_whitespace()
            .map(|word| self.word(word))
            .collect()
    }

    fn word(&mut self, word: &str) -> u32 {
        let known = self.words.iter().position(|it| it == word);
        let at = known.unwrap_or_else(|| {
            self.words.push(word.to_owned());
            self.words.len() - 1
        });
        FIRST_WORD + u32::try_from(at).unwrap()
    }

    /// What ids say, without special ones.
    pub(super) fn text_of(&self, ids: &[u32]) -> String {
        let words = ids.iter().filter_map(|id| {
            let at = id.checked_sub(FIRST_WORD)?;
            self.words.get(usize::try_from(at).unwrap())
        });
        words.cloned().collect::<Vec<_>>().join(" ")
    }

    pub(super) fn draw(&mut self, request: &SampleRequest) -> SampleReply {
        let told = &request.tokens;
        let from = told.iter().rposition(|id| *id == 902).unwrap_or(0);
        let said = self.text_of(&told[from..]);
        self.told.push(said.clone());
        let draw = |k: u32| {
            let (text, ended) = (self.answers)(&said, usize::try_from(k).unwrap());
            let mut tokens = self.ids_of(&text);
            tokens.extend(ended.then_some(END));
            SampledSequence {
                logprobs: vec![-0.5; tokens.len()],
                sampling_logprobs: vec![-0.4; tokens.len()],
                tokens,
                stop_reason: if ended { "stop" } else { "length" }.to_owned(),
                text: text.trim().to_owned(),
            }
        };
        let sequences = (0..request.num_samples).map(draw).collect();
        SampleReply { sequences }
    }

    pub(super) fn forward(&self, request: &ForwardRequest) -> Result<ForwardReply, BackendError> {
        let is_known = self.scoring.contains(&request.session_id)
            || self.runs.contains_key(&request.session_id);
        if !is_known {
            return Err(refusal("forward", 404, Some("run_not_found")));
        }
        let positions = request.positions.as_ref().unwrap();
        let mut reply = ForwardReply::default();
        for (datum, positions) in request.datums.iter().zip(positions) {
            let logprobs: Vec<f32> = positions
                .iter()
                .map(|at| logprob(datum, positions, *at))
                .collect();
            if request.top_k > 0 {
                let target = |at: &usize| datum.parts().target_tokens.values()[*at];
                let ids = positions.iter().map(|at| vec![target(at), END]).collect();
                let likely = positions.iter().map(|_| vec![0.6_f32.ln(), 0.2_f32.ln()]);
                reply.topk_logprobs.push(likely.collect());
                reply.topk_ids.push(ids);
            }
            reply.logprobs.push(logprobs);
        }
        Ok(reply)
    }
}

/// Likely is what the prompt has.
fn logprob(datum: &Datum, positions: &[usize], at: usize) -> f32 {
    let parts = datum.parts();
    let prompt = &parts.model_input_tokens[..=positions[0]];
    let target = parts.target_tokens.values()[at];
    if prompt.contains(&target) { -1.0 } else { -3.0 }
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}
