//! The operations, by what they are about.

pub mod agents;
pub mod compare;
pub mod curves;
mod events;
pub mod lessons;
pub mod memory;
pub mod process;
pub mod rollouts;
pub mod turns;
pub mod weights;
