//! The result of asample, in both dialects.

use super::{
    json::{JsonSample, JsonSequence, StopReason, TopK},
    proto::{ProtoSequence, SampleResponse, SequenceEnd, TopkLogprobs},
    tensor::{self, WireError},
};

/// The number that stands for a missing log-probability. The SDK knows it.
const NONE: f32 = -99_999.0;

/// The result of asample.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SampleOutput {
    /// The sequences, as many as the request asks for.
    pub sequences: Vec<Sequence>,
    /// One entry for each prompt token, if the request asks for them; `None` for the first token.
    pub prompt_logprobs: Option<Vec<Option<f32>>>,
    /// The likeliest ids of each prompt token, in the same form.
    pub topk_prompt_logprobs: Option<Vec<Option<TopK>>>,
    /// Tokens of the prompt that were not computed again.
    pub n_cached: u32,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sequence {
    pub stop_reason: StopReason,
    /// The sampled ids, including the ending token.
    pub tokens: Vec<u32>,
    /// The log-probability of each id.
    pub logprobs: Option<Vec<f32>>,
    /// The likeliest ids at each token.
    pub topk_logprobs: Option<Vec<Option<TopK>>>,
}

// === impl SampleOutput ===

impl SampleOutput {
    pub fn to_proto(&self) -> SampleResponse {
        let known = |logprob: &Option<f32>| logprob.unwrap_or(f32::NAN);
        let prompt = self.prompt_logprobs.as_ref();
        SampleResponse {
            sequences: self.sequences.iter().map(Sequence::to_proto).collect(),
            prompt_logprobs: prompt.map(|all| tensor::bytes(all.iter().map(known))),
            topk_prompt_logprobs: self.topk_prompt_logprobs.as_deref().map(top_k_bytes),
            prompt_cache_hit_tokens: i32::try_from(self.n_cached).unwrap_or(i32::MAX),
            target_prompt_logprobs: None,
            prompt_alt_tokens: None,
        }
    }

    /// Converts from protobuf.
    ///
    /// # Errors
    /// [`WireError`] where bytes do not make whole numbers, or a table does not have its size.
    pub fn from_proto(response: SampleResponse) -> Result<Self, WireError> {
        let sequences = response.sequences.iter().enumerate();
        let read = sequences.map(|(at, sequence)| {
            Sequence::from_proto(sequence).map_err(|why| WireError {
                field: format!("sequences[{at}]"),
                why,
            })
        });
        let sequences = read.collect::<Result<_, _>>()?;
        let known = |logprob: f32| (!logprob.is_nan()).then_some(logprob);
        let prompt = response.prompt_logprobs.filter(|bytes| !bytes.is_empty());
        let prompt = prompt.map(|bytes| tensor::values::<f32>(&bytes));
        let prompt = prompt
            .transpose()
            .map_err(|why| field("prompt_logprobs", why))?;
        let topk = response.topk_prompt_logprobs.as_ref().map(top_k_rows);
        let topk = topk.transpose();
        Ok(Self {
            sequences,
            prompt_logprobs: prompt.map(|all| all.into_iter().map(known).collect()),
            topk_prompt_logprobs: topk.map_err(|why| field("topk_prompt_logprobs", why))?,
            n_cached: u32::try_from(response.prompt_cache_hit_tokens).unwrap_or(0),
        })
    }

    /// Converts to JSON. `ids` are those of asample's promise.
    pub fn to_json(&self, ids: &[String]) -> JsonSample {
        let sequences = self.sequences.iter().enumerate();
        let sequences = sequences.map(|(at, sequence)| JsonSequence {
            stop_reason: sequence.stop_reason,
            tokens: sequence.tokens.clone(),
            logprobs: sequence.logprobs.clone(),
            topk_logprobs: sequence.topk_logprobs.clone(),
            sequence_id: ids.get(at).cloned(),
        });
        JsonSample {
            sequences: sequences.collect(),
            prompt_logprobs: self.prompt_logprobs.clone(),
            topk_prompt_logprobs: self.topk_prompt_logprobs.clone(),
            prompt_cache_hit_tokens: self.n_cached,
        }
    }

