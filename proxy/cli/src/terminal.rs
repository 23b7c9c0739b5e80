//! The width of the terminal that a subcommand writes to.

use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

/// Returns the number of columns, or `None` if the output is not a terminal or the terminal does not report it.
pub(crate) fn width() -> Option<usize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let columns = tcgetwinsize(&out).ok()?.ws_col;
    (columns > 0).then(|| columns.into())
}
