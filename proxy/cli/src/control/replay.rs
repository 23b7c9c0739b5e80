//! A replay as lines: one for each event, as they come. Whoever hangs up ends it.

use std::{io, sync::Arc};

use futures_util::{Stream, StreamExt as _, stream};
use metaclaw_learner::ReplayEvent;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use crate::{app::App, replays::ReplayAsked};

/// Events that may wait to be read. More come only where nobody reads, and those are not told.
const EVENTS: usize = 1_000;

/// The lines of a replay; of one that fails the last says why.
pub(super) fn stream(
    app: Arc<App>,
    asked: ReplayAsked,
) -> impl Stream<Item = io::Result<Vec<u8>>> + Send {
    let (tell, told) = mpsc::channel(EVENTS);
    let lines = stream::unfold(told, |mut told: mpsc::Receiver<Vec<u8>>| async {
        let line = told.recv().await?;
        Some((Ok(line), told))
    });
    // Driven by whoever reads the lines, and so ended with the reading.
    let work = stream::once(work(app, asked, tell)).filter_map(|()| async { None });
    stream::select(lines, work)
}

async fn work(app: Arc<App>, asked: ReplayAsked, tell: mpsc::Sender<Vec<u8>>) {
    let each = tell.clone();
    let told = move |event: ReplayEvent| drop(each.try_send(line(&event)));
    let replayed = tokio::select! {
        replayed = app.replays.run(&app.learner, asked, told) => replayed.map(drop),
        () = app.ending.cancelled() => Err(anyhow::anyhow!("metaclaw is ending")),
    };
    if let Err(error) = replayed {
        let failed = json!({"is": "failed", "why": format!("{error:#}")});
        // Nobody listening is no error.
        tell.send(line(&failed)).await.ok();
    }
}

fn line(event: &impl Serialize) -> Vec<u8> {
    // Of numbers, words and lists, which JSON can hold.
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line
}
