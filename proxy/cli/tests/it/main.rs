//! The real `metaclaw` program, in a home of its own, before a scripted upstream.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a broken premise of a test may panic"
)]

mod auth;
mod bad_input;
mod context;
mod day;
mod doctor;
mod elsewhere;
mod evolution;
mod figures;
mod harness;
mod host;
mod inference;
mod instances;
mod keys;
mod memory;
mod metrics;
mod output;
mod own_model;
mod people;
mod privacy;
mod prompt_cache;
mod python;
mod restarting;
mod rollout;
mod scheduler;
mod seen;
mod setup;
mod sharing;
mod start;
mod tools;
mod trainer;
mod trainer_install;
mod turns;
mod wiring;
mod wishes;
