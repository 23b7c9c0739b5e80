//! `metaclaw learn`: looks on while it learns.
//!
//! In a terminal one picture, drawn in place; into a pipe one line for each thing that happens.

use std::{io::IsTerminal, io::Read as _, process::ExitCode, thread, time::Duration};

use clap::Args;
use metaclaw_chat::now_ms;
use metaclaw_control::{
    client::{ControlClient, ControlError},
    operations::{lessons::GetJournal, process::GetStatus, turns::TurnsQuery},
};
use tokio::{
    sync::mpsc::{Receiver, channel},
    time::{MissedTickBehavior, interval},
};

use self::view::LearnView;
use super::{context::Context, exit, status::not_running};
use crate::{
    out,
    signals::Signals,
    terminal::{self, Screen, WindowSize},
};

mod events;
mod picture;
mod verdict_line;
mod view;

/// Of a terminal that does not say its own.
const USUAL_WINDOW: WindowSize = WindowSize {
    columns: 80,
    rows: 24,
};
/// How often the running process is asked.
const EVERY: Duration = Duration::from_secs(1);
/// Turns among which the last verdicts are looked for.
const TURNS: usize = 60;

/// Arguments of `learn`.
#[derive(Debug, Args)]
pub(crate) struct LearnArgs {
    /// One line for each thing that happens, in a terminal too.
    #[arg(long)]
    lines: bool,
    /// How it is now, once, as JSON.
    #[arg(long, conflicts_with = "lines")]
    json: bool,
}

// === impl LearnArgs ===

impl LearnArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let Some(client) = ControlClient::of_running(&context.home).await? else {
            return not_running(context, self.json);
        };
        if self.json {
            out::json(&look(&client).await?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let screen = if self.lines || !std::io::stdout().is_terminal() {
            None
        } else {
            Some(Screen::begin()?)
        };
        let ended = watch(&client, screen.as_ref()).await;
        // The terminal comes back before anything is said.
        drop(screen);
        match ended {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) if has_ended(context, &error) => {
                out::aside("metaclaw has ended");
                Ok(ExitCode::from(exit::NOT_RUNNING))
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the process that was asked is gone.
fn has_ended(context: &Context, error: &anyhow::Error) -> bool {
    let is_away = matches!(
        error.downcast_ref::<ControlError>(),
        Some(ControlError::Unreachable { .. })
    );
    is_away && matches!(context.home.run_file(), Ok(None))
}

/// Shows what there is until the person leaves, or nobody reads.
async fn watch(client: &ControlClient, screen: Option<&Screen>) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let has_keys = screen.is_some() && std::io::stdin().is_terminal();
    let mut keys = has_keys.then(keyboard);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<LearnView> = None;
    loop {
        tokio::select! {
            () = signals.next() => return Ok(()),
            key = pressed(&mut keys) => match key {
                Some(b'q' | b'Q' | 0x1b) => return Ok(()),
                Some(_) => {}
                // The keyboard is gone; the picture may be looked at all the same.
                None => keys = None,
            },
            _ = ticks.tick() => {
                let view = look(client).await?;
                if let Some(screen) = screen {
                    let size = terminal::size().unwrap_or(USUAL_WINDOW);
                    screen.draw(&picture::lines(&view, size, now_ms()))?;
                } else {
                    let lines = events::lines(last.as_ref(), &view);
                    if !out::lines_are_read(&lines)? {
                        return Ok(());
                    }
                }
                last = Some(view);
            }
        }
    }
}

/// All that is shown, asked for at once.
async fn look(client: &ControlClient) -> Result<LearnView, ControlError> {
    let turns = TurnsQuery {
        limit: TURNS,
        ..TurnsQuery::default()
    };
    let (status, lessons, turns) = tokio::try_join!(
        client.call(&GetStatus),
        client.call(&GetJournal),
        client.call(&turns),
    )?;
    Ok(LearnView {
        status,
        lessons,
        turns,
    })
}

/// Keys as they are pressed, read on a thread that ends with the process.
fn keyboard() -> Receiver<u8> {
    let (sender, keys) = channel(8);
    thread::spawn(move || {
        let mut key = [0];
        while let Ok(1) = std::io::stdin().read(&mut key) {
            if sender.blocking_send(key[0]).is_err() {
                return;
            }
        }
    });
    keys
}

/// The next key; without a keyboard there is none, ever.
async fn pressed(keys: &mut Option<Receiver<u8>>) -> Option<u8> {
    match keys {
        Some(keys) => keys.recv().await,
        None => std::future::pending().await,
    }
}
