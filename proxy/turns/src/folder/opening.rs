//! When a log is opened: what may be done about one that is damaged.

/// The format that this program writes and reads; docs/extending/turn-log.md describes it.
pub(super) const FORMAT: u32 = 4;

/// When a log is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// When the program starts. A damaged database is moved aside; one that is gone is said.
    First,
    /// When somebody only looks. A damaged database is left alone; one that is gone is said.
    Look,
    /// When a running program has lost it. A damaged database is left alone, in case it is not damaged after
    /// all; one that is gone begins anew: turns wait.
    Again {
        /// Whether something in it did not read.
        damaged: bool,
    },
}
