//! Converts uncommon formats of models and agents to those of chat completions.
//!
//! Models of the Qwen and Kimi families write tool calls and thinking as text. A server that knows the model converts
//! them. With any other server, an agent would see markup and no call. Here they become `tool_calls` and
//! `reasoning_content`, in unstreamed replies ([`reply`]) and in streams ([`stream`]). In a stream, text is passed on
//! at once unless it may be the beginning of a marker. Text that looks like a call but is not valid (bad JSON, no name)
//! stays text. In the other direction, [`request`] converts the messages of agents to the forms that chat templates
//! know.
//!
//! This applies to the policy model, and to other upstreams only if configured, because a provider's text should not be
//! changed otherwise. The formats are those of the original MetaClaw, without its mistakes: a `<think>` in the middle
//! of a text is ordinary text, a closing marker inside a JSON string closes nothing, and a tool that the request names
//! keeps its name with its digits.

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
    options::ToolCallOptions,
    reply::reply,
    requests::{bootstrap, normalise, request},
    schema::Schemas,
    streams::stream,
};

#[cfg(test)]
mod tests;
