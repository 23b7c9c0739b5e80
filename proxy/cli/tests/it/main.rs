//! The real `metaclaw` program, in a home of its own, before a scripted upstream.

mod bad_input;
mod harness;
mod keys;
mod output;
mod scheduler;
mod start;
mod trainer;
mod wishes;
