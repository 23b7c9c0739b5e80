//! Memory for agents that have none: facts that the owner told, on disk, and those that a session gets.
//!
//! A *memory* is one fact in the owner's words, with the turn that it comes from. It comes only from what the owner
//! typed: never from a tool's result, a web page, another person or a model. Everything here works on files and text,
//! without a model or the network: prompts and answers of a model are only texts here.
//!
//! ```text
//! what the owner types -> buffer -> facts (a model's, or by rules) -> store -> recall -> system prompt
//! ```

mod api;
mod buffer;
mod config;
mod consolidate;
mod error;
mod facts;
mod files;
mod lines;
mod memory;
mod policy;
mod recall;
mod render;
mod retrieve;
mod scope;
mod store;
mod support;

pub use self::{
    api::{memory_json, search_json, stats_json, summary_json},
    buffer::{BufferedSession, BufferedTurn},
    config::{MemoryConfig, RetrievalMode},
    consolidate::Consolidated,
    error::MemoryError,
    facts::{Fact, FactQuestion, plain_facts},
    memory::{Memory, MemoryKind, MemoryState},
    policy::MemoryPolicy,
    recall::Recall,
    render::MEMORY_HEADING,
    retrieve::MemoryHit,
    scope::MemoryScope,
    store::{MemoryStore, Remembered},
};
