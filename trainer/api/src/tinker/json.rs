//! The JSON bodies. Fields that the SDK omits are absent; fields that a newer SDK adds are not read.

mod listing;
mod models;
mod samplers;
mod sessions;

pub use self::{listing::*, models::*, samplers::*, sessions::*};
