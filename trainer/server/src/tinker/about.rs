//! The description of a model: its rank, and which of its modules are trained.

use std::sync::{Mutex, PoisonError};

use metaclaw_engine::lora::LoraTargets;
use metaclaw_trainer_api::{tinker::json::LoraConfig, wire::CreateRequest};

use super::stored::Origin;

/// A model's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) rank: u32,
    pub(crate) train_attn: bool,
    pub(crate) train_mlp: bool,
    pub(crate) train_unembed: bool,
}

/// A model's description, once it is known. Loading a checkpoint changes it.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Option<About>>);

// === impl About ===

impl From<&LoraConfig> for About {
    fn from(lora: &LoraConfig) -> Self {
        Self {
            rank: lora.rank,
            train_attn: lora.train_attn,
            train_mlp: lora.train_mlp,
            train_unembed: lora.train_unembed,
        }
    }
}

impl From<&Origin> for About {
    fn from(origin: &Origin) -> Self {
        Self {
            rank: origin.rank,
            train_attn: origin.train_attn,
            train_mlp: origin.train_mlp,
            train_unembed: origin.train_unembed,
        }
    }
}

impl About {
    pub(crate) fn targets(self) -> LoraTargets {
        LoraTargets::groups(self.train_attn, self.train_mlp, self.train_unembed)
    }

    /// Returns the shape of a run of this rank with these modules.
    pub(crate) fn run(self, seed: Option<u64>) -> CreateRequest {
        let names = self.targets().names().into_iter();
        CreateRequest {
            rank: self.rank,
            seed,
            targets: Some(names.map(str::to_owned).collect()),
            ..CreateRequest::default()
        }
    }
}

// === impl Known ===

impl Known {
    pub(crate) fn get(&self) -> Option<About> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, about: About) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(about);
    }
}
