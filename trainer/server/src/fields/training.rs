//! Runs, gradients, steps, adapters, checkpoints.

use metaclaw_trainer_chat::fields::{Field, done};

const RUN: Field = done("session_id", "as lora/create returned it");
const DATUMS: Field = done("datums", "sequences, in either form below");

/// `/v1/lora/create`.
pub(crate) const CREATE: &[Field] = &[
    done(
        "base_model",
        "its name, its path, `owner/name`, or nothing; loaded if the server has none yet",
    ),
    done("rank", "default 32"),
    done("lora_alpha", "ours: a whole number; default 32"),
    done("seed", "ours: of the first weights"),
    done(
        "targets",
        "ours: maps, as `q_proj` or `lm_head`; default the seven projections of a layer",
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
    done("loss_fn_config", "numbers by name, as the loss has them"),
];

/// `/v1/train/forward`. Not in the fork's API.
pub(crate) const FORWARD: &[Field] = &[
    RUN,
    DATUMS,
    done(
        "adapter",
        "with the run's adapter, or the base alone; default true",
    ),
    done(
        "positions",
        "ours: of each datum those that are wanted, from 0; default all",
    ),
    done(
        "top_k",
        "so many of the likeliest ids at each position; default 0",
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
        "ours: a gradient over so many times the median of the run's last ones takes no step; default 20, 0 is off",
    ),
];

/// `/v1/weights/save`.
pub(crate) const SAVE_WEIGHTS: &[Field] = &[
    RUN,
    done("name", "the adapter's; without one, session_id and step"),
];

/// `/v1/checkpoint/save`.
pub(crate) const SAVE_CHECKPOINT: &[Field] = &[
    RUN,
    done("name", "the checkpoint's; without one, session_id and step"),
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
