//! Which upstream is asked, in what words, and which one after it.

mod ask;
mod chat;
mod policy;
mod select;
mod translation;

pub(crate) use self::{
    ask::{Answer, ask, pass},
    chat::Chat,
    select::Upstreams,
};
