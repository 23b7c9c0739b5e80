//! The real `metaclaw` program, in a home of its own, before a scripted upstream.

mod auth;
mod bad_input;
mod context;
mod day;
mod evolution;
mod harness;
mod host;
mod inference;
mod instances;
mod keys;
mod metrics;
mod output;
mod privacy;
mod python;
mod restarting;
mod scheduler;
mod seen;
mod setup;
mod start;
mod tools;
mod trainer;
mod trainer_install;
mod turns;
mod wiring;
mod wishes;
