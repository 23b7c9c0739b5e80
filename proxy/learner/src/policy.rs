//! Requests to the training server outside of training: renders prompts, draws replies and scores replies.

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
