//! Who judges in the product: the bench's own reward function behind a URL, or rules.
//!
//! The function knows of each agent what its owner wishes just now, so that all agents of a row share a product. Rules
//! hold for a whole product: with them each wish has one of its own.

mod function;
mod rules;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::function::{Function, Owners};
use crate::rows::Phase;

/// Who judges in the product.
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
    /// `judge.*` of a product whose agents come to these wishes.
    pub fn config(&self, phases: &[Phase]) -> Value {
        match self {
            Self::Http(function) => json!({"kind": "http", "url": function.url}),
            Self::Rules(_) => rules::config(phases),
        }
    }

    /// Whether agents of different wishes can share a product.
    pub fn knows_agents(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// Where every owner says what she wishes by now.
    pub fn owners(&self) -> &Owners {
        match self {
            Self::Http(function) => &function.owners,
            Self::Rules(owners) => owners,
        }
    }
}
