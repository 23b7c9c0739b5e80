//! How a log is opened, and what may be done if it is damaged.

/// The format that this program writes and reads. README.md describes it.
pub(super) const FORMAT: u32 = 4;

/// The occasion on which a log is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// At the start of the program. A damaged database is moved aside. A missing one is reported.
    First,
    /// By a command that only reads. A damaged database is not changed. A missing one is reported.
    Look,
    /// After a running program has lost it. A damaged database is not changed, because it may not be damaged. If it is
    /// missing, a new one is created, because turns are waiting.
    Again {
        /// Whether a value could not be read.
        damaged: bool,
    },
}
