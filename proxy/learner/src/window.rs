//! When a step may begin.

use std::time::Duration;

use crate::config::Mode;

/// Whether a step may begin now, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    /// It may.
    Open,
    /// Weights are not to learn at all.
    Never,
    /// The user is about; away in so long if nothing is said.
    InUse(Duration),
}

/// The window of `mode` when the last main turn ended `quiet` ago (none: there was none yet).
pub(crate) fn window(mode: Mode, quiet: Option<Duration>, idle: Duration) -> Window {
    match (mode, quiet) {
        (Mode::SkillsOnly, _) => Window::Never,
        (Mode::Auto, Some(quiet)) if quiet < idle => Window::InUse(idle.saturating_sub(quiet)),
        (Mode::Rl | Mode::Auto, _) => Window::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_window() {
        let mins = |n: u64| Duration::from_secs(60 * n);
        let at = |mode, quiet| window(mode, quiet, mins(30));
        assert_eq!(at(Mode::SkillsOnly, Some(mins(99))), Window::Never);
        assert_eq!(at(Mode::Rl, Some(mins(0))), Window::Open);
        assert_eq!(at(Mode::Auto, Some(mins(10))), Window::InUse(mins(20)));
        assert_eq!(at(Mode::Auto, Some(mins(30))), Window::Open);
        assert_eq!(at(Mode::Auto, None), Window::Open);
    }
}
