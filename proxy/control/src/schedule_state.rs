//! What the scheduler knew when the last process of a home ended.

use std::io;

use metaclaw_schedule::SavedState;
use metaclaw_skills::read_text;
use tracing::warn;

use crate::home::Home;

const MAX_STATE: u64 = 1 << 20;

/// What an earlier process knew; a file that says nothing is written anew.
pub fn saved(home: &Home) -> Option<SavedState> {
    let path = home.scheduler_state();
    match read_text(&path, MAX_STATE) {
        Ok(text) => SavedState::parse(&text)
            .inspect_err(|error| warn!(path = %path.display(), %error, "it is written anew"))
            .ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            warn!(path = %path.display(), %error, "what was known of your hours cannot be read");
            None
        }
    }
}
