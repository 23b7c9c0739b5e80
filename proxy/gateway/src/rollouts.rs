//! Rollouts: runs of an agent on a task, each behind an address and a key of its own.
//!
//! A runner opens a rollout (`POST /v1/rollouts`), gives the address and the key to the agent's program, and closes the
//! rollout with the outcome (`POST /v1/feedback`). The program needs no header and no change: the address names the
//! rollout that its requests belong to, and the key authorises them.

mod api;
mod closing;
mod open_rollouts;
mod path;

pub use self::open_rollouts::{RolloutError, Rollouts};
pub(crate) use self::{
    api::serve_rollouts,
    closing::{close_rollout, is_about_rollout},
    path::{RolloutPath, strip_path},
};
