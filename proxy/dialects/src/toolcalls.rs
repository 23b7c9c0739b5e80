//! What models and agents write in ways that few understand, put as chat completions put it.
//!
//! Models of the Qwen and Kimi families write their tool calls and their thinking as text. A server that
//! knows the model takes them out; behind one that does not, an agent would see markup and no call. Here
//! they become `tool_calls` and `reasoning_content`, for whole replies ([`reply`]) and for streams, piece
//! by piece ([`stream`]): text goes on at once unless it may be the beginning of a marker. What looks
//! like a call and is none (bad JSON, no name) stays text. In the other direction [`request`] turns the
//! message shapes of agents into those that chat templates know.
//!
//! For the policy model; for other upstreams only if configured, as a provider's own words are not ours
//! to change. The shapes are those of the original MetaClaw, less its mistakes: a `<think>` in the midst
//! of a text is text that somebody talks about, a closing marker inside a JSON string closes nothing, a
//! tool that the request names keeps its name whatever its digits.

mod call;
mod held;
mod markup;
mod mend;
mod names;
mod options;
mod reply;
mod requests;
mod schema;
mod split;
mod streams;
mod xml;

pub use self::{
    options::Options,
    reply::reply,
    requests::{bootstrap, normalise, request},
    schema::Schemas,
    streams::stream,
};

#[cfg(test)]
mod tests;
