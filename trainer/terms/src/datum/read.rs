//! The two wire forms of a datum.
//!
//! Form 1 has plain lists next to `model_input_tokens`. Form 2 has `loss_fn_inputs`: named tensors of
//! `{dtype, shape, data}`, where `data` is base64 of little-endian values (or, as older SDKs of Tinker send it, a
//! list). Each field may have either form.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{Datum, DatumError, DatumParts};
use crate::{
    Tensor2,
    element::{self, NumberElement},
};

const TARGETS: &str = "target_tokens";
const WEIGHTS: &str = "weights";
const LOGPROBS: &str = "logprobs";
const ADVANTAGES: &str = "advantages";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DatumWire {
    model_input_tokens: Vec<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_tokens: Option<Vec<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<Vec<f32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<f32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    advantages: Option<Vec<f32>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    loss_fn_inputs: BTreeMap<String, TensorWire>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorWire {
    dtype: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shape: Option<Vec<usize>>,
    data: RawTensor,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum RawTensor {
    Base64(String),
    List(Vec<f64>),
}

// === impl Datum ===

impl Serialize for Datum {
    /// Vectors are written as plain lists, which every server of the fork reads; a datum with an `[N, K]` tensor is
    /// written in the second form, the only one with a shape.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        DatumWire::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Datum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = DatumWire::deserialize(deserializer)?;
        wire.check().map_err(D::Error::custom)
    }
}

// === impl DatumWire ===

impl DatumWire {
    fn check(self) -> Result<Datum, DatumError> {
        let mut inputs = self.loss_fn_inputs;
        let targets = field(TARGETS, self.target_tokens, &mut inputs)?
            .ok_or(DatumError::Missing { field: TARGETS })?;
        let parts = DatumParts {
            model_input_tokens: ids("model_input_tokens", self.model_input_tokens)?,
            target_tokens: target_ids(targets)?,
            weights: field(WEIGHTS, self.weights, &mut inputs)?,
            logprobs: vector(LOGPROBS, field(LOGPROBS, self.logprobs, &mut inputs)?)?,
            advantages: vector(ADVANTAGES, field(ADVANTAGES, self.advantages, &mut inputs)?)?,
        };
        if let Some((field, _)) = inputs.pop_first() {
            let why = format!("not known: {TARGETS}, {WEIGHTS}, {LOGPROBS} or {ADVANTAGES}");
            return Err(DatumError::Tensor { field, why });
        }
        Datum::new(parts)
    }
}

impl From<&Datum> for DatumWire {
    fn from(datum: &Datum) -> Self {
        let parts = datum.parts();
        let target_ids = parts.target_tokens.values().iter();
        let targets: Vec<i64> = target_ids.map(|id| i64::from(*id)).collect();
        let mut wire = Self {
            model_input_tokens: parts
                .model_input_tokens
                .iter()
                .map(|id| i64::from(*id))
                .collect(),
            target_tokens: None,
            weights: None,
            logprobs: parts.logprobs.clone(),
            advantages: parts.advantages.clone(),
            loss_fn_inputs: BTreeMap::new(),
        };
        let given = parts.weights.as_ref();
        let weights = given.map(|weights| weights.values().to_vec());
        if parts.target_tokens.is_matrix() {
            let shape = parts.target_tokens.shape();
            let mut put = |name: &str, tensor| wire.loss_fn_inputs.insert(name.to_owned(), tensor);
            put(TARGETS, TensorWire::new(&targets, &shape));
            if let Some(weights) = weights {
                put(WEIGHTS, TensorWire::new(&weights, &shape));
            }
        } else {
            wire.target_tokens = Some(targets);
            wire.weights = weights;
        }
        wire
    }
}

fn field<T: NumberElement>(
    name: &'static str,
    list: Option<Vec<T>>,
    inputs: &mut BTreeMap<String, TensorWire>,
) -> Result<Option<Tensor2<T>>, DatumError> {
    match (list, inputs.remove(name)) {
        (Some(_), Some(_)) => Err(DatumError::Twice { field: name }),
        (Some(list), None) => Ok(Some(Tensor2::vector(list))),
        (None, Some(tensor)) => {
            let read = tensor.read::<T>().map(Some);
            read.map_err(|why| DatumError::Tensor {
                field: name.to_owned(),
                why,
            })
        }
        (None, None) => Ok(None),
    }
}

fn vector(
    name: &'static str,
    tensor: Option<Tensor2<f32>>,
) -> Result<Option<Vec<f32>>, DatumError> {
    match tensor {
        Some(tensor) if tensor.is_matrix() => Err(DatumError::Shape {
            field: name,
            given: tensor.shape(),
            expected: vec![tensor.rows()],
        }),
        tensor => Ok(tensor.map(Tensor2::into_values)),
    }
}

fn ids(field: &'static str, values: Vec<i64>) -> Result<Vec<u32>, DatumError> {
    let checked = values.into_iter().enumerate().map(|(at, value)| {
        let max = u32::MAX;
        u32::try_from(value).map_err(|_| DatumError::Id {
            field,
            at,
            value,
            max,
        })
    });
    checked.collect()
}

fn target_ids(targets: Tensor2<i64>) -> Result<Tensor2<u32>, DatumError> {
    let shape = targets.shape();
    Tensor2::shaped(ids(TARGETS, targets.into_values())?, &shape).map_err(|error| {
        DatumError::Tensor {
            field: TARGETS.to_owned(),
            why: error.to_string(),
        }
    })
}

// === impl TensorWire ===

impl TensorWire {
    fn new<T: NumberElement>(values: &[T], shape: &[usize]) -> Self {
        let bytes = element::bytes(values.iter().copied());
        Self {
            dtype: T::NAME.to_owned(),
            shape: Some(shape.to_vec()),
            data: RawTensor::Base64(BASE64_STANDARD.encode(bytes)),
        }
    }

    fn read<T: NumberElement>(self) -> Result<Tensor2<T>, String> {
        if self.dtype != T::NAME {
            let (found, needed) = (&self.dtype, T::NAME);
            return Err(format!("dtype is {found:?}: {needed:?} is needed"));
        }
        let values: Vec<T> = match self.data {
            RawTensor::Base64(text) => from_base64(&text)?,
            RawTensor::List(list) => from_list(&list)?,
        };
        match self.shape {
            None => Ok(Tensor2::vector(values)),
            Some(shape) => Tensor2::shaped(values, &shape).map_err(|error| error.to_string()),
        }
    }
}

fn from_base64<T: NumberElement>(text: &str) -> Result<Vec<T>, String> {
    let decoded = BASE64_STANDARD.decode(text);
    let bytes = decoded.map_err(|error| format!("data is no base64: {error}"))?;
    element::values(&bytes).map_err(|why| format!("data has {why}"))
}

fn from_list<T: NumberElement>(list: &[f64]) -> Result<Vec<T>, String> {
    let read = list.iter().enumerate().map(|(at, number)| {
        T::from_number(*number).ok_or_else(|| format!("data[{at}] is {number}: no {}", T::NAME))
    });
    read.collect()
}
