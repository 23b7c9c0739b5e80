//! Rotary position embedding: angles of the positions at hand.
//!
//! Halves convention (Hugging Face): `y = x * cos + rotate_half(x) * sin`. The sign of
//! `rotate_half` is folded into the sines, so that a rotation is a roll and two products:
//! three small kernels instead of six, which a decode step on a CPU notices. Angles are computed once
//! a pass, for all layers; a table of a million positions would take 2.5 GB while it is made.

mod frequencies;

use tch::{Device, Kind, TchError, Tensor};

use crate::model_config::RopeSpec;
use crate::pack::to_i64;
use crate::torch::{Result, split};

/// Angles of every position a model can hold, in layers that turn alike.
#[derive(Debug)]
pub struct Rope {
    /// Angle per position of each pair, `[head_dim / 2]`, f32.
    frequencies: Tensor,
    attention: f64,
    n_positions: usize,
    kind: Kind,
}

/// Angles of the positions at hand; both broadcast against `[b, t, heads, head_dim]`.
#[derive(Debug)]
pub struct RopeSlice {
    /// `[t, 1, head_dim]` or `[b, t, 1, head_dim]`.
    pub cos: Tensor,
    /// The sines, as `cos`, with the first half negated.
    pub sin: Tensor,
    /// Whether they are multiplied by the weights of head norms ([`RopeSlice::with_norms`]).
    pub has_norms: bool,
}

impl Rope {
    /// Angles of `positions` positions for heads of a size, computed in f32 and given as `kind`.
    ///
    /// # Errors
    /// What libtorch reports, such as lack of memory.
    pub fn new(
        spec: &RopeSpec,
        head_dim: i64,
        positions: usize,
        kind: Kind,
        device: Device,
    ) -> Result<Self> {
        let frequencies = frequencies::of_pairs(spec, head_dim);
        Ok(Self {
            frequencies: Tensor::f_from_slice(&frequencies)?.f_to_device(device)?,
            attention: frequencies::attention(spec),
            n_positions: positions,
            kind,
        })
    }

    /// Angles of the `len` positions from `start` on.
    ///
    /// # Shapes
    /// `cos` and `sin`: `[len, 1, head_dim]`, the dtype given to [`Self::new`].
    ///
    /// # Errors
    /// When the range is beyond the context.
    pub fn range(&self, start: usize, len: usize) -> Result<RopeSlice> {
        let end = start.saturating_add(len);
        if end > self.n_positions {
            let n = self.n_positions;
            let text = format!("position {end} is beyond the context of {n}");
            return Err(TchError::Torch(text));
        }
        let options = (Kind::Float, self.frequencies.device());
        let positions = Tensor::f_arange_start(to_i64(start), to_i64(end), options)?;
        self.angles(&positions)
    }

    /// Angles of given positions: packed rows and branches.
    ///
    /// # Shapes
    /// `positions`: `[t]` or `[b, t]`, i64, below the context. `cos` and `sin`: `[.., t, 1, head_dim]`, the dtype
    /// given to [`Self::new`].
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn at(&self, positions: &Tensor) -> Result<RopeSlice> {
        self.angles(&positions.f_to_kind(Kind::Float)?)
    }

    fn angles(&self, positions: &Tensor) -> Result<RopeSlice> {
        let angles = positions.f_unsqueeze(-1)?.f_mul(&self.frequencies)?;
        let (mut cos, mut sin) = (angles.f_cos()?, angles.f_sin()?);
        #[expect(
            clippy::float_cmp,
            reason = "1 is the absence of a factor, not a result"
        )]
        if self.attention != 1.0 {
            cos = cos.f_mul_scalar(self.attention)?;
            sin = sin.f_mul_scalar(self.attention)?;
        }
        let finish = |halves: &[&Tensor]| {
            let whole = Tensor::f_cat(halves, -1)?;
            whole.f_to_kind(self.kind)?.f_unsqueeze(-2)
        };
        Ok(RopeSlice {
            cos: finish(&[&cos, &cos])?,
            sin: finish(&[&sin.f_neg()?, &sin])?,
            has_norms: false,
        })
    }
}

impl RopeSlice {
    /// Copies the angles to `device`. Angles that are already there are shared.
    ///
    /// # Shapes
    /// As they are.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn to_device(&self, device: Device) -> Result<Self> {
        Ok(Self {
            cos: self.cos.f_to_device(device)?,
            sin: self.sin.f_to_device(device)?,
            has_norms: self.has_norms,
        })
    }

    /// The angles multiplied by the weights of each layer's head norms, which saves a product in every layer.
    ///
    /// # Shapes
    /// `weights`: `[layers, 1, heads, head_dim]`, the dtype of the angles. `cos` and `sin`: `[t, heads, head_dim]`.
    ///
    /// # Errors
    /// When shapes do not broadcast.
    pub fn with_norms(&self, weights: &Tensor) -> Result<Vec<Self>> {
        let half = weights.size().last().map_or(0, |d| d / 2);
        let cos = weights.f_mul(&self.cos)?.f_unbind(0)?;
        let sin = weights.f_roll([half], [-1])?.f_mul(&self.sin)?;
        let pairs = cos.into_iter().zip(sin.f_unbind(0)?);
        let slice = |(cos, sin)| Self {
            cos,
            sin,
            has_norms: true,
        };
        Ok(pairs.map(slice).collect())
    }

    /// Rotates queries or keys, of heads that are wider than the angles the first part; differentiable.
    ///
    /// # Shapes
    /// `x`: `[b, t, heads, head_dim]`, the dtype of the angles; returns the same.
    ///
    /// # Errors
    /// When shapes do not broadcast.
    pub fn rotate(&self, x: &Tensor) -> Result<Tensor> {
        let (width, turned) = self.widths(x);
        if turned < width {
            let [turning, rest] = split(x, [turned, width - turned], -1)?;
            return Tensor::f_cat(&[self.rotate(&turning)?, rest], -1);
        }
        let half = width / 2;
        x.f_mul(&self.cos)?
            .f_addcmul(&x.f_roll([half], [-1])?, &self.sin)
    }

    /// As [`Self::rotate`], but writes the result to `place`, which may be the memory of `x`; inference only.
    ///
    /// # Shapes
    /// `x` and `place`: as in [`Self::rotate`].
    ///
    /// # Errors
    /// When shapes do not broadcast.
    pub fn rotate_into(&self, x: &Tensor, place: &mut Tensor) -> Result<()> {
        let (width, turned) = self.widths(x);
        if turned < width {
            let rest = |x: &Tensor| x.f_narrow(-1, turned, width - turned);
            rest(place)?.f_copy_(&rest(x)?)?;
            let first = |x: &Tensor| x.f_narrow(-1, 0, turned);
            return self.rotate_into(&first(x)?, &mut first(place)?);
        }
        let half = width / 2;
        let rolled = x.f_roll([half], [-1])?;
        let _turned = x.f_mul_out(place, &self.cos)?;
        let _turned = place.f_addcmul_(&rolled, &self.sin)?;
        Ok(())
    }

    /// The width of heads, and how much of it turns.
    fn widths(&self, x: &Tensor) -> (i64, i64) {
        let last = |x: &Tensor| x.size().last().copied().unwrap_or(0);
        (last(x), last(&self.cos))
    }
}

#[cfg(test)]
mod tests;
