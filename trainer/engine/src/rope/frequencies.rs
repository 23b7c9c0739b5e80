//! How fast each pair of a head turns.

use std::f64::consts::TAU;

use crate::model_config::{RopeScaling, RopeSpec};

/// Angle per position of each pair, `head_dim / 2` of them; computed in f64.
#[expect(
    clippy::cast_possible_truncation,
    reason = "angles are f32 by convention"
)]
pub(super) fn of_pairs(spec: &RopeSpec, head_dim: i64) -> Vec<f32> {
    let dim = head_dim as f64;
    (0..head_dim / 2)
        .map(|pair| {
            let plain = spec.theta.powf(-2.0 * pair as f64 / dim);
            stretch(plain, pair as f64, spec, dim) as f32
        })
        .collect()
}

pub(super) fn attention(spec: &RopeSpec) -> f64 {
    match spec.scaling {
        RopeScaling::Yarn { attention, .. } => attention,
        RopeScaling::None
        | RopeScaling::Linear { .. }
        | RopeScaling::Llama3 { .. }
        | RopeScaling::Proportional { .. } => 1.0,
    }
}

fn stretch(frequency: f64, pair: f64, spec: &RopeSpec, dim: f64) -> f64 {
    // `kept` of the frequency stays, the rest is divided.
    let mixed = |kept: f64, factor: f64| frequency * (kept + (1.0 - kept) / factor);
    match spec.scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Proportional { share, factor } => {
            if pair < (share * dim / 2.0).floor() {
                frequency / factor
            } else {
                0.0
            }
        }
        RopeScaling::Llama3 {
            factor,
            low,
            high,
            original,
        } => {
            let turns = original * frequency / TAU;
            mixed(((turns - low) / (high - low)).clamp(0.0, 1.0), factor)
        }
        RopeScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            original,
            whole_pairs,
            ..
        } => {
            // The pair that makes this many turns within the original context.
            let turning =
                |turns: f64| dim * (original / (turns * TAU)).ln() / (2.0 * spec.theta.ln());
            let (first, last) = (turning(beta_fast), turning(beta_slow));
            let (first, last) = if whole_pairs {
                (first.floor(), last.ceil())
            } else {
                (first, last)
            };
            let (first, last) = (first.max(0.0), last.min(dim - 1.0));
            // As in transformers, this avoids a division by zero.
            let width = if last > first { last - first } else { 0.001 };
            mixed(1.0 - ((pair - first) / width).clamp(0.0, 1.0), factor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_keeps_fast_pairs_and_divides_slow_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original: 8192.0,
        };
        let spec = RopeSpec {
            theta: 500_000.0,
            scaling,
        };
        assert!((stretch(1.0, 0.0, &spec, 128.0) - 1.0).abs() < 1e-7);
        let slow = 1e-5;
        assert!((stretch(slow, 60.0, &spec, 128.0) - slow / 8.0).abs() < 1e-11);
    }

    /// Qwen2.5's with factor 4, by the formulas of transformers' `_compute_yarn_parameters` in Python.
    #[test]
    fn yarn_is_that_of_transformers() {
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original: 32_768.0,
            whole_pairs: true,
            attention: 1.1,
        };
        let spec = RopeSpec {
            theta: 1e6,
            scaling,
        };
        let found = of_pairs(&spec, 128);
        let expected = [
            (0, 1.0),
            (20, 0.013_335_214_321_631_63),
            (30, 0.001_064_360_981_247_001_7),
            (40, 4.445_698_525_097_307e-5),
            (50, 5.133_812_566_142_866e-6),
            (63, 3.102_344_401_879_299e-7),
        ];
        for (pair, expected) in expected {
            let off = f64::from(found[pair]) / expected - 1.0;
            assert!(off.abs() < 1e-6, "pair {pair}: {}", found[pair]);
        }
        assert_eq!(attention(&spec).to_bits(), 1.1_f64.to_bits());
    }
}
