//! The real `metaclaw` program, in a home of its own, before a scripted upstream.

mod bad_input;
mod harness;
mod keys;
mod output;
mod start;
mod trainer;
mod wiring;
mod wishes;
