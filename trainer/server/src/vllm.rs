//! vLLM serves the policy model, and the engine of this process trains it.
//!
//! Chats go to vLLM as token ids, so that for callers nothing but the speed changes. An adapter is loaded there before the first
//! request that needs it, from a folder of its own and under a name that was never used: vLLM's prefix cache knows adapters by
//! name and folder. Before it answers anybody, vLLM samples with it, and the engine scores what was sampled by its own copy of the
//! weights (`proof`): numbers that do not agree are weights that are not the same. The base model is proved likewise each time that
//! the server was started.
//!
//! `link` is the server and what is known of it, `adapters` what is loaded there, `serving` the sampler behind the chat routes, and
//! `process` the server's own process where it is ours; `start` makes of flags what these need.

mod adapters;
mod link;
mod process;
mod proof;
mod serving;
mod start;

pub(crate) use self::{link::Link, process::Process, serving::VllmServing, start::prepare};
