//! The judge of the product under test: the bench's own reward function at a URL, or rules.
//!
//! The function knows the present wish of each agent's owner, so that all agents of a row can share a product. Rules
//! apply to a whole product, so with them each wish has a product of its own.

mod function;
mod rules;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::function::{Function, Owners};
use crate::rows::Phase;

/// The judge of the product under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeKind {
    Http,
    Rules,
}

/// Who judges.
#[derive(Debug)]
pub enum Judge {
    /// `judge.kind: http`.
    Http(Function),
    /// `judge.kind: rules`.
    Rules(Owners),
}

// === impl Judge ===

impl Judge {
    /// Returns `judge.*` for a product whose agents will have these wishes.
    pub fn config(&self, phases: &[Phase]) -> Value {
        match self {
            Self::Http(function) => json!({"kind": "http", "url": function.url}),
            Self::Rules(_) => rules::config(phases),
        }
    }

    /// Returns whether agents of different wishes can share a product.
    pub fn knows_agents(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// The present wishes of each owner.
    pub fn owners(&self) -> &Owners {
        match self {
            Self::Http(function) => &function.owners,
            Self::Rules(owners) => owners,
        }
    }
}
