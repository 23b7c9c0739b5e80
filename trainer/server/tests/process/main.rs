//! The trainer as others see it: a process, a port, the fork's API.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which the exception in clippy.toml does not know"
)]

mod bodies;
mod ends;
mod fork;
mod hub;
mod killed;
mod life;
mod trainer;
