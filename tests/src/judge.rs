//! A reward function that records its requests, which show what the product takes for evidence.

use metaclaw_test_kit::{Reply, Server};
use serde_json::{Value, json};

/// A running reward function, which rates every turn as good.
pub struct Judge {
    /// The address, for `judge.url`.
    pub url: String,
    server: Server,
}

impl Judge {
    pub fn start() -> Self {
        let server = Server::new(|request| {
            let n_turns = request.json()["turns"].as_array().map_or(0, Vec::len);
            Reply::json(json!({ "scores": vec![1; n_turns] }))
        });
        Self {
            url: format!("{}/score", server.url()),
            server,
        }
    }

    /// Returns every turn that it was asked about, with the evidence: `{id, request, reply, next, ..}`.
    pub fn asked(&self) -> Vec<Value> {
        let asked = self.server.asked().into_iter();
        asked
            .flat_map(|it| it.json()["turns"].as_array().cloned().unwrap_or_default())
            .collect()
    }
}
