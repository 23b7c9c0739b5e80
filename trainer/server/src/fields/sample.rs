//! Sampling by ids.

use metaclaw_trainer_chat::fields::{Field, done};

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
        "ours: of the first continuation; the others count up",
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
    done("min_tokens", "no end before so many"),
];
