//! The lines of an operation that tells how it goes.

use std::{io, sync::Arc};

use futures_util::{Stream, StreamExt as _, stream};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::instance::Instance;

/// Events that may wait to be read. More come only where nobody reads, and those are not told.
const EVENTS: usize = 1_000;

#[derive(Debug, Clone)]
pub(super) struct EventTeller(mpsc::Sender<Vec<u8>>);

// === impl EventTeller ===

impl EventTeller {
    pub(super) fn tell(&self, event: &impl Serialize) {
        // Nobody listening is no error.
        drop(self.0.try_send(line(event)));
    }

    /// Tells the last event, which waits until there is room.
    pub(super) async fn tell_last(&self, event: &impl Serialize) {
        self.0.send(line(event)).await.ok();
    }
}

/// A line for each event of some work, as they come; the last one of work that fails says why. The work ends if the
/// client disconnects.
pub(super) fn event_lines<E, F>(
    instance: Arc<Instance>,
    work: impl FnOnce(Arc<Instance>, EventTeller) -> F + Send + 'static,
    failed: fn(String) -> E,
) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static
where
    E: Serialize + Send + Sync + 'static,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let (tell, told) = mpsc::channel(EVENTS);
    let lines = stream::unfold(told, |mut told: mpsc::Receiver<Vec<u8>>| async {
        let line = told.recv().await?;
        Some((Ok(line), told))
    });
    let teller = EventTeller(tell);
    let work = work(Arc::clone(&instance), teller.clone());
    let all = async move {
        let ending = async {
            match instance.running() {
                Some(rooms) => rooms.run.ending.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            done = work => done,
            () = ending => Err(anyhow::anyhow!("metaclaw is ending")),
        };
        if let Err(error) = done {
            teller.tell_last(&failed(format!("{error:#}"))).await;
        }
    };
    // The work runs only while somebody reads the lines, so it ends when the reading ends.
    let work = stream::once(Box::pin(all)).filter_map(|()| async { None });
    stream::select(lines, work)
}

fn line(event: &impl Serialize) -> Vec<u8> {
    // Of numbers, words and lists, which JSON can hold.
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line
}
