//! An upstream that follows a script, in place of a cloud service that tests cannot reach.
//!
//! It has chat completions, Responses and Anthropic messages in their providers' forms, streamed and whole, and a few
//! other routes; it stores every request, as bytes, and records when a client disconnects.

mod api;
mod chat;
mod json;
mod messages;
mod play;
mod responses;
mod routes;

use std::time::SystemTime;

pub use metaclaw_test_kit::Request as Received;
use metaclaw_test_kit::Server;

pub use self::play::{Asked, CACHED_TOKENS, COMPLETION_TOKENS, Failure, PROMPT_TOKENS, Part, Play};
use self::routes::Routes;

pub struct Upstream {
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
    server: Server,
}

impl Upstream {
    /// Starts an upstream that does the same with every request.
    pub fn start(play: Play) -> Self {
        Self::scripted(move |_| play)
    }

    /// Starts an upstream that handles each request for a reply as `script` says.
    pub fn scripted(script: impl Fn(&Asked<'_>) -> Play + Send + Sync + 'static) -> Self {
        let routes = Routes::new(script);
        let server = Server::new(move |request| routes.answer(request));
        Self {
            base_url: server.url(),
            server,
        }
    }

    /// Returns every request so far.
    pub fn received(&self) -> Vec<Received> {
        self.server.asked()
    }

    /// Returns when clients gave up their replies.
    pub fn hang_ups(&self) -> Vec<SystemTime> {
        self.server.hang_ups()
    }
}
