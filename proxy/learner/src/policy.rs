//! The policy server asked beside the chat: prompts rendered, replies drawn, replies scored.

mod draw;
mod pairs;
mod render;
mod score;
mod server;

pub(crate) use self::{
    draw::{DrawRequest, DrawnReply, distinct_share},
    pairs::{ScoredPair, mean, relevance},
    score::By,
    server::PolicyModel,
};
