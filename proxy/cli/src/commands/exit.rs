//! The exit codes of subcommands.

/// Nothing runs: the code of `systemctl status` for this.
pub(crate) const NOT_RUNNING: u8 = 3;

/// Every code and its meaning.
pub(crate) const CODES: [(&str, &str); 5] = [
    ("0", "it was done"),
    ("1", "it was not; standard error says why and what helps"),
    ("2", "there is no such command, flag or value"),
    ("3", "`status`, `learn`: nothing runs in this home"),
    ("130", "`start`: ended at once, by a second signal"),
];
