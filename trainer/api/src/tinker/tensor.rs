//! Tensors between wire and memory: raw little-endian bytes or lists, dense or compressed sparse rows.

use metaclaw_trainer_terms::element::NumberElement;
pub(super) use metaclaw_trainer_terms::element::{bytes, values};
use serde_json::Number;

use super::{
    json::TensorData,
    proto::{DType, Tensor, Values},
};
use crate::Tensor2;

/// Numbers that the tensors of one request may hold, all datums together: 64 sequences of 8,192 tokens with 20 targets
/// and weights each.
pub const MAX_ELEMENTS: usize = 32 << 20;

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct WireError {
    /// The wrong field, such as `data[3].loss_fn_inputs.weights`.
    pub field: String,
    /// The given value, and what is allowed.
    pub why: String,
}

/// A number of a tensor.
pub(super) trait TensorElement: NumberElement + Default {
    const DTYPE: DType;
    fn of_number(number: &Number) -> Option<Self>;
    fn number(self) -> Option<Number>;
}

impl TensorElement for i64 {
    const DTYPE: DType = DType::Int64;

    /// 2 and 2.0 are one number to the SDK.
    fn of_number(number: &Number) -> Option<Self> {
        let as_float = || Self::from_number(number.as_f64()?);
        number.as_i64().or_else(as_float)
    }

    fn number(self) -> Option<Number> {
        Some(self.into())
    }
}

impl TensorElement for f32 {
    const DTYPE: DType = DType::Float32;

    fn of_number(number: &Number) -> Option<Self> {
        Self::from_number(number.as_f64()?)
    }

    fn number(self) -> Option<Number> {
        Number::from_f64(self.into())
    }
}

/// Ids of tokens, which the wire has as int32.
pub(super) fn ids(bytes: &[u8]) -> Result<Vec<u32>, String> {
    if !bytes.len().is_multiple_of(4) {
        let n = bytes.len();
        return Err(format!("{n} bytes: a multiple of 4 is needed for int32"));
    }
    let read = bytes.chunks_exact(4).enumerate().map(|(at, chunk)| {
        let value = chunk.try_into().map_or(-1, i32::from_le_bytes);
        u32::try_from(value).map_err(|_| format!("token {at} is {value}: 0 or more"))
    });
    read.collect()
}

