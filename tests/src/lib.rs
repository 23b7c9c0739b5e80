//! The test kit: a proxy in a home of its own, a scripted upstream, a client that measures, and
//! the laptop script.
//!
//! Real clients (Python packages, OpenClaw, other agents) and the real model come from the cache folder that
//! `cargo xtask test --all` fills; their places arrive by environment. Where one is missing the test that
//! needs it prints why and passes: plain `cargo test` must work on a bare checkout.

pub mod agents;
pub mod background;
pub mod bench;
pub mod browser;
pub mod chart;
pub mod client;
pub mod echo;
pub mod external;
pub mod home;
pub mod judge;
pub mod laptop;
pub mod lived_in;
pub mod openclaw;
pub mod prompts;
pub mod questions;
pub mod random_model;
pub mod tinker;
pub mod trainer;
pub mod upstream;
pub mod vllm;
pub mod wait;
pub mod watched;
