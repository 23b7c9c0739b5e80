//! The stream that tells a browser that something changed.
//!
//! Each event is a hash of what the views show most: turns and their verdicts, lessons, what waits, and what the
//! learner does. The script then fetches its page again. All open pages share one hash, which is made at most once a
//! second, of little that is read from the log.

use std::{convert::Infallible, time::Duration};

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, stream};
use metaclaw_chat::now_ms;
use metaclaw_control::operations::{
    lessons::{GetJournal, ListProposals},
    turns::TurnsQuery,
};
use serde::Serialize;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::state::PageState;

const EVERY: Duration = Duration::from_secs(1);
/// How old a hash may be that an open page gets: less than [`EVERY`], so that each page gets a new one every time.
const FRESH: Duration = Duration::from_millis(800);
const TURNS: usize = 60;

/// A stream that ends when the browser goes or the process ends.
struct ChangeFeed {
    state: PageState,
    ticks: Interval,
    last: Option<blake3::Hash>,
}

/// Tells the browser of changes; the first event comes at once.
pub(crate) fn events(state: PageState) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let feed = ChangeFeed {
        state,
        ticks,
        last: None,
    };
    Sse::new(stream::unfold(feed, next)).keep_alive(KeepAlive::default())
}

async fn next(mut feed: ChangeFeed) -> Option<(Result<Event, Infallible>, ChangeFeed)> {
    loop {
        tokio::select! {
            _ = feed.ticks.tick() => {}
            () = feed.state.ended() => return None,
        }
        let now = feed
            .state
            .shared_hash(FRESH, fingerprint(&feed.state))
            .await;
        if feed.last != Some(now) {
            feed.last = Some(now);
            let event = Event::default().event("change").data(now.to_hex().as_str());
            return Some((Ok(event), feed));
        }
    }
}

/// A hash of what may have changed. A part that does not answer counts as empty, so its return is a change.
async fn fingerprint(state: &PageState) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let turns = TurnsQuery {
        limit: TURNS,
        ..TurnsQuery::default()
    };
    add(&mut hasher, state.ask(turns).await.ok().as_ref());
    add(&mut hasher, state.ask(GetJournal).await.ok().as_ref());
    add(&mut hasher, state.ask(ListProposals).await.ok().as_ref());
    if let Some(rooms) = state.running() {
        add(&mut hasher, Some(&rooms.gateway.privacy.switch.off()));
        add(&mut hasher, Some(&rooms.trainer_status()));
        add(&mut hasher, Some(&rooms.learning.budget.spend(now_ms())));
        let adapters = rooms.gateway.serving.in_use().into_iter();
        let adapters: Vec<_> = adapters.map(|(name, _)| name.to_string()).collect();
        add(&mut hasher, Some(&adapters));
        hasher.update(rooms.learning.learner.notes().as_bytes());
    }
    hasher.update(format!("{:?}", state.long_tasks()).as_bytes());
    hasher.finalize()
}

fn add<T: Serialize>(hasher: &mut blake3::Hasher, part: Option<&T>) {
    // Replies of operations are sent as JSON elsewhere, so they can be written as such.
    hasher.update(&serde_json::to_vec(&part).unwrap_or_default());
    hasher.update(&[0]);
}
