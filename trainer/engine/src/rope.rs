//! Rotary position embedding: angle tables made once, sliced per step.
//!
//! Halves convention (Hugging Face): `y = x * cos + rotate_half(x) * sin`. The sign of
//! `rotate_half` is folded into the sine table, so that a rotation is a roll and two products:
//! three small kernels instead of six, which a decode step on a CPU notices.

use tch::{Device, Kind, TchError, Tensor};

use crate::family::{Family, RopeScaling};

/// Angles of every position a model can hold.
#[derive(Debug)]
pub struct Rope {
    /// `[context, 1, head_dim]`, engine dtype.
    cos: Tensor,
    /// `[context, 1, head_dim]`, engine dtype, first half negated.
    sin: Tensor,
}

/// Angles of the positions at hand; both broadcast against `[b, t, heads, head_dim]`.
#[derive(Debug)]
pub struct RopeSlice {
    /// `[t, 1, head_dim]` or `[b, t, 1, head_dim]`.
    pub cos: Tensor,
    /// As `cos`, first half negated.
    pub sin: Tensor,
}

impl Rope {
    /// Tables for `positions` positions, computed in f64 and f32 and stored as `kind`.
    ///
    /// # Errors
    /// What libtorch reports, such as lack of memory.
    pub fn new(
        family: &Family,
        positions: usize,
        kind: Kind,
        device: Device,
    ) -> Result<Self, TchError> {
        let frequencies: Vec<f32> = frequencies(family);
        let n = i64::try_from(positions).unwrap_or(i64::MAX);
        let position = Tensor::f_arange(n, (Kind::Float, device))?.f_unsqueeze(1)?;
        let frequency = Tensor::f_from_slice(&frequencies)?.f_to_device(device)?;
        let angles = position.f_mul(&frequency.f_unsqueeze(0)?)?;
        let (cos, sin) = (angles.f_cos()?, angles.f_sin()?);
        let cos = Tensor::f_cat(&[&cos, &cos], 1)?;
        let sin = Tensor::f_cat(&[&sin.f_neg()?, &sin], 1)?;
        let store = |table: Tensor| table.f_to_kind(kind)?.f_unsqueeze(1);
        Ok(Self {
            cos: store(cos)?,
            sin: store(sin)?,
        })
    }

    /// Angles of the `len` positions from `start` on; views, no copy.
    ///
    /// # Errors
    /// When the range is beyond the table.
    pub fn range(&self, start: usize, len: usize) -> Result<RopeSlice, TchError> {
        let (start, len) = (to_i64(start), to_i64(len));
        Ok(RopeSlice {
            cos: self.cos.f_narrow(0, start, len)?,
            sin: self.sin.f_narrow(0, start, len)?,
        })
    }

    /// Angles of given positions, `[t]` or `[b, t]`, i64: packed rows and branches.
    ///
    /// # Errors
    /// When a position is beyond the table.
    pub fn at(&self, positions: &Tensor) -> Result<RopeSlice, TchError> {
        let mut shape = positions.size();
        shape.extend([1, -1]);
        let flat = positions.f_reshape([-1])?;
        Ok(RopeSlice {
            cos: self.cos.f_index_select(0, &flat)?.f_reshape(&shape)?,
            sin: self.sin.f_index_select(0, &flat)?.f_reshape(&shape)?,
        })
    }
}

impl RopeSlice {
    /// Rotates `x`, `[b, t, heads, head_dim]`; differentiable.
    ///
    /// # Errors
    /// When shapes do not broadcast.
    pub fn rotate(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let half = x.size().last().map_or(0, |d| d / 2);
        x.f_mul(&self.cos)?
            .f_addcmul(&x.f_roll([half], [-1])?, &self.sin)
    }
}

fn to_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Angle per position of each pair, `head_dim / 2` of them.
fn frequencies(family: &Family) -> Vec<f32> {
    let dim = family.head_dim;
    (0..dim / 2)
        .map(|pair| {
            let base = family.rope_theta.powf(-2.0 * pair as f64 / dim as f64);
            stretch(base, family.rope_scaling)
        })
        .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "angles are f32 by convention"
)]
fn stretch(frequency: f64, scaling: RopeScaling) -> f32 {
    let stretched = match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 {
            factor,
            low,
            high,
            original,
        } => {
            let turns = original * frequency / std::f64::consts::TAU;
            let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            frequency * (kept + (1.0 - kept) / factor)
        }
    };
    stretched as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The textbook form with an explicit `rotate_half`.
    fn reference(x: &Tensor, position: f64, theta: f64) -> Tensor {
        let d = x.size()[x.dim() - 1];
        let pairs = Tensor::arange(d / 2, (Kind::Double, Device::Cpu));
        let angles = (pairs * (-2.0 * theta.ln() / d as f64)).exp() * position;
        let angles = Tensor::cat(&[&angles, &angles], 0);
        let halves = x.to_kind(Kind::Double).chunk(2, -1);
        let turned = Tensor::cat(&[&(-&halves[1]), &halves[0]], -1);
        (x * angles.cos() + turned * angles.sin()).to_kind(Kind::Float)
    }

    #[test]
    fn rotation_is_the_textbook_one() {
        let family = crate::testing::tiny_family();
        let rope = Rope::new(&family, 16, Kind::Float, Device::Cpu).unwrap();
        let x = Tensor::randn([1, 3, 2, family.head_dim], (Kind::Float, Device::Cpu));
        let turned = rope.range(5, 3).unwrap().rotate(&x).unwrap();
        for t in 0..3 {
            let want = reference(&x.narrow(1, t, 1), 5.0 + t as f64, family.rope_theta);
            assert!(
                turned.narrow(1, t, 1).allclose(&want, 1e-5, 1e-5, false),
                "position {t}"
            );
        }
        let picked = rope
            .at(&Tensor::from_slice(&[5_i64, 6, 7]))
            .unwrap()
            .rotate(&x)
            .unwrap();
        assert!(picked.equal(&turned));
    }

    #[test]
    fn llama3_keeps_fast_pairs_and_divides_slow_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original: 8192.0,
        };
        assert!((stretch(1.0, scaling) - 1.0).abs() < 1e-7);
        let slow = 1e-5;
        assert!((f64::from(stretch(slow, scaling)) - slow / 8.0).abs() < 1e-11);
    }
}
