//! Turns of another log on their way into this one, in pieces: `turns import` of an export, `doctor --fix`.

use metaclaw_control::{caller::ControlCaller, operations::turns::Restore};
use metaclaw_turns::{ImportOutcome, MAX_RESTORE, RestoredTurn, Restoring, Turn};

/// Bytes of a piece, unless one turn alone has more.
const PIECE: usize = 8 << 20;

pub(super) struct RestorePieces<'s> {
    caller: &'s ControlCaller,
    restoring: Restoring,
    piece: Vec<RestoredTurn>,
    n_bytes: usize,
    outcome: ImportOutcome,
}

// === impl RestorePieces ===

impl<'s> RestorePieces<'s> {
    pub(super) fn new(caller: &'s ControlCaller) -> Self {
        Self {
            caller,
            restoring: Restoring::default(),
            piece: Vec::new(),
            n_bytes: 0,
            outcome: ImportOutcome::default(),
        }
    }

    pub(super) async fn add(&mut self, turn: Turn, n_bytes: usize) -> anyhow::Result<()> {
        if self.piece.len() >= MAX_RESTORE || self.n_bytes + n_bytes > PIECE {
            self.send().await?;
        }
        self.n_bytes += n_bytes;
        self.piece.push(self.restoring.next(turn));
        Ok(())
    }

    /// All of them are in the log, or were: how many.
    pub(super) async fn finish(mut self) -> anyhow::Result<ImportOutcome> {
        self.send().await?;
        Ok(self.outcome)
    }

    async fn send(&mut self) -> anyhow::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        self.n_bytes = 0;
        let ImportOutcome { n_new, n_known } = self.caller.call(Restore(piece)).await?;
        self.outcome.n_new += n_new;
        self.outcome.n_known += n_known;
        Ok(())
    }
}
