//! The terminal that a subcommand writes to: its size, single keys, and a picture that is drawn in place.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The size of a window, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// The terminal's columns; none where the output is no terminal, or it does not say.
pub(crate) fn width() -> Option<usize> {
    size().map(|size| size.columns)
}

/// Its size, asked anew each time: a window may be resized.
pub(crate) fn size() -> Option<WindowSize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = tcgetwinsize(&out).ok()?;
    let known = size.ws_col > 0 && size.ws_row > 0;
    known.then(|| WindowSize {
        columns: size.ws_col.into(),
        rows: size.ws_row.into(),
    })
}

/// A screen of its own, until it is dropped: what stood in the terminal before comes back.
#[derive(Debug)]
pub(crate) struct Screen {
    out: io::Stdout,
    /// How the keyboard was; none where standard input is no terminal.
    before: Option<Termios>,
}

// === impl Screen ===

impl Screen {
    /// Begins it. Keys are read one by one and not shown; Ctrl-C stays a signal.
    ///
    /// # Errors
    /// The terminal's.
    pub(crate) fn begin() -> io::Result<Self> {
        let keyboard = io::stdin();
        let before = tcgetattr(&keyboard).ok();
        if let Some(before) = &before {
            let mut single = before.clone();
            single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            tcsetattr(&keyboard, OptionalActions::Now, &single)?;
        }
        let out = io::stdout();
        let screen = Self { out, before };
        screen.write(b"\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    /// Draws lines from the top, in place of what stood there. They are safe for a terminal.
    ///
    /// # Errors
    /// The terminal's.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let mut picture = String::from("\x1b[H");
        for line in lines {
            picture.push_str(line);
            // What an earlier, longer line left.
            picture.push_str("\x1b[K\r\n");
        }
        picture.truncate(picture.len().saturating_sub(2));
        picture.push_str("\x1b[J");
        self.write(picture.as_bytes())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = self.out.lock();
        out.write_all(bytes)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        self.write(b"\x1b[?25h\x1b[?1049l").ok();
        if let Some(before) = &self.before {
            tcsetattr(io::stdin(), OptionalActions::Now, before).ok();
        }
    }
}
