//! The operations, by what they are about.

pub mod compare;
pub mod lessons;
pub mod process;
pub mod turns;
pub mod weights;
