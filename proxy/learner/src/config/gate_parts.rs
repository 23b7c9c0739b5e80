//! `gate.accept_without`: kinds of tests, named.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of test that an adapter passes before it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GatePart {
    /// Whether what it says is as relevant and fluent as what the base model says.
    Replies,
    /// Whether it knows what the base model knows.
    Capability,
    /// Whether agents can work with what it writes.
    Tools,
    /// Whether it prefers what its owner accepted.
    Preference,
}

// === impl GatePart ===

impl GatePart {
    /// What fails often comes first.
    pub(crate) const ALL: [Self; 4] = [
        Self::Replies,
        Self::Capability,
        Self::Tools,
        Self::Preference,
    ];
    /// Those that ask what a model makes of a reply that it did not sample.
    pub(crate) const SCORING: [Self; 3] = [Self::Replies, Self::Capability, Self::Preference];

    pub(crate) fn is_of_chats(self) -> bool {
        match self {
            Self::Replies | Self::Preference => true,
            Self::Capability | Self::Tools => false,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Replies => "replies",
            Self::Capability => "capability",
            Self::Tools => "tools",
            Self::Preference => "preference",
        }
    }
}
