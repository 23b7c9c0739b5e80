//! The log through its handle, on real sled in a temporary folder.

mod append;
mod kill;
mod kit;
mod learning;
mod long;
mod onward;
mod opening;
mod random;
mod size;
mod tail;
mod together;
