//! OpenAI and Anthropic wire shapes: read an event stream, put a reply together, word an error, say one
//! API's words in the other's.
//!
//! Pure: bytes in, values out, no IO and no clock; nothing in it panics or grows without bound on bad
//! input. What [`Api`] reads is always a copy of bytes that went to the agent untouched. What decides
//! what the agent sees is a [`rewrite::Rewrite`], and stands in the way of those replies alone that
//! cannot go as they came: [`translate`], [`toolcalls`], [`vllm`].

#[cfg(test)]
mod any_json;
mod api;
mod calls;
mod chat;
mod error;
pub mod estimate;
mod failure;
mod fields;
mod grow;
pub mod json;
#[cfg(test)]
mod limits;
mod lines;
pub mod mend;
mod messages;
mod reply;
pub mod request;
mod responses;
pub mod rewrite;
pub mod sse;
mod tail;
#[cfg(test)]
mod testing;
pub mod toolcalls;
pub mod translate;
pub mod vllm;

pub use self::{
    api::Api,
    chat::form as chat_form,
    error::OwnError,
    failure::{Failure, error_status},
    reply::Reply,
    responses::reply_id,
};
