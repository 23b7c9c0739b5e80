//! Chooses the answer by the route.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use metaclaw_test_kit::{Reply as Sent, Request};
use serde_json::{Value, json};

use super::{
    api::Api,
    play::{Asked, Call, MODEL, PROMPT_TOKENS, Play, Reply, Said},
};

type Script = Box<dyn Fn(&Asked<'_>) -> Play + Send + Sync>;

/// A script, and how many requests came of each path and model.
pub(super) struct Routes {
    script: Script,
    n_asked: Mutex<BTreeMap<(String, String), usize>>,
}

impl Routes {
    pub(super) fn new(script: impl Fn(&Asked<'_>) -> Play + Send + Sync + 'static) -> Self {
        Self {
            script: Box::new(script),
            n_asked: Mutex::default(),
        }
    }

    pub(super) fn answer(&self, request: &Request) -> Sent {
        let (path, body) = (request.path(), request.json());
        let model = body["model"].as_str().unwrap_or_default();
        let (n_before, number) = {
            let mut n_asked = self.n_asked.lock().unwrap_or_else(PoisonError::into_inner);
            let n = n_asked
                .entry((path.to_owned(), model.to_owned()))
                .or_default();
            *n += 1;
            (*n - 1, n_asked.values().sum())
        };
        let Some(api) = Api::of_path(path) else {
            return beside(path);
        };
        let play = (self.script)(&Asked {
            path,
            model,
            n_before,
            request,
            body: &body,
        });
        perform(api, play, &body, number)
    }
}

fn perform(api: Api, play: Play, request: &Value, number: usize) -> Sent {
    let (said, without) = match play {
        Play::Text(text) | Play::Cut(text) | Play::Stall(text) => (Said::Text(text), None),
        Play::Thought(thought, text) => (Said::Thought(thought, text), None),
        Play::Tool { then, .. } if api.has_result(request) => (Said::Text(then), None),
        Play::Tool { command, .. } => (Said::Call(Call::exec(command)), None),
        Play::Call { name, arguments } => {
            let arguments = arguments.to_owned();
            let call = Call {
                number,
                name,
                arguments,
            };
            (Said::Call(call), None)
        }
        Play::Without(part, text) => (Said::Text(text), Some(part)),
        Play::Refuse(failure) => {
            let refusal = Sent::status(failure.status(), api.error(failure));
            let limits = api.limits(failure).iter();
            return limits.fold(refusal, |sent, (name, value)| sent.header(name, value));
        }
        // The message is that of common server frameworks.
        Play::Unknown => return Sent::status(404, json!({"detail": "Not Found"})),
    };
    let reply = Reply {
        said,
        without,
        number,
    };
    let is_whole = !matches!(play, Play::Cut(_) | Play::Stall(_));
    if request["stream"] == true {
        let mut events = api.events(&reply);
        if !is_whole {
            events.truncate(events.len() / 2);
        }
        let events = Sent::events(events);
        return match play {
            Play::Cut(_) => events.cut(0),
            Play::Stall(_) => events.stalled(),
            _ => events,
        };
    }
    let whole = api.whole(&reply).to_string();
    let half = whole.len() / 2;
    match play {
        Play::Cut(_) => Sent::json(whole).cut(half),
        Play::Stall(_) => Sent::silence(),
        _ => Sent::json(whole),
    }
}

/// The model that OpenClaw asks for: `doctor` looks whether it is listed.
const OPENCLAWS: &str = "text";

/// Answers routes that are not chats.
fn beside(path: &str) -> Sent {
    match path {
        "/v1/models" => {
            // The body has the fields of both providers, of which each package reads its own.
            let model = |id: &str| {
                json!({"id": id, "object": "model", "created": 1, "owned_by": "nobody",
                "type": "model", "display_name": "Mock", "created_at": "2026-01-01T00:00:00Z"})
            };
            let models = [model(MODEL), model(OPENCLAWS)];
            let list = json!({"object": "list", "data": models, "has_more": false,
                "first_id": MODEL, "last_id": OPENCLAWS});
            Sent::json(list)
        }
        "/v1/messages/count_tokens" => Sent::json(json!({"input_tokens": PROMPT_TOKENS})),
        "/v1/embeddings" => {
            let vector =
                json!({"object": "embedding", "index": 0, "embedding": [0.5, -0.25, 1e-7]});
            let usage = json!({"prompt_tokens": 3, "total_tokens": 3});
            let list = json!({"object": "list", "data": [vector], "model": MODEL, "usage": usage});
            Sent::json(list)
        }
        _ => {
            let message = format!("{path} is not in the script");
            Sent::status(
                404,
                json!({"error": {"message": message, "type": "not_found"}}),
            )
        }
    }
}
