//! The scaling of rotary angles, as `config.json` gives it.

use super::fields::{ConfigFields, LARGEST};
use crate::model_config::fields::Result;

/// The layers that see everything, in `layer_types` and `rope_parameters`.
pub(super) const FULL: &str = "full_attention";

pub(super) const PARAMETERS: &str = "rope_parameters";

/// How rotary angles are stretched beyond the length trained first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// The factor, at least 1.
        factor: f64,
    },
    /// Llama 3: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        /// The factor, at least 1.
        factor: f64,
        /// Positions of wavelengths above `original / low` are divided by the factor.
        low: f64,
        /// Positions of wavelengths below `original / high` stay as they are. It is above `low`.
        high: f64,
        /// The number of tokens of the context before scaling.
        original: f64,
    },
    /// YaRN (<https://arxiv.org/abs/2309.00071>): a ramp over the pairs between two numbers of turns.
    Yarn {
        /// The factor, at least 1.
        factor: f64,
        /// Positions of a pair that makes more turns than this within `original` stay as they are.
        beta_fast: f64,
        /// Positions of a pair that makes fewer turns than this are divided by the factor.
        beta_slow: f64,
        /// The number of tokens of the context before scaling.
        original: f64,
        /// Whether the ramp begins and ends at whole pairs.
        whole_pairs: bool,
        /// The factor of cosines and sines. Attention scores get its square.
        attention: f64,
    },
}

impl RopeScaling {
    /// The number of positions that the scaling makes usable; 0 if `config.json` gives the length itself.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by LARGEST")]
    pub(super) fn context(self) -> i64 {
        match self {
            Self::Yarn {
                factor, original, ..
            } => (original * factor).min(LARGEST as f64) as i64,
            Self::None | Self::Linear { .. } | Self::Llama3 { .. } => 0,
        }
    }
}

/// The rotary angles of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeSpec {
    pub theta: f64,
    pub scaling: RopeScaling,
}

/// The angles of all layers. Newer files keep both the base and its scaling in `rope_parameters`.
pub(super) fn of_all(c: &ConfigFields) -> Result<RopeSpec> {
    let parameters = c.object("rope_parameters")?;
    if parameters.as_ref().is_some_and(ConfigFields::has_objects) {
        return Err(c.wrong("rope_parameters", "the same angles for all layers"));
    }
    let theta = match &parameters {
        Some(rope) if rope.has("rope_theta") => rope.positive("rope_theta", None)?,
        _ => c.positive("rope_theta", Some(10_000.0))?,
    };
    let scaling = match c.object("rope_scaling")?.or(parameters) {
        Some(rope) => scaling(&rope, c)?,
        None => RopeScaling::None,
    };
    Ok(RopeSpec { theta, scaling })
}

/// The angles of one kind of layers, of two that have their own. Newer files have an object of each kind's name in
/// `rope_parameters`; older ones have a base of each, `theta`, and stretch the angles of [`FULL`] alone.
pub(super) fn of_kind(c: &ConfigFields, kind: &str, theta: &str) -> Result<RopeSpec> {
    let Some(parameters) = c.object("rope_parameters")? else {
        let rope = c.object("rope_scaling")?.filter(|_| kind == FULL);
        return Ok(RopeSpec {
            theta: c.positive(theta, None)?,
            scaling: rope.map_or(Ok(RopeScaling::None), |rope| scaling(&rope, c))?,
        });
    };
    let Some(rope) = parameters.object(kind)? else {
        return Err(parameters.wrong(kind, "an object with rope_type and rope_theta"));
    };
    Ok(RopeSpec {
        theta: rope.positive("rope_theta", None)?,
        scaling: scaling(&rope, c)?,
    })
}

fn scaling(rope: &ConfigFields, c: &ConfigFields) -> Result<RopeScaling> {
    whole_heads(rope)?;
    let is_new = rope.has("rope_type");
    let kind = if is_new { "rope_type" } else { "type" };
    match rope.text(kind)? {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear {
            factor: rope.positive("factor", None)?,
        }),
        Some("llama3") => llama3(rope),
        Some("yarn") => yarn(rope, c),
        Some(_) => Err(rope.wrong(kind, "default, linear, llama3, yarn")),
    }
}

/// How many numbers of each head turn, `factor` of them all.
pub(super) fn turned(c: &ConfigFields, factor: f64, head_dim: i64) -> Result<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the head")]
    let turned = (head_dim as f64 * factor.min(1.0)) as i64;
    if turned == 0 || turned % 2 != 0 {
        return Err(c.wrong("head_dim", "one of which an even part above 0 is rotated"));
    }
    Ok(turned)
}

/// Refuses angles of a part of each head.
pub(super) fn whole_heads(fields: &ConfigFields) -> Result<()> {
    #[expect(clippy::float_cmp, reason = "1 is a whole head, not a result")]
    if fields.positive("partial_rotary_factor", Some(1.0))? != 1.0 {
        return Err(fields.wrong("partial_rotary_factor", "1, the whole head"));
    }
    Ok(())
}

fn llama3(rope: &ConfigFields) -> Result<RopeScaling> {
    let low = rope.positive("low_freq_factor", None)?;
    let high = rope.positive("high_freq_factor", None)?;
    if high <= low {
        let allowed = format!("above low_freq_factor ({low})");
        return Err(rope.wrong("high_freq_factor", &allowed));
    }
    Ok(RopeScaling::Llama3 {
        factor: rope.positive("factor", None)?,
        low,
        high,
        original: rope.positive("original_max_position_embeddings", None)?,
    })
}

/// Reads the fields as transformers' `_compute_yarn_parameters` does.
fn yarn(rope: &ConfigFields, c: &ConfigFields) -> Result<RopeScaling> {
    let factor = rope.positive("factor", None)?;
    let beta_fast = rope.positive("beta_fast", Some(32.0))?;
    let beta_slow = rope.positive("beta_slow", Some(1.0))?;
    if beta_fast < beta_slow {
        return Err(rope.wrong("beta_fast", &format!("at least beta_slow ({beta_slow})")));
    }
    let longest = c.positive("max_position_embeddings", None)?;
    let given = |name: &str| {
        rope.has(name)
            .then(|| rope.positive(name, None))
            .transpose()
    };
    let scale = |mscale: f64| {
        if factor > 1.0 {
            0.1 * mscale * factor.ln() + 1.0
        } else {
            1.0
        }
    };
    let attention = match (
        given("attention_factor")?,
        given("mscale")?,
        given("mscale_all_dim")?,
    ) {
        (Some(attention), _, _) => attention,
        (None, Some(mscale), Some(all)) => scale(mscale) / scale(all),
        (None, _, _) => scale(1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        beta_fast,
        beta_slow,
        original: rope.positive("original_max_position_embeddings", Some(longest))?,
        whole_pairs: rope.flag("truncate", true)?,
        attention,
    })
}
