//! Chooses the upstream for a chat, the form of the request, and the next upstream after a failure.

mod ask;
mod attempt;
mod chat;
mod policy;
mod select;
mod translation;

pub use self::select::Upstreams;
pub(crate) use self::{
    ask::{ask, pass},
    attempt::Answer,
    chat::{Previous, Repeated, RoutedChat},
};
