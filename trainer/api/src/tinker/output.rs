//! The result of forward and forward_backward, in both dialects.

use std::collections::BTreeMap;

use super::{
    json::{JsonTrainOutput, TensorData},
    proto::{ArrayRecord, BatchedTensor, DType, ForwardBackwardOutput},
    tensor::{self, MAX_ELEMENTS, Room, WireError, WireTensor as _},
};
use crate::Tensor2;

/// The name of the result's shape. Clients show it and do not read it.
const KIND: &str = "TorchLossReturn";
const LOGPROBS: &str = "logprobs";
/// The metric of the loss, by the name that every SDK reads. `:sum` says how the chunks of a batch are combined.
const LOSS: &str = "loss:sum";

/// The result of forward or forward_backward.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainOutput {
    /// Log-probabilities of the targets, one tensor for each datum, in the shape of its targets.
    pub logprobs: Vec<Tensor2<f32>>,
    /// Metrics by names with one colon, such as `loss:sum`.
    pub metrics: BTreeMap<String, f64>,
}

// === impl TrainOutput ===

impl TrainOutput {
    /// A result with this loss, a sum over tokens and datums.
    pub fn new(logprobs: Vec<Tensor2<f32>>, loss: f64) -> Self {
        let metrics = BTreeMap::from([(LOSS.to_owned(), loss)]);
        Self { logprobs, metrics }
    }

    /// The loss, if the server reports it as a sum.
    pub fn loss(&self) -> Option<f64> {
        self.metrics.get(LOSS).copied()
    }

    /// Converts to protobuf. Consecutive datums of one width share a record.
    pub fn to_proto(&self) -> ForwardBackwardOutput {
        let trailing = |tensor: &Tensor2<f32>| tensor.shape().get(1).copied();
        let records = self.logprobs.chunk_by(|a, b| trailing(a) == trailing(b));
        ForwardBackwardOutput {
            loss_fn_output_type: KIND.to_owned(),
            loss_fn_outputs: records.map(record).collect(),
            metrics: self.metrics.clone(),
        }
    }

    /// Converts from protobuf.
    ///
    /// # Errors
    /// Returns [`WireError`] if bytes, offsets and shapes do not fit together.
    pub fn from_proto(output: ForwardBackwardOutput) -> Result<Self, WireError> {
        let mut logprobs = Vec::new();
        for (at, mut record) in output.loss_fn_outputs.into_iter().enumerate() {
            let field = format!("loss_fn_outputs[{at}].{LOGPROBS}");
            let batch = record.fields.remove(LOGPROBS);
            let read = batch.ok_or_else(|| "it is missing".to_owned());
            let read = read.and_then(|batch| split(&batch));
            logprobs.extend(read.map_err(|why| WireError { field, why })?);
        }
        let metrics = output.metrics;
        Ok(Self { logprobs, metrics })
    }

    pub fn to_json(&self) -> JsonTrainOutput {
        let datum = |tensor: &Tensor2<f32>| {
            let data = TensorData::of(tensor.values(), &tensor.shape());
            BTreeMap::from([(LOGPROBS.to_owned(), data)])
        };
        JsonTrainOutput {
            loss_fn_output_type: KIND.to_owned(),
            loss_fn_outputs: self.logprobs.iter().map(datum).collect(),
            metrics: self.metrics.clone(),
        }
    }

    /// Converts from JSON.
    ///
    /// # Errors
    /// Returns [`WireError`] if a datum has no readable log-probabilities.
    pub fn from_json(output: JsonTrainOutput) -> Result<Self, WireError> {
        let mut room = Room(MAX_ELEMENTS);
        let read = output.loss_fn_outputs.into_iter().enumerate();
        let read = read.map(|(at, mut datum)| {
            let tensor = datum.remove(LOGPROBS);
            let tensor = tensor.ok_or_else(|| "it is missing".to_owned());
            let tensor = tensor.and_then(|tensor| tensor.read(&mut room));
            tensor.map_err(|why| WireError {
                field: format!("loss_fn_outputs[{at}].{LOGPROBS}"),
                why,
            })
        });
        Ok(Self {
            logprobs: read.collect::<Result<_, _>>()?,
            metrics: output.metrics,
        })
    }
}

fn record(tensors: &[Tensor2<f32>]) -> ArrayRecord {
    let mut data = Vec::new();
    let mut offsets = vec![0_i64];
    for tensor in tensors {
        data.extend(tensor::bytes(tensor.values().iter().copied()));
        offsets.push(i64::try_from(data.len()).unwrap_or(i64::MAX));
    }
    let first = tensors.first().filter(|tensor| tensor.is_matrix());
    let width = first.map(|tensor| i64::try_from(tensor.width()).unwrap_or(i64::MAX));
    let batch = BatchedTensor {
        data,
        offsets: tensor::bytes(offsets),
        dtype: DType::Float32.into(),
        trailing_shape: width.into_iter().collect(),
    };
    ArrayRecord {
        type_tag: KIND.to_owned(),
        fields: BTreeMap::from([(LOGPROBS.to_owned(), batch)]),
        num_datums: i64::try_from(tensors.len()).unwrap_or(i64::MAX),
    }
}

fn split(batch: &BatchedTensor) -> Result<Vec<Tensor2<f32>>, String> {
    if batch.dtype() != DType::Float32 {
        return Err(format!("dtype is {:?}: float32 is needed", batch.dtype()));
    }
    let offsets: Vec<i64> = tensor::values(&batch.offsets)?;
    let index = |value: i64| usize::try_from(value).unwrap_or(usize::MAX);
    let datum = |ends: &[i64]| {
        let bytes = batch.data.get(index(ends[0])..index(ends[1]));
        let bytes = bytes.ok_or_else(|| format!("offsets {ends:?} are not within its data"))?;
        let values: Vec<f32> = tensor::values(bytes)?;
        let shape = match *batch.trailing_shape {
            [] => vec![values.len()],
            [width] if width > 0 => vec![values.len() / index(width), index(width)],
            _ => {
                let shape = &batch.trailing_shape;
                return Err(format!(
                    "trailing_shape {shape:?} is not allowed: [] or [K]"
                ));
            }
        };
        Tensor2::shaped(values, &shape).map_err(|error| error.to_string())
    };
    offsets.windows(2).map(datum).collect()
}
