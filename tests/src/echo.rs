//! An upstream for many conversations at once: it repeats what it was told, at a set pace.
//!
//! So every reply, in the log or at the client, shows which request it answers.

use std::time::Duration;

use metaclaw_test_kit::{Reply, Server, chat};

use crate::upstream::Received;

/// A running upstream. It has streamed chat completions only.
pub struct Echo {
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
    server: Server,
}

/// Returns the reply to `told`: the same text, and this many words more.
pub fn reply(told: &str, words: usize) -> String {
    (1..=words).fold(told.to_owned(), |text, n| format!("{text} {n}"))
}

impl Echo {
    /// Starts an upstream whose replies have `words` additional words, and an event every `every`.
    #[expect(clippy::disallowed_methods, reason = "the pace of a model")]
    pub fn start(words: usize, every: Duration) -> Self {
        let server = Server::new(move |request| {
            let request = request.json();
            let messages = request["messages"].as_array();
            let told = messages.and_then(|messages| messages.last()?["content"].as_str());
            let events = chat::stream(&reply(told.unwrap_or_default(), words));
            Reply::events(
                events
                    .into_iter()
                    .inspect(move |_| std::thread::sleep(every)),
            )
        });
        Self {
            base_url: server.url(),
            server,
        }
    }

    /// Returns every request so far.
    pub fn received(&self) -> Vec<Received> {
        self.server.asked()
    }
}
