//! vLLM serves the policy model, and the engine of this process trains it.
//!
//! Chats go to vLLM as token ids, so that callers notice no difference except the speed. An adapter is loaded there
//! before the first request that needs it, from a folder of its own and under a new name each time, because vLLM's
//! prefix cache identifies adapters by name and folder. Before the adapter answers anybody, vLLM samples with it, and
//! the engine scores the sample with its own copy of the weights (`proof`): if the numbers differ, the weights differ.
//! The base model is checked in the same way each time the server was started.
//!
//! `link` is the connection to the server and its state, `adapters` what is loaded there, `serving` the sampler of the
//! chat routes, and `process` the server's own process if it is started here, from the flags.

mod adapters;
mod link;
mod process;
mod proof;
mod serving;

pub(crate) use self::{
    link::Link,
    process::{StartedVllm, prepare},
    serving::VllmServing,
};