/// Ids of tokens as the wire has them; an id beyond int32 is no vocabulary's.
pub(super) fn id_bytes(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// How many values the tensors of one request may still be made into: a sparse one is small on the wire and large
/// here.
#[derive(Debug)]
pub(super) struct Room(pub(super) usize);

// === impl Room ===

impl Room {
    fn take(&mut self, n: usize) -> Result<(), String> {
        match self.0.checked_sub(n) {
            Some(left) => {
                self.0 = left;
                Ok(())
            }
            None => Err(format!(
                "its {n} values do not fit: the tensors of one request may have {MAX_ELEMENTS} in all"
            )),
        }
    }
}

struct SparseRows<T> {
    values: Vec<T>,
    crow: Vec<i64>,
    col: Vec<i64>,
}

// === impl SparseRows ===

impl<T: TensorElement> SparseRows<T> {
    fn dense(self, shape: &[usize], room: &mut Room) -> Result<Tensor2<T>, String> {
        let [rows, width] = *shape else {
            return Err(format!(
                "shape {shape:?} of a sparse tensor: [N, K] is needed"
            ));
        };
        let (n_entries, n) = (rows.saturating_add(1), self.values.len());
        let ends = (self.crow.first().copied(), self.crow.last().copied());
        let ends_well = ends == (Some(0), i64::try_from(n).ok()) && self.crow.is_sorted();
        if self.crow.len() != n_entries || !ends_well || self.col.len() != n {
            return Err(format!(
                "crow_indices must have {n_entries} rising entries from 0 to the {n} values, col_indices one per value"
            ));
        }
        let n = rows.checked_mul(width).ok_or("its shape is too large")?;
        room.take(n)?;
        let mut dense = vec![T::default(); n];
        let index = |value: i64| usize::try_from(value).unwrap_or(usize::MAX);
        for (row, ends) in self.crow.windows(2).enumerate() {
            let [from, to] = [index(ends[0]), index(ends[1])];
            let cells = self.col.get(from..to).zip(self.values.get(from..to));
            let (cols, values) = cells.unwrap_or_default();
            for (col, value) in cols.iter().zip(values) {
                let col = index(*col);
                let place = (col < width).then_some(row * width + col);
                let cell = place.and_then(|place| dense.get_mut(place));
                let beyond = || format!("col_indices has {col}: less than {width} is needed");
                *cell.ok_or_else(beyond)? = *value;
            }
        }
        Tensor2::shaped(dense, shape).map_err(|error| error.to_string())
    }
}

fn shape_of(shape: &[i64]) -> Result<Vec<usize>, String> {
    let whole = |n: &i64| usize::try_from(*n);
    let read = shape.iter().map(whole).collect::<Result<_, _>>();
    read.map_err(|_| format!("shape {shape:?} is not allowed: [N] or [N, K]"))
}

fn shaped<T>(values: Vec<T>, shape: Option<&[usize]>) -> Result<Tensor2<T>, String> {
    match shape {
        None | Some([]) => Ok(Tensor2::vector(values)),
        Some(shape) => Tensor2::shaped(values, shape).map_err(|error| error.to_string()),
    }
}

/// A tensor of either dialect.
pub(super) trait WireTensor: Sized {
    fn of<T: TensorElement>(values: &[T], shape: &[usize]) -> Self;

    /// # Errors
    /// Returns what is wrong with it, in words.
    fn read<T: TensorElement>(self, room: &mut Room) -> Result<Tensor2<T>, String>;
}

impl WireTensor for Tensor {
    fn of<T: TensorElement>(values: &[T], shape: &[usize]) -> Self {
        let whole = |n: &usize| i64::try_from(*n).unwrap_or(i64::MAX);
        Self {
            values: Some(Values::Dense(bytes(values.iter().copied()))),
            dtype: T::DTYPE.into(),
            shape: shape.iter().map(whole).collect(),
        }
    }

    fn read<T: TensorElement>(self, room: &mut Room) -> Result<Tensor2<T>, String> {
        if self.dtype() != T::DTYPE {
            let (found, needed) = (self.dtype(), T::NAME);
            return Err(format!("dtype is {found:?}: {needed} is needed"));
        }
        let shape = shape_of(&self.shape)?;
        match self.values {
            Some(Values::Dense(bytes)) => {
                let values: Vec<T> = values(&bytes)?;
                room.take(values.len())?;
                shaped(values, Some(&shape))
            }
            Some(Values::SparseCsr(csr)) => {
                let rows = SparseRows::<T> {
                    values: values(&csr.values)?,
                    crow: values(&csr.crow_indices)?,
                    col: values(&csr.col_indices)?,
                };
                rows.dense(&shape, room)
            }
            None => shaped(Vec::new(), Some(&shape)),
        }
    }
}

impl WireTensor for TensorData {
    /// A value that is not finite becomes 0, because JSON cannot express it.
    fn of<T: TensorElement>(values: &[T], shape: &[usize]) -> Self {
        let number = |value: &T| value.number().unwrap_or_else(|| Number::from(0));
        Self {
            data: values.iter().map(number).collect(),
            dtype: T::NAME.to_owned(),
            shape: Some(shape.to_vec()),
            sparse_crow_indices: None,
            sparse_col_indices: None,
        }
    }

    fn read<T: TensorElement>(self, room: &mut Room) -> Result<Tensor2<T>, String> {
        if self.dtype != T::NAME {
            let (found, needed) = (&self.dtype, T::NAME);
            return Err(format!("dtype is {found:?}: {needed:?} is needed"));
        }
        let read = self.data.iter().enumerate().map(|(at, number)| {
            T::of_number(number).ok_or_else(|| format!("data[{at}] is {number}: no {}", T::NAME))
        });
        let values = read.collect::<Result<Vec<T>, _>>()?;
        match (self.sparse_crow_indices, self.sparse_col_indices) {
            (None, None) => {
                room.take(values.len())?;
                shaped(values, self.shape.as_deref())
            }
            (crow, col) => {
                let (crow, col) = (crow.unwrap_or_default(), col.unwrap_or_default());
                SparseRows { values, crow, col }.dense(&self.shape.unwrap_or_default(), room)
            }
        }
    }
}
