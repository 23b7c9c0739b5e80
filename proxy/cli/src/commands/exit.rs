//! The exit codes of subcommands.

/// Nothing runs: the code of `systemctl status` for this.
pub(crate) const NOT_RUNNING: u8 = 3;

pub(crate) const CODES: [(&str, &str); 5] = [
    ("0", "success"),
    ("1", "failure; standard error says why and what to do"),
    ("2", "no such command, flag or value"),
    ("3", "`status`: no proxy runs in this home"),
    ("130", "`start`: a second signal ended it at once"),
];
