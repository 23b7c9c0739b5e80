//! Tracks: agents that do tasks of a kind, so that nobody has to write a program for them.
//!
//! A track's agent keeps the contract of any program that is run on a task. It reads the task from the file that
//! `METACLAW_TASK` names, talks to the model at `OPENAI_BASE_URL`, and writes its score to the file that
//! `METACLAW_REWARD` names.

mod checks;
mod episode;
mod error;
mod gui;
mod policy;
mod reward;
mod settings;
mod shell;
mod swe;
mod task;
mod terminal;
mod toolcall;

#[cfg(test)]
mod tests;

use std::str::FromStr;

use futures_util::future::LocalBoxFuture;

use self::{
    episode::run, gui::GuiEpisode, shell::ShellEpisode, swe::SweTask, task::EpisodeStart,
    terminal::TerminalTask, toolcall::ToolcallEpisode,
};
pub use self::{
    error::AgentError,
    policy::PolicyRequestError,
    reward::EpisodeScore,
    settings::{AgentSettings, AgentSettingsError},
    task::TaskFileError,
};

/// A kind of task that has an agent built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Track {
    /// Commands in a shell, and a script that checks what they did.
    Terminal,
    /// Calls of tools whose replies the task gives.
    Toolcall,
    /// Repositories with an issue, and tests that say whether it is solved.
    Swe,
    /// A screen that an environment server shows.
    Gui,
}

/// A text that names no track.
#[derive(Debug, thiserror::Error)]
#[error("track {given:?} is not known: use {}", names())]
pub struct UnknownTrack {
    given: String,
}

// === impl Track ===

impl Track {
    pub const ALL: [Self; 4] = [Self::Terminal, Self::Toolcall, Self::Swe, Self::Gui];

    pub fn name(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Toolcall => "toolcall",
            Self::Swe => "swe",
            Self::Gui => "gui",
        }
    }

    /// Runs the track's agent on the task of its settings, and writes its score.
    ///
    /// # Errors
    /// If it does not run to its end. Nothing is written then, and the episode counts for nothing.
    ///
    /// # Cancel safety
    /// If the future is dropped, the agent's commands are killed.
    pub fn run_agent(
        self,
        settings: &AgentSettings,
        http: reqwest::Client,
    ) -> LocalBoxFuture<'_, Result<EpisodeScore, AgentError>> {
        Box::pin(async move {
            let start = EpisodeStart {
                settings,
                options: task::read(settings)?,
                http,
            };
            let score = match self {
                Self::Terminal => run::<ShellEpisode<'_, TerminalTask>>(&start).await,
                Self::Toolcall => run::<ToolcallEpisode<'_>>(&start).await,
                Self::Swe => run::<ShellEpisode<'_, SweTask>>(&start).await,
                Self::Gui => run::<GuiEpisode>(&start).await,
            }?;
            score.write(settings)?;
            Ok(score)
        })
    }
}

impl FromStr for Track {
    type Err = UnknownTrack;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|track| track.name() == text);
        known.ok_or_else(|| UnknownTrack {
            given: text.to_owned(),
        })
    }
}

// === functions ===

fn names() -> String {
    Track::ALL.map(Track::name).join(", ")
}
