//! The protobuf messages of package `tinker_public`; the numbers are those of the SDK's descriptor.
//!
//! Arrays are raw little-endian bytes. Maps are written in order of their keys, so that equal messages have equal
//! bytes.

use std::collections::BTreeMap;

use prost::{DecodeError, Enumeration, Message, Oneof, decode_length_delimiter as varint};

/// The type of a tensor's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum DType {
    Unspecified = 0,
    /// 4 bytes.
    Float32 = 1,
    /// 8 bytes.
    Int64 = 2,
    /// 4 bytes.
    Int32 = 3,
    /// 2 bytes, the upper half of a float32.
    Bfloat16 = 4,
}

/// Why a sequence ended; `SequenceEnd` is absent on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SequenceEnd {
    /// The sequence ended at a stop token or stop text.
    Stop = 0,
    /// It reached `max_tokens`.
    Length = 1,
}

/// A tensor of a datum.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    #[prost(oneof = "Values", tags = "1, 2")]
    pub values: Option<Values>,
    #[prost(enumeration = "DType", tag = "3")]
    pub dtype: i32,
    /// `[N]` or `[N, K]`.
    #[prost(int64, repeated, tag = "4")]
    pub shape: Vec<i64>,
}

/// The values of a tensor, dense or sparse.
#[derive(Clone, PartialEq, Oneof)]
pub enum Values {
    #[prost(bytes, tag = "1")]
    Dense(Vec<u8>),
    #[prost(message, tag = "2")]
    SparseCsr(SparseCsr),
}

/// Compressed sparse rows. Values that are not listed are 0.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SparseCsr {
    /// The values, in the tensor's dtype.
    #[prost(bytes = "vec", tag = "1")]
    pub values: Vec<u8>,
    /// int64, one more than there are rows.
    #[prost(bytes = "vec", tag = "2")]
    pub crow_indices: Vec<u8>,
    /// int64, one per value.
    #[prost(bytes = "vec", tag = "3")]
    pub col_indices: Vec<u8>,
}

/// A piece of a prompt.
#[derive(Clone, PartialEq, Message)]
pub struct ProtoChunk {
    #[prost(oneof = "ChunkPiece", tags = "1, 2, 3")]
    pub piece: Option<ChunkPiece>,
}

