//! An upstream that says what it is told to, which is a training server as well.

use std::net::SocketAddr;

pub(crate) use metaclaw_test_kit::{
    Home, Reply, Request, Running, Server, exchange, gone, has, training, until,
};
use serde_json::{Value, json};

/// The key of the one who lists its models.
const KEY: &str = "Bearer sk-0123456789abcd";

/// An upstream that answers every chat with the same words; ends when dropped.
pub(crate) struct Upstream {
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    server: Server,
}

impl Upstream {
    pub(crate) fn new() -> Self {
        let server = Server::new(answer);
        Self {
            url: format!("{}/v1", server.url()),
            address: server.address,
            server,
        }
    }

    fn chats(&self) -> Vec<Request> {
        self.server.asked_of("/v1/chat/completions")
    }

    pub(crate) fn shown(&self) -> String {
        let chats = self.chats();
        let shown = chats.last().and_then(|it| it.header("authorization"));
        shown.unwrap_or_default().to_owned()
    }

    /// The models that it was asked for, other than to hear wishes.
    pub(crate) fn models(&self) -> Vec<String> {
        let chats = self.chats().into_iter().map(|it| it.json());
        let of_agents = chats.filter(|it| !is_hearing(it));
        let model = |it: Value| it["model"].as_str().unwrap_or_default().to_owned();
        of_agents.map(model).collect()
    }

    pub(crate) fn n_asked(&self) -> usize {
        let chats = self.chats();
        chats.iter().filter(|it| !is_hearing(&it.json())).count()
    }
}

pub(crate) async fn started() -> (Upstream, Home, Running) {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let proxy = home.start().await;
    (upstream, home, proxy)
}

/// What was typed, to hear wishes in it: an answer that says nothing leaves that to the rules.
fn is_hearing(request: &Value) -> bool {
    let system = request["messages"][0]["content"].as_str();
    system.is_some_and(|text| text.starts_with("You read what a person said"))
}

/// As a trainer that has every adapter but those called `lost…`, of those called `nan…` can draw nothing, and refuses to
/// load those called `refused…`.
fn answer(request: &Request) -> Reply {
    let (path, body) = (request.path(), request.json());
    let model = body["model"].as_str().unwrap_or_default();
    match path {
        "/v1/models" if request.header("authorization") == Some(KEY) => {
            let model = |id: &str| json!({"id": id, "object": "model"});
            let models = ["scripted", "another", "m", "next"].map(model);
            Reply::json(json!({"data": models}))
        }
        "/v1/models" => {
            let error = json!({"message": "Incorrect API key provided."});
            Reply::status(401, json!({"error": error}))
        }
        "/v1/load_lora_adapter" if body["lora_name"].to_string().starts_with("\"refused") => {
            training::refusal(400, "its rank is too large", "adapter_refused")
        }
        "/v1/sample" if model.starts_with("nan") => {
            let why = "the model's logits are not finite";
            training::refusal(500, why, "weights_not_finite")
        }
        "/v1/sample" | "/v1/chat/completions" if model.starts_with("lost") => {
            let why = format!("model {model:?} is not here");
            training::refusal(404, &why, "model_not_found")
        }
        "/v1/sample" | "/v1/load_lora_adapter" => training::answer(request),
        "/v1/chat/completions" if is_hearing(&body) => says(&body, "I do not know."),
        "/v1/chat/completions" => {
            let n_messages = n_of(&body["messages"]);
            says(&body, &format!("answer to {n_messages}"))
        }
        _ => Reply::status(404, "{}"),
    }
}

pub(crate) fn says(request: &Value, text: &str) -> Reply {
    let n_messages = n_of(&request["messages"]);
    let mut reply = metaclaw_test_kit::chat::says(text);
    reply["id"] = json!(format!("chatcmpl-{n_messages}"));
    reply["model"] = request["model"].clone();
    Reply::json(reply)
}

pub(crate) fn n_of(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}
