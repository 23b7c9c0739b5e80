//! The numbers of the training methods: from verdicts and log-probabilities to what a token is weighted with. Nothing here
//! asks anybody.

mod clip;
mod normalise;
mod top_k;

pub(crate) use self::{
    clip::Clip,
    normalise::{by_batch, by_bucket},
    top_k::{advantages, most_agreeing},
};
