//! The agents of the tracks, with a model that follows a script.

mod cheats;
mod examples;
mod gui;
mod scripted;
mod swe;
mod terminal;
mod toolcall;
