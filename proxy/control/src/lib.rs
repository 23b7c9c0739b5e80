//! What commands ask, as typed operations.
//!
//! An [`operation::Operation`] is a request that knows its path, its reply and how it is done. The running process does
//! it for a command over HTTP ([`server`], [`client`]); where no process runs, the command does it itself, on the files of
//! the home. Both call the same function, which works on an [`instance::Instance`].

pub mod adapters;
pub mod agents;
pub mod browser_logins;
pub mod caller;
pub mod client;
pub mod cloud_spend;
pub mod compare;
pub mod costs;
pub mod curves;
mod export;
pub mod figures;
pub mod forgetting;
pub mod home;
pub mod instance;
pub mod lesson_list;
pub mod lessons;
pub mod migration;
pub mod operation;
pub mod operations;
pub mod policy_context;
pub mod privacy;
pub mod replays;
pub mod replies;
pub mod report;
pub mod rollouts;
pub mod schedule_state;
pub mod server;
mod shares;
pub mod status;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod token_budget;
pub mod waiting;
