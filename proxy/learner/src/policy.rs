//! The policy server asked beside the chat: prompts rendered, replies drawn, replies scored.

mod draw;
mod pairs;
mod render;
mod score;
mod server;

pub(crate) use self::{
    draw::{Draw, DrawRequest, distinct_share},
    pairs::{Pair, mean, relevance},
    score::By,
    server::Policy,
};