    pub fn from_json(sample: JsonSample) -> Self {
        let sequence = |it: JsonSequence| Sequence {
            stop_reason: it.stop_reason,
            tokens: it.tokens,
            logprobs: it.logprobs,
            topk_logprobs: it.topk_logprobs,
        };
        Self {
            sequences: sample.sequences.into_iter().map(sequence).collect(),
            prompt_logprobs: sample.prompt_logprobs,
            topk_prompt_logprobs: sample.topk_prompt_logprobs,
            n_cached: sample.prompt_cache_hit_tokens,
        }
    }
}

fn field(name: &str, why: String) -> WireError {
    let field = name.to_owned();
    WireError { field, why }
}

// === impl Sequence ===

impl Sequence {
    fn to_proto(&self) -> ProtoSequence {
        let stop = match self.stop_reason {
            StopReason::Stop => SequenceEnd::Stop,
            StopReason::Length => SequenceEnd::Length,
        };
        let logprobs = self.logprobs.as_ref();
        ProtoSequence {
            stop_reason: stop.into(),
            tokens: tensor::id_bytes(&self.tokens),
            logprobs: logprobs.map(|all| tensor::bytes(all.iter().copied())),
            topk_sampled_logprobs: self.topk_logprobs.as_deref().map(top_k_bytes),
        }
    }

    fn from_proto(sequence: &ProtoSequence) -> Result<Self, String> {
        let stop_reason = match SequenceEnd::try_from(sequence.stop_reason) {
            Ok(SequenceEnd::Stop) => StopReason::Stop,
            Ok(SequenceEnd::Length) => StopReason::Length,
            Err(_) => return Err(format!("stop_reason {} is not known", sequence.stop_reason)),
        };
        let tokens = tensor::ids(&sequence.tokens)?;
        let logprobs = sequence.logprobs.as_deref();
        let given = logprobs.filter(|bytes| !bytes.is_empty());
        let logprobs = given.map(tensor::values::<f32>).transpose()?;
        let topk = sequence.topk_sampled_logprobs.as_ref();
        if logprobs
            .as_ref()
            .is_some_and(|all| all.len() != tokens.len())
        {
            let n = tokens.len();
            return Err(format!("not as many logprobs as its {n} tokens"));
        }
        Ok(Self {
            stop_reason,
            tokens,
            logprobs,
            topk_logprobs: topk.map(top_k_rows).transpose()?,
        })
    }
}

/// Rows of one width: the longest; what a row lacks, and rows that there are none of, hold id 0 at [`NONE`].
fn top_k_bytes(rows: &[Option<TopK>]) -> TopkLogprobs {
    let k = rows.iter().flatten().map(Vec::len).max().unwrap_or(0);
    let cells = || {
        let row = |row: &Option<TopK>| {
            let row = row.clone().unwrap_or_default().into_iter();
            row.chain(std::iter::repeat((0, NONE))).take(k)
        };
        rows.iter().flat_map(row)
    };
    let ids: Vec<u32> = cells().map(|(id, _)| id).collect();
    TopkLogprobs {
        token_ids: tensor::id_bytes(&ids),
        logprobs: tensor::bytes(cells().map(|(_, logprob)| logprob)),
        k: u32::try_from(k).unwrap_or(u32::MAX),
        length: u32::try_from(rows.len()).unwrap_or(u32::MAX),
    }
}

fn top_k_rows(table: &TopkLogprobs) -> Result<Vec<Option<TopK>>, String> {
    let ids = tensor::ids(&table.token_ids)?;
    let logprobs: Vec<f32> = tensor::values(&table.logprobs)?;
    let (k, length) = (table.k as usize, table.length as usize);
    if k == 0 {
        return Ok(Vec::new());
    }
    if k.checked_mul(length) != Some(ids.len()) || ids.len() != logprobs.len() {
        let (n_ids, n_logprobs) = (ids.len(), logprobs.len());
        return Err(format!(
            "a table of {length} rows of {k} has {n_ids} ids and {n_logprobs} logprobs"
        ));
    }
    let rows = ids.chunks_exact(k).zip(logprobs.chunks_exact(k));
    let row = |(ids, logprobs): (&[u32], &[f32])| {
        let cells = ids.iter().copied().zip(logprobs.iter().copied());
        let known: TopK = cells.filter(|(_, logprob)| *logprob > NONE).collect();
        (!known.is_empty()).then_some(known)
    };
    Ok(rows.map(row).collect())
}