/// The content of a prompt chunk.
#[derive(Clone, PartialEq, Oneof)]
pub enum ChunkPiece {
    #[prost(message, tag = "1")]
    EncodedText(EncodedTextChunk),
    #[prost(message, tag = "2")]
    Image(ImageChunk),
    #[prost(message, tag = "3")]
    Dmel(DmelChunk),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct EncodedTextChunk {
    /// int32.
    #[prost(bytes = "vec", tag = "1")]
    pub tokens: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ImageChunk {
    #[prost(bytes = "vec", tag = "1")]
    pub data: Vec<u8>,
    /// `png` or `jpeg`.
    #[prost(string, tag = "2")]
    pub format: String,
    /// The number of tokens that the caller assumes for it.
    #[prost(int32, optional, tag = "3")]
    pub expected_tokens: Option<i32>,
    /// Size to scale to.
    #[prost(message, optional, tag = "4")]
    pub override_dimensions: Option<ImageDimensions>,
}

/// Size of a picture in pixels.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ImageDimensions {
    /// The horizontal size.
    #[prost(uint32, tag = "1")]
    pub width: u32,
    /// The vertical size.
    #[prost(uint32, tag = "2")]
    pub height: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DmelChunk {
    /// The SDK's own container.
    #[prost(bytes = "vec", tag = "1")]
    pub dmel: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProtoDatum {
    /// The tokens that the model reads.
    #[prost(message, repeated, tag = "1")]
    pub model_input: Vec<ProtoChunk>,
    /// The tensors that the loss reads, by name.
    #[prost(btree_map = "string, message", tag = "2")]
    pub loss_fn_inputs: BTreeMap<String, Tensor>,
    /// The source of each part of `model_input`.
    #[prost(message, repeated, tag = "3")]
    pub model_input_spans: Vec<ProvenanceSpan>,
    /// The source of each part of the targets.
    #[prost(message, repeated, tag = "4")]
    pub loss_fn_input_spans: Vec<ProvenanceSpan>,
}

/// The source of a run of tokens.
#[derive(Clone, PartialEq, Message)]
pub struct ProvenanceSpan {
    /// A prompt or a sample.
    #[prost(oneof = "Origin", tags = "1, 2")]
    pub origin: Option<Origin>,
}

/// The kind of a token run's source.
#[derive(Clone, PartialEq, Oneof)]
pub enum Origin {
    /// Part of a prompt.
    #[prost(message, tag = "1")]
    Prompt(TokenSpan),
    #[prost(message, tag = "2")]
    Sampled(TokenSpan),
}

/// A run of tokens of a sampled sequence, or of the prompt before it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TokenSpan {
    /// The sequence, as asample's promise named it.
    #[prost(string, tag = "1")]
    pub sequence_id: String,
    /// The position where the run begins.
    #[prost(int64, tag = "2")]
    pub offset: i64,
    #[prost(int64, tag = "3")]
    pub length: i64,
}

/// A setting of a loss.
#[derive(Clone, PartialEq, Message)]
pub struct LossConfigValue {
    /// A number or a text.
    #[prost(oneof = "Setting", tags = "1, 2")]
    pub value: Option<Setting>,
}

/// A setting of a loss.
#[derive(Clone, PartialEq, Oneof)]
pub enum Setting {
    #[prost(double, tag = "1")]
    Number(f64),
    /// A text value, such as a loss id.
    #[prost(string, tag = "2")]
    Text(String),
}

/// `POST forward_backward`, and `forward` as `forward_only`.
#[derive(Clone, PartialEq, Message)]
pub struct ProtoForwardBackward {
    #[prost(string, tag = "1")]
    pub model_id: String,
    /// The number of the call, from 1.
    #[prost(int32, tag = "2")]
    pub seq_id: i32,
    #[prost(message, repeated, tag = "3")]
    pub data: Vec<ProtoDatum>,
    #[prost(string, tag = "4")]
    pub loss_fn: String,
    /// The loss's numeric settings.
    #[prost(btree_map = "string, double", tag = "5")]
    pub loss_fn_config: BTreeMap<String, f64>,
    #[prost(bool, tag = "6")]
    pub forward_only: bool,
    /// All settings of the loss. They take precedence over `loss_fn_config`.
    #[prost(btree_map = "string, message", tag = "7")]
    pub loss_fn_config_v2: BTreeMap<String, LossConfigValue>,
}

/// The most bytes of memory that a [`ProtoForwardBackward`] takes once it is decoded: an empty datum has 2 bytes in the
/// body and 96 in memory.
///
/// # Errors
/// Returns why the bytes are no protobuf.
pub fn decoded_size(bytes: &[u8]) -> Result<usize, DecodeError> {
    size_within(bytes, &[])
}

/// The same for the message at this path of fields.
fn size_within(mut rest: &[u8], path: &[usize]) -> Result<usize, DecodeError> {
    let mut size = 0;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let n_bytes = match key & 7 {
            0 => varint(&mut rest).map(|_| 0)?,
            1 => 8,
            5 => 4,
            // A wrong type, or the end: decoding says what is wrong.
            _ => varint(&mut rest)?,
        };
        let Some((value, after)) = rest.split_at_checked(n_bytes) else {
            return Ok(size);
        };
        rest = after;
        let path = &[path, &[key >> 3]].concat();
        size += size_of::<ProtoDatum>();
        size += match path.as_slice() {
            // Settings; datums with their chunks, inputs and spans; tensors, sparse ones too.
            [3 | 5 | 7] | [3, 1..=4] | [3, 2, 2] | [3, 2, 2, 2] => size_within(value, path)?,
            // The numbers of a shape have 1 byte in the body and 8 in memory.
            [3, 2, 2, 4] => value.len() * 8,
            _ => value.len(),
        };
    }
    Ok(size)
}

/// The tensors of all datums, one after the other.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BatchedTensor {
    #[prost(bytes = "vec", tag = "1")]
    pub data: Vec<u8>,
    /// int64: the byte in `data` where each datum begins; one more than there are datums.
    #[prost(bytes = "vec", tag = "2")]
    pub offsets: Vec<u8>,
    /// The type of the values.
    #[prost(enumeration = "DType", tag = "3")]
    pub dtype: i32,
    /// The shape after the first dimension.
    #[prost(int64, repeated, tag = "4")]
    pub trailing_shape: Vec<i64>,
}

