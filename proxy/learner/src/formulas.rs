//! The numbers of the training methods: from verdicts and log-probabilities to what a token is weighted with. Nothing here
//! asks anybody.

mod clip;
mod kl;
mod learning_rate;
mod normalise;
mod top_k;

pub(crate) use self::{
    clip::RatioClip,
    kl::reverse_kl,
    learning_rate::{n_params, rate_for_size, warmed_up},
    normalise::{by_batch, by_bucket, by_bucket_double},
    top_k::{advantages, most_agreeing},
};

/// A weight as it goes to the training server.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a weight has a few digits that matter, and f32 on the wire"
)]
pub(crate) fn single(weight: f64) -> f32 {
    weight as f32
}
