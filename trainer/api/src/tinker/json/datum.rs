//! Sequences and the results of forward and forward_backward, as SDK 0.24 and older write them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::tinker::ModelId;

/// `POST forward_backward` and `forward` of SDK 0.24 and older.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardBackward {
    /// The input; `forward_input` for forward.
    #[serde(alias = "forward_input")]
    pub forward_backward_input: ForwardBackwardInput,
    pub model_id: ModelId,
    /// The number of the call, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_id: Option<u32>,
}

/// Sequences and their loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForwardBackwardInput {
    pub data: Vec<JsonDatum>,
    pub loss_fn: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_fn_config: Option<BTreeMap<String, f64>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JsonDatum {
    /// The tokens that the model reads.
    pub model_input: ModelInput,
    /// The tensors that the loss reads, by name.
    pub loss_fn_inputs: BTreeMap<String, TensorData>,
}

/// A prompt, in pieces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInput {
    /// The chunks in order.
    pub chunks: Vec<PromptChunk>,
}

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptChunk {
    EncodedText {
        tokens: Vec<u32>,
    },
    Image(Map<String, Value>),
    /// A picture by its address.
    ImageAssetPointer(Map<String, Value>),
    Dmel(Map<String, Value>),
}

/// A tensor as lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorData {
    /// The values, row-major. A sparse tensor lists only the values that are not 0.
    pub data: Vec<Number>,
    /// `float32` or `int64`.
    pub dtype: String,
    /// `[N]` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<usize>>,
    /// The row offsets of a sparse tensor, as in the protobuf form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse_crow_indices: Option<Vec<i64>>,
    /// The column indices of a sparse tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse_col_indices: Option<Vec<i64>>,
}

/// The result of forward and forward_backward for SDK 0.24 and older.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JsonTrainOutput {
    pub loss_fn_output_type: String,
    /// The outputs of each datum, by name.
    pub loss_fn_outputs: Vec<BTreeMap<String, TensorData>>,
    /// Metrics, as in the protobuf form.
    pub metrics: BTreeMap<String, f64>,
}
