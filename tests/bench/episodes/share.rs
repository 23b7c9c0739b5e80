//! What is trained on, and what is held out.

use crate::draw::SeededDraw;

/// Which tasks are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    Train,
    HeldOut,
}

/// Texts for training, and others for the held-out tasks.
#[derive(Debug)]
pub struct SharedOut {
    pub train: &'static [&'static str],
    pub held_out: &'static [&'static str],
}

// === impl Share ===

impl Share {
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::HeldOut => "held-out",
        }
    }
}

// === impl SharedOut ===

impl SharedOut {
    pub fn pick(&self, share: Share, draw: &mut SeededDraw) -> &'static str {
        match share {
            Share::Train => draw.pick(self.train),
            Share::HeldOut => draw.pick(self.held_out),
        }
    }
}
