//! End-to-end tests: the built binaries, real clients, the real model.

mod agents;
mod chat;
mod crash;
mod faults;
mod installing_skill;
mod isolation;
mod kill;
mod learning;
mod metrics;
mod migrate;
mod openai_client;
mod openclaw;
mod openclaw_extension;
mod packages;
mod page;
mod prompts;
mod restart;
mod rollouts;
mod tinker;
mod traces;
mod wiring;
