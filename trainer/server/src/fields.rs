//! The fields of the trainer's own routes; those of chats are in `metaclaw_trainer_chat::fields`.

use std::{fmt::Display, str::FromStr};

use metaclaw_trainer_chat::fields::done;
pub(crate) use metaclaw_trainer_chat::fields::{Field, check, cut};

use crate::error::ApiError;

/// Reads the value of a field.
///
/// # Errors
/// Returns 400 with the field.
pub(crate) fn parsed<T: FromStr<Err: Display>>(
    field: &'static str,
    text: &str,
) -> Result<T, ApiError> {
    text.parse()
        .map_err(|error: T::Err| ApiError::field(field, error.to_string()))
}

const RUN: Field = done("session_id", "as lora/create returned it");
const DATUMS: Field = done("datums", "sequences, in either form of [Fields](#fields)");

/// `/v1/lora/create`.
pub(crate) const CREATE: &[Field] = &[
    done(
        "base_model",
        "its name, its path, `owner/name`, or nothing; loaded if the server has none yet",
    ),
    done("rank", "default 32"),
    done("lora_alpha", "ours: a whole number; default 32"),
    done("seed", "ours: the seed of the first weights"),
    done(
        "targets",
        "ours: projections, as `q_proj` or `lm_head`; default the seven of a layer",
    ),
];

/// `/v1/train/forward_backward`.
pub(crate) const FORWARD_BACKWARD: &[Field] = &[
    RUN,
    DATUMS,
    done(
        "loss_fn",
        "`importance_sampling` (default), `ppo`, `cispo`; ours: `cross_entropy`, `dro`",
    ),
    done("loss_fn_config", "parameters of the loss, by name"),
];

/// `/v1/train/forward`. Not in the fork's API.
pub(crate) const FORWARD: &[Field] = &[
    RUN,
    DATUMS,
    done(
        "adapter",
        "true: with the run's adapter; false: the base alone; default true",
    ),
    done(
        "positions",
        "ours: the positions of each datum to return, from 0; default all",
    ),
    done(
        "top_k",
        "how many of the likeliest ids to return at each position; default 0",
    ),
];

/// `/v1/train/optim_step`.
pub(crate) const OPTIM_STEP: &[Field] = &[
    RUN,
    done("learning_rate", "default 1e-4"),
    done("beta1", "ours: default 0.9"),
    done("beta2", "ours: default 0.95"),
    done("eps", "ours: default 1e-12"),
    done("weight_decay", "ours: default 0"),
    done("grad_clip_norm", "ours: default 0, off"),
    done(
        "skip_over",
        "ours: a gradient over this many times the median of the run's last ones takes no step; default 20, 0 is off",
    ),
];

/// `/v1/weights/save`.
pub(crate) const SAVE_WEIGHTS: &[Field] = &[
    RUN,
    done(
        "name",
        "the adapter's name; without one, session_id and step",
    ),
];

/// `/v1/checkpoint/save`.
pub(crate) const SAVE_CHECKPOINT: &[Field] = &[
    RUN,
    done(
        "name",
        "the checkpoint's name; without one, session_id and step",
    ),
    done("manifest", "ours: kept verbatim, and listed again"),
];

/// `/v1/checkpoint/load`.
pub(crate) const LOAD_CHECKPOINT: &[Field] = &[
    RUN,
    done("path", "what checkpoint/save returned, or the name"),
];

/// `/v1/checkpoints/prune`.
pub(crate) const PRUNE: &[Field] = &[done(
    "keep",
    "checkpoints that serve or that a step may go back to, by name",
)];

/// `/v1/lora/close`.
pub(crate) const CLOSE_RUN: &[Field] = &[RUN];

/// `/v1/load_lora_adapter`.
pub(crate) const LOAD_ADAPTER: &[Field] = &[
    done("lora_name", "a saved adapter"),
    done("lora_path", "what weights/save returned, if anything"),
];

/// `/v1/unload_lora_adapter`.
pub(crate) const UNLOAD_ADAPTER: &[Field] = &[done("lora_name", "an adapter")];

/// `/v1/sample`.
pub(crate) const SAMPLE: &[Field] = &[
    done("tokens", "the prompt's ids"),
    done("num_samples", "1 to 64 continuations; default 1"),
    done("max_tokens", "at least 1; default 2048"),
    done("temperature", "0 takes the likeliest token; default 0.7"),
    done("top_p", "above 0, at most 1; default 0.95"),
    done("top_k", "0 and -1 are all; default 50"),
    done("stop", "a text or up to 16; not part of the reply"),
    done("model", "ours: `base`, an adapter, or the one last saved"),
    done(
        "seed",
        "ours: the seed of the first continuation; each further one adds 1",
    ),
    done("min_p", "ours, and all below: as for a chat"),
    done(
        "presence_penalty",
        "taken from the logits of what the reply holds; 0 is off",
    ),
    done(
        "frequency_penalty",
        "the same, once for each time; 0 is off",
    ),
    done(
        "repetition_penalty",
        "of what prompt and reply hold; 1 is off",
    ),
    done(
        "stop_token_ids",
        "end the reply as the model's own end does",
    ),
    done("ignore_eos", "the model's own end does not end the reply"),
    done("min_tokens", "the least ids of a reply"),
];

#[cfg(test)]
mod tests;
