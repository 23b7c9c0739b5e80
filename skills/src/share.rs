//! Shares skills between the machines of one person, or of a team, through a folder or a bucket.
//!
//! Each home has a folder of its own there, with its skills and an index (`index`). It copies its own skills into it
//! (`publish`) and reads the others' (`receive`). A skill of another person is a proposal like one that a model wrote,
//! and waits for the owner's review. A skill of the same person comes into force at once, if its index is signed with
//! the key that both homes have.

mod index;
mod publish;
mod receive;
mod sync;

use serde::{Deserialize, Serialize};

use crate::{file::WriterId, skill::SkillName};

pub use self::{
    index::{FolderStore, ShareError, ShareFile, ShareKey, ShareStore},
    sync::ShareSync,
};

/// The result of a look at a share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareReport {
    /// The time in Unix milliseconds.
    pub at_ms: u64,
    /// This home's name in the share.
    pub writer: Option<WriterId>,
    /// Number of skills that it shares.
    pub n_published: usize,
    /// Skills of this home that are not shared, with the reason.
    pub withheld: Vec<String>,
    /// The other homes.
    pub peers: Vec<SharePeer>,
    /// Numbers of the skills that came now and wait for review.
    pub waiting: Vec<u64>,
    /// Skills of other homes of the same person that came into force now.
    pub in_force: Vec<SkillName>,
    /// Skills that their homes have withdrawn now.
    pub withdrawn: Vec<SkillName>,
    /// Files and homes that are not used, with the reason.
    pub problems: Vec<String>,
}

/// Another home of a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharePeer {
    pub writer: WriterId,
    /// The name that its owner gave. Nobody checks it.
    pub person: String,
    /// The name of its machine. Nobody checks it.
    pub machine: String,
    /// Whether it is signed with `skills.share.key`.
    pub is_own: bool,
    /// Number of skills that it shares.
    pub n_skills: usize,
    /// Number of its skills that wait here.
    pub n_waiting: usize,
    /// Number of its skills that were accepted here.
    pub n_accepted: usize,
}

#[cfg(test)]
mod tests;
