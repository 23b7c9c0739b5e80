//! The matrices of linear maps, of the embedding and of the LM head: as they are, or rounded to 8 bits.
//!
//! A rounded (`int8`) matrix has whole numbers from -127 to 127, and for each row a scale: the row's largest number
//! divided by 127. This takes half the memory of bf16, a quarter of f32, and each token of a reply reads so much less.
//! torchao calls it int8 weight-only: activations are not rounded. On a CPU, a few input rows are multiplied with the
//! rounded numbers (`few_rows`). For more rows, and for training, the matrix is first expanded from its rounded numbers,
//! so that training uses the weights that serve. Replies on a GPU do not use rounded matrices, because ATen's product for
//! them (`_weight_int8pack_mm`) takes eleven times as long as one in bf16 (H100, libtorch 2.11, one row).

use tch::{Device, Kind, Tensor};

use crate::few_rows;
use crate::torch::Result;

/// A matrix that is only read.
#[derive(Debug)]
pub enum Matrix {
    /// `[out, in]`, in the engine's dtype; read-only memory where mapped.
    Plain(Tensor),
    /// Rounded to 8 bits.
    Int8 {
        /// `[out, in]`, int8.
        rounded: Tensor,
        /// `[out]`, in the engine's dtype.
        scales: Tensor,
    },
}

/// How weights are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantization {
    /// 8 bits a weight, a scale a row.
    Int8,
}

/// Largest number of 8 bits that is used.
const LARGEST: f64 = 127.0;

impl From<Tensor> for Matrix {
    fn from(plain: Tensor) -> Self {
        Self::Plain(plain)
    }
}

// === impl Matrix ===

