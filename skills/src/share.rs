//! Shares skills between the machines of one person, or of a team, through a folder or a bucket.
//!
//! Each home has a folder of its own there, with its skills and an index (`index`). It copies its own skills into it
//! (`publish`) and reads the others' (`receive`). A skill of another person is a proposal like one that a model wrote,
//! and waits for the owner's review. A skill of the same person comes into force at once, if its index is signed with
//! the key that both homes have.

mod current;
mod index;
mod publish;
mod receive;
mod report;
mod state;
mod store;
mod sync;

pub use self::{
    index::{ShareError, ShareKey},
    report::{SharePeer, ShareReport},
    store::{FolderStore, ShareFile, ShareStore},
    sync::ShareSync,
};

#[cfg(test)]
mod tests;
