//! X11: the MIT-SCREEN-SAVER extension counts the milliseconds since the last input.

use std::time::Duration;

use x11rb::{
    connection::Connection as _,
    protocol::{screensaver::ConnectionExt as _, xproto::Window},
    rust_connection::RustConnection,
};

/// A connection to an X server.
#[derive(Debug)]
pub(super) struct X11 {
    connection: RustConnection,
    root: Window,
}

// === impl X11 ===

impl X11 {
    /// Connects to `display`, for example `:0`, with the cookie of the owner's `.Xauthority`.
    pub(super) fn open(display: &str) -> Result<Self, String> {
        let opened = RustConnection::connect(Some(display));
        let (connection, screen) = opened.map_err(|error| format!("{display}: {error}"))?;
        let screen = connection.setup().roots.get(screen);
        let root = screen.ok_or("it has no screen")?.root;
        Ok(Self { connection, root })
    }

    pub(super) fn idle_for(&mut self) -> Result<Duration, String> {
        let asked = self.connection.screensaver_query_info(self.root);
        let asked = asked.map_err(|error| error.to_string())?;
        let told = asked.reply().map_err(|error| error.to_string())?;
        Ok(Duration::from_millis(told.ms_since_user_input.into()))
    }
}