impl Matrix {
    /// Rounds a matrix to 8 bits.
    ///
    /// # Shapes
    /// `plain`: `[out, in]`, any float dtype, which is that of what goes in and comes out.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn int8(plain: &Tensor) -> Result<Self> {
        let kind = plain.f_kind()?;
        let wide = plain.f_to_kind(Kind::Float)?;
        let largest = wide.f_abs()?.f_amax([1i64].as_slice(), true)?;
        // The scale is rounded to its dtype before it is divided by, so that its rounding is in no product.
        let scales = largest
            .f_div_scalar(LARGEST)?
            .f_clamp_min(f64::from(f32::MIN_POSITIVE))?
            .f_to_kind(kind)?;
        let units = wide.f_div(&scales.f_to_kind(Kind::Float)?)?;
        let rounded = units
            .f_round()?
            .f_clamp(-LARGEST, LARGEST)?
            .f_to_kind(Kind::Int8)?;
        Ok(Self::Int8 {
            rounded,
            scales: scales.f_squeeze_dim(1)?,
        })
    }

    /// Returns the dtype of a product's input and output. An int8 matrix has that of its scales.
    ///
    /// # Errors
    /// Never for a tensor that was made.
    pub fn kind(&self) -> Result<Kind> {
        match self {
            Self::Plain(plain) => plain.f_kind(),
            Self::Int8 { scales, .. } => scales.f_kind(),
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        let of = |t: &Tensor| t.numel() * t.kind().elt_size_in_bytes();
        match self {
            Self::Plain(plain) => of(plain),
            Self::Int8 { rounded, scales } => of(rounded) + of(scales),
        }
    }

    /// `W x + b`; differentiable with respect to `x`.
    ///
    /// # Shapes
    /// `x`: `[.., in]`, `bias`: `[out]`, both in the dtype of [`Self::kind`]. Returns `[.., out]` in the same.
    ///
    /// # Errors
    /// What libtorch refuses, a width that does not fit above all.
    pub fn product(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        x.f_linear(&self.plain()?, bias)
    }

    /// As [`Self::product`], by the fastest way for so many rows. Training does not use it, because a layer that the backward pass
    /// computes again must give the same bits as in the forward pass.
    ///
    /// # Shapes
    /// As [`Self::product`].
    ///
    /// # Errors
    /// As [`Self::product`].
    pub fn product_to_serve(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let Some(y) = self.few_rows(x)? else {
            return self.product(x, bias);
        };
        let y = y.f_to_kind(self.kind()?)?;
        match bias {
            Some(bias) => y.f_add(bias),
            None => Ok(y),
        }
    }

    /// `W x` of a few rows on a CPU, in f32: nothing is rounded to the dtype of [`Self::kind`]. `None` for many rows, for an input with
    /// a gradient, and on a machine without the kernels.
    ///
    /// # Shapes
    /// `x`: `[.., in]`, any float dtype. Returns `[.., out]`, f32.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn few_rows(&self, x: &Tensor) -> Result<Option<Tensor>> {
        match self {
            Self::Plain(plain) => few_rows::product(x, plain, None),
            Self::Int8 { rounded, scales } => few_rows::product(x, rounded, Some(scales)),
        }
    }

    /// The matrix in the form that libtorch multiplies: a handle, or expanded from its rounded numbers.
    ///
    /// # Shapes
    /// Returns `[out, in]` in the dtype of [`Self::kind`].
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn plain(&self) -> Result<Tensor> {
        match self {
            Self::Plain(plain) => Ok(plain.shallow_clone()),
            Self::Int8 { rounded, scales } => rounded
                .f_to_kind(scales.f_kind()?)?
                .f_mul(&scales.f_unsqueeze(1)?),
        }
    }

    /// Some rows, in f32.
    ///
    /// # Shapes
    /// `ids`: `[n]`, i64. Returns `[n, in]`, f32.
    ///
    /// # Errors
    /// When there is no such row.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor> {
        match self {
            Self::Plain(plain) => plain.f_index_select(0, ids)?.f_to_kind(Kind::Float),
            Self::Int8 { rounded, scales } => {
                let scales = scales.f_index_select(0, ids)?.f_to_kind(Kind::Float)?;
                let rows = rounded.f_index_select(0, ids)?.f_to_kind(Kind::Float)?;
                rows.f_mul(&scales.f_unsqueeze(1)?)
            }
        }
    }

    /// Copies the matrix to `device`. A matrix that is already there is shared.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn to_device(&self, device: Device) -> Result<Self> {
        Ok(match self {
            Self::Plain(plain) => Self::Plain(plain.f_to_device(device)?),
            Self::Int8 { rounded, scales } => Self::Int8 {
                rounded: rounded.f_to_device(device)?,
                scales: scales.f_to_device(device)?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: (Kind, Device) = (Kind::Float, Device::Cpu);

    fn far(found: &Tensor, wanted: &Tensor) -> f64 {
        let norm = |t: &Tensor| t.to_kind(Kind::Double).norm().double_value(&[]);
        norm(&(found.to_kind(Kind::Float) - wanted.to_kind(Kind::Float))) / norm(wanted)
    }

    #[test]
    fn no_number_moves_by_more_than_half_a_step_of_its_row() {
        for kind in [Kind::Float, Kind::BFloat16] {
            let plain = (Tensor::randn([40, 64], OPTIONS) * 0.1).to_kind(kind);
            // A row of zeros has no largest number to divide by.
            let _ = plain.get(3).zero_();
            let matrix = Matrix::int8(&plain).unwrap();
            assert_eq!(matrix.kind().unwrap(), kind);
            assert_eq!(matrix.bytes(), 40 * 64 + 40 * kind.elt_size_in_bytes());
            let all = matrix
                .rows(&Tensor::arange(40, (Kind::Int64, Device::Cpu)))
                .unwrap();
            let plain = plain.to_kind(Kind::Float);
            let step = plain.abs().amax([1i64].as_slice(), true) / LARGEST;
            // A scale in bf16 may be a 256th shorter than the largest number wants.
            let allowed = step * if kind == Kind::Float { 0.5001 } else { 1.0 } + 1e-9;
            let moved = (all - plain).abs();
            assert!(
                bool::try_from(moved.le_tensor(&allowed).all()).unwrap(),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn few_rows_and_many_are_the_same_map() {
        for (kind, tolerance) in [(Kind::Float, 1e-5), (Kind::BFloat16, 1e-2)] {
            let matrix = Matrix::int8(&Tensor::randn([48, 64], OPTIONS).to_kind(kind)).unwrap();
            let bias = Tensor::randn([48], OPTIONS).to_kind(kind);
            for n in [1, 2, 16, 17, 40, 70] {
                let x = Tensor::randn([1, n, 64], OPTIONS).to_kind(kind);
                let found = matrix.product_to_serve(&x, Some(&bias)).unwrap();
                assert_eq!((found.size(), found.kind()), (vec![1, n, 48], kind));
                let wide = |t: &Tensor| t.to_kind(Kind::Float);
                let all = matrix
                    .rows(&Tensor::arange(48, (Kind::Int64, Device::Cpu)))
                    .unwrap();
                let wanted = wide(&x).linear(&all, Some(&wide(&bias)));
                let far = far(&found, &wanted);
                assert!(far < tolerance, "{kind:?}, {n} rows: {far:e}");
            }
        }
    }

    #[test]
    fn there_is_a_way_back_through_rounded_numbers() {
        let matrix = Matrix::int8(&Tensor::randn([7, 5], OPTIONS)).unwrap();
        let x = Tensor::randn([3, 5], OPTIONS).set_requires_grad(true);
        let grad = Tensor::randn([3, 7], OPTIONS);
        (matrix.product(&x, None).unwrap() * &grad)
            .sum(Kind::Float)
            .backward();
        let wanted = grad.matmul(&matrix.plain().unwrap());
        assert!(x.grad().allclose(&wanted, 1e-5, 1e-6, false));
    }
}
