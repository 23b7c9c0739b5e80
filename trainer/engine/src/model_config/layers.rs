//! The properties that differ between layers: how far each sees, and its angles.

use super::architecture::Architecture;
use super::fields::ConfigFields;
use super::rope::{self, FULL, RopeSpec};
use crate::model_config::fields::Result;

/// How one layer attends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerSpec {
    /// How many of the newest positions a position sees, itself included; `None` is all.
    pub window: Option<usize>,
    pub rope: RopeSpec,
}

const SLIDING: &str = "sliding_attention";
/// The window if the file does not have the field. A file says `null` for no window.
const WINDOW: i64 = 4096;
/// Qwen's first layer with a window, where a file has one and does not say.
const QWEN_FULL_LAYERS: i64 = 28;

/// Every layer in order.
///
/// # Errors
/// Kinds of layers that this engine does not compute, a window that is missing, angles that it does not know.
pub(super) fn read(
    c: &ConfigFields,
    architecture: Architecture,
    n_layers: usize,
) -> Result<Vec<LayerSpec>> {
    let is_sliding = sliding(c, architecture, n_layers)?;
    let window = if is_sliding.contains(&true) {
        let window = if c.is_written("sliding_window") {
            c.size("sliding_window")?
        } else {
            WINDOW
        };
        usize::try_from(window).ok()
    } else {
        None
    };
    let (full, near) = if architecture == Architecture::Gemma3 {
        let full = rope::of_kind(c, FULL, "rope_theta")?;
        (full, rope::of_kind(c, SLIDING, "rope_local_base_freq")?)
    } else {
        let one = rope::of_all(c)?;
        (one, one)
    };
    let spec = |is_sliding: bool| LayerSpec {
        window: window.filter(|_| is_sliding),
        rope: if is_sliding { near } else { full },
    };
    Ok(is_sliding.into_iter().map(spec).collect())
}

fn sliding(c: &ConfigFields, architecture: Architecture, n_layers: usize) -> Result<Vec<bool>> {
    let all = |is_sliding: bool| Ok(vec![is_sliding; n_layers]);
    // Its list says which layers attend; see `delta`.
    if architecture == Architecture::Qwen35 {
        return all(false);
    }
    let listed = listed(c, n_layers)?;
    match architecture {
        // transformers reads no list here.
        Architecture::Llama | Architecture::Mistral
            if listed.as_ref().is_some_and(|list| list.contains(&true)) =>
        {
            Err(c.wrong("layer_types", "\"full_attention\" for every layer"))
        }
        Architecture::Llama | Architecture::Qwen35 => all(false),
        Architecture::Mistral => all(c.has("sliding_window") || !c.is_written("sliding_window")),
        Architecture::Qwen2 | Architecture::Qwen3 => {
            let is_on = c.flag("use_sliding_window", false)?;
            if let Some(list) = listed {
                return if is_on || !list.contains(&true) {
                    Ok(list)
                } else {
                    let allowed = "true where layer_types names sliding_attention";
                    Err(c.wrong("use_sliding_window", allowed))
                };
            }
            if !is_on || (c.is_written("sliding_window") && !c.has("sliding_window")) {
                return all(false);
            }
            let first = c.count_or("max_window_layers", QWEN_FULL_LAYERS)?;
            Ok((0..n_layers).map(|layer| layer >= first).collect())
        }
        Architecture::Gemma3 => {
            let pattern = usize::try_from(c.size("sliding_window_pattern")?).unwrap_or(1);
            let by_pattern = || (1..=n_layers).map(|nth| nth % pattern != 0).collect();
            Ok(listed.unwrap_or_else(by_pattern))
        }
    }
}

fn listed(c: &ConfigFields, n_layers: usize) -> Result<Option<Vec<bool>>> {
    const FIELD: &str = "layer_types";
    let Some(names) = c.texts(FIELD)? else {
        return Ok(None);
    };
    let kinds = names.iter().map(|name| match name.as_str() {
        FULL => Some(false),
        SLIDING => Some(true),
        _ => None,
    });
    match kinds.collect::<Option<Vec<bool>>>() {
        Some(kinds) if kinds.len() == n_layers => Ok(Some(kinds)),
        _ => {
            let allowed =
                format!("one of full_attention, sliding_attention for each of {n_layers} layers");
            Err(c.wrong(FIELD, &allowed))
        }
    }
}
