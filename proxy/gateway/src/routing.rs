//! Which upstream is asked, in what words, and which one after it.

mod ask;
mod attempt;
mod chat;
mod policy;
mod select;
mod translation;

pub(crate) use self::{
    ask::{ask, pass},
    attempt::Answer,
    chat::{Chat, Previous, Repeated},
    select::Upstreams,
};
