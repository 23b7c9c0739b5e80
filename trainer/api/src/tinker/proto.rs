//! The protobuf messages of package `tinker_public`; the numbers are those of the SDK's descriptor.
//!
//! Arrays are raw little-endian bytes. Maps are written in order of their keys, so that equal messages have equal
//! bytes.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

/// The type of a tensor's values.
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

/// Why a sequence ended; `Stop` is absent in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Stop {
    /// A token or a text ended it.
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

/// Values of a tensor: all, or those that are not 0.
#[derive(Clone, PartialEq, Oneof)]
pub enum Values {
    #[prost(bytes, tag = "1")]
    Dense(Vec<u8>),
    #[prost(message, tag = "2")]
    SparseCsr(SparseCsr),
}

/// Compressed sparse rows; values that are not listed are 0.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SparseCsr {
    /// In the tensor's dtype.
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
pub struct Chunk {
    #[prost(oneof = "Piece", tags = "1, 2, 3")]
    pub piece: Option<Piece>,
}

/// The content of a piece of a prompt.
#[derive(Clone, PartialEq, Oneof)]
pub enum Piece {
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
    /// From left to right.
    #[prost(uint32, tag = "1")]
    pub width: u32,
    /// From top to bottom.
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
pub struct Datum {
    /// The model's input.
    #[prost(message, repeated, tag = "1")]
    pub model_input: Vec<Chunk>,
    /// The loss's inputs, by name.
    #[prost(btree_map = "string, message", tag = "2")]
    pub loss_fn_inputs: BTreeMap<String, Tensor>,
    /// Where `model_input` was sampled.
    #[prost(message, repeated, tag = "3")]
    pub model_input_spans: Vec<ProvenanceSpan>,
    /// Where the targets were sampled.
    #[prost(message, repeated, tag = "4")]
    pub loss_fn_input_spans: Vec<ProvenanceSpan>,
}

/// The origin of a run of tokens.
#[derive(Clone, PartialEq, Message)]
pub struct ProvenanceSpan {
    /// From a prompt or from a sample.
    #[prost(oneof = "Origin", tags = "1, 2")]
    pub origin: Option<Origin>,
}

/// The kind of a run of tokens.
#[derive(Clone, PartialEq, Oneof)]
pub enum Origin {
    /// Part of a prompt.
    #[prost(message, tag = "1")]
    Prompt(Span),
    #[prost(message, tag = "2")]
    Sampled(Span),
}

/// A run of tokens of a sampled sequence, or of the prompt before it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Span {
    /// The sequence, by its name in asample's promise.
    #[prost(string, tag = "1")]
    pub sequence_id: String,
    /// Where the run begins.
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
    /// Such as a loss id.
    #[prost(string, tag = "2")]
    Text(String),
}

/// `POST forward_backward`, and `forward` as `forward_only`.
#[derive(Clone, PartialEq, Message)]
pub struct ForwardBackwardRequest {
    #[prost(string, tag = "1")]
    pub model_id: String,
    /// The number of its call, from 1.
    #[prost(int32, tag = "2")]
    pub seq_id: i32,
    #[prost(message, repeated, tag = "3")]
    pub data: Vec<Datum>,
    #[prost(string, tag = "4")]
    pub loss_fn: String,
    /// The settings that are numbers.
    #[prost(btree_map = "string, double", tag = "5")]
    pub loss_fn_config: BTreeMap<String, f64>,
    #[prost(bool, tag = "6")]
    pub forward_only: bool,
    /// All settings; has priority over `loss_fn_config`.
    #[prost(btree_map = "string, message", tag = "7")]
    pub loss_fn_config_v2: BTreeMap<String, LossConfigValue>,
}

/// One tensor for each datum, one after the other.
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

/// The results of several datums whose tensors have one trailing shape.
#[derive(Clone, PartialEq, Message)]
pub struct ArrayRecord {
    #[prost(string, tag = "1")]
    pub type_tag: String,
    /// By name, for example `logprobs`.
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
    /// In the order of the datums.
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
pub struct SampledSequence {
    #[prost(enumeration = "Stop", tag = "1")]
    pub stop_reason: i32,
    /// int32.
    #[prost(bytes = "vec", tag = "2")]
    pub tokens: Vec<u8>,
    /// float32, one per token.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub logprobs: Option<Vec<u8>>,
    /// One row per token.
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
    /// As many as were asked for.
    #[prost(message, repeated, tag = "1")]
    pub sequences: Vec<SampledSequence>,
    /// float32, one per token of the prompt; NaN where there is none.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub prompt_logprobs: Option<Vec<u8>>,
    /// One row per token of the prompt; id 0 at -99999 where there is none.
    #[prost(message, optional, tag = "3")]
    pub topk_prompt_logprobs: Option<TopkLogprobs>,
    /// Tokens of the prompt that were not computed again.
    #[prost(int32, tag = "4")]
    pub prompt_cache_hit_tokens: i32,
    /// Of ids that the request named.
    #[prost(message, optional, tag = "5")]
    pub target_prompt_logprobs: Option<Tensor>,
    /// Drawn at the prompt's positions.
    #[prost(message, optional, tag = "6")]
    pub prompt_alt_tokens: Option<PromptAltTokens>,
}
