//! A reward function: it receives `{"turns": [..]}` and returns `{"scores": [..]}`
//! (docs/extending/reward-functions.md).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use axum::{Json, Router, extract::State, routing::post};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use crate::owner::{Owner, THANKS};

/// The present wishes of each agent's owner.
#[derive(Debug, Clone, Default)]
pub struct Owners(Arc<Mutex<BTreeMap<String, Owner>>>);

/// The function, on a port that the system chooses; it ends on drop.
#[derive(Debug)]
pub struct Function {
    pub url: String,
    pub owners: Owners,
    _server: JoinSet<()>,
}

// === impl Owners ===

impl Owners {
    /// Sets the wish of this agent's owner from now on.
    pub fn set(&self, agent: &str, owner: &Owner) {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.insert(agent.to_owned(), owner.clone());
    }

    /// Returns one score for each turn: whether its reply does what its agent's owner wishes. A reply to thanks, which
    /// answers no question, and a turn of an unknown agent get none.
    fn scores(&self, body: &Value) -> Vec<Option<i8>> {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = body["turns"].as_array().into_iter().flatten();
        let score = |turn: &Value| {
            let owner = owners.get(turn["agent"].as_str()?)?;
            let reply = turn["reply"]["content"].as_str()?;
            let is_question = said_last(turn)? != THANKS;
            is_question.then(|| if owner.is_content(reply) { 1 } else { -1 })
        };
        turns.map(score).collect()
    }
}

/// Returns what the owner said before the reply: only the owner's words, if MetaClaw added lines below them.
fn said_last(turn: &Value) -> Option<&str> {
    let messages = turn["request"]["messages"].as_array()?;
    let last = messages.iter().rfind(|it| it["role"] == "user")?;
    last["content"].as_str()?.lines().next()
}

// === impl Function ===

impl Function {
    pub async fn start() -> Result<Self> {
        let owners = Owners::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/scores", listener.local_addr()?);
        let app = Router::new()
            .route("/scores", post(answer))
            .with_state(owners.clone());
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, app)
                .await
                .expect("serving on loopback");
        });
        Ok(Self {
            url,
            owners,
            _server: server,
        })
    }
}

async fn answer(State(owners): State<Owners>, Json(body): Json<Value>) -> Json<Value> {
    Json(json!({"scores": owners.scores(&body)}))
}

#[cfg(test)]
mod tests {
    use metaclaw_tests::client::Client;

    use super::*;
    use crate::content::Content;

    #[tokio::test]
    async fn each_reply_is_judged_by_its_own_owner() {
        let function = Function::start().await.unwrap();
        let content = Content::read(60).unwrap();
        for wish in ["terse", "hello"] {
            let mut owner = Owner::default();
            owner.wishes(Arc::clone(content.wish(wish).unwrap()));
            function.owners.set(wish, &owner);
        }
        let turn = |agent: &str, said: &str| {
            json!({"agent": agent, "request": {"messages": [{"role": "user", "content": said}]},
                "reply": {"role": "assistant", "content": "Boil it."}})
        };
        let thanked = turn("terse", "Thanks.\n\nPlease answer in one short sentence.");
        let turns = [
            turn("terse", "How?"),
            turn("hello", "How?"),
            turn("nobody", "How?"),
            thanked,
        ];
        let client = Client::new(function.url.trim_end_matches("/scores"));
        let answer = client
            .post("/scores", &json!({"turns": turns}))
            .send()
            .await
            .unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer, json!({"scores": [1, -1, null, null]}));
    }
}