/// The outputs of several datums whose tensors have one trailing shape.
#[derive(Clone, PartialEq, Message)]
pub struct ArrayRecord {
    #[prost(string, tag = "1")]
    pub type_tag: String,
    /// The tensors by name, such as `logprobs`.
    #[prost(btree_map = "string, message", tag = "2")]
    pub fields: BTreeMap<String, BatchedTensor>,
    #[prost(int64, tag = "3")]
    pub num_datums: i64,
}

/// The result of forward_backward.
#[derive(Clone, PartialEq, Message)]
pub struct ForwardBackwardOutput {
    #[prost(string, tag = "1")]
    pub loss_fn_output_type: String,
    /// The records, in the order of the datums.
    #[prost(message, repeated, tag = "2")]
    pub loss_fn_outputs: Vec<ArrayRecord>,
    /// Each key has exactly one colon, before how parts of a batch are combined: `loss:sum`.
    #[prost(btree_map = "string, double", tag = "3")]
    pub metrics: BTreeMap<String, f64>,
}

/// The most probable ids at each position.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TopkLogprobs {
    /// int32, `[length, k]`.
    #[prost(bytes = "vec", tag = "1")]
    pub token_ids: Vec<u8>,
    /// float32, `[length, k]`.
    #[prost(bytes = "vec", tag = "2")]
    pub logprobs: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub k: u32,
    #[prost(uint32, tag = "4")]
    pub length: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProtoSequence {
    #[prost(enumeration = "SequenceEnd", tag = "1")]
    pub stop_reason: i32,
    /// int32.
    #[prost(bytes = "vec", tag = "2")]
    pub tokens: Vec<u8>,
    /// float32, one per token.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub logprobs: Option<Vec<u8>>,
    /// One row for each token.
    #[prost(message, optional, tag = "4")]
    pub topk_sampled_logprobs: Option<TopkLogprobs>,
}

/// Ids drawn at each position of a prompt.
#[derive(Clone, PartialEq, Message)]
pub struct PromptAltTokens {
    /// `[N - 1, k]`.
    #[prost(message, optional, tag = "1")]
    pub tokens: Option<Tensor>,
    /// `[N - 1, k]`.
    #[prost(message, optional, tag = "2")]
    pub logprobs: Option<Tensor>,
}

/// The result of asample.
#[derive(Clone, PartialEq, Message)]
pub struct SampleResponse {
    /// The sequences, as many as the request asks for.
    #[prost(message, repeated, tag = "1")]
    pub sequences: Vec<ProtoSequence>,
    /// The log-probability of each prompt token, float32. NaN for a token that has none.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub prompt_logprobs: Option<Vec<u8>>,
    /// One row for each prompt token. A token that has none gets id 0 at -99999.
    #[prost(message, optional, tag = "3")]
    pub topk_prompt_logprobs: Option<TopkLogprobs>,
    /// Tokens of the prompt that were not computed again.
    #[prost(int32, tag = "4")]
    pub prompt_cache_hit_tokens: i32,
    /// The log-probabilities of the ids that the request names.
    #[prost(message, optional, tag = "5")]
    pub target_prompt_logprobs: Option<Tensor>,
    /// Drawn at the prompt's positions.
    #[prost(message, optional, tag = "6")]
    pub prompt_alt_tokens: Option<PromptAltTokens>,
}
