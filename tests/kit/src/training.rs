//! A training server, as far as the proxy asks one that trains nothing.

use serde_json::{Value, json};

use crate::{chat, reply::Reply, request::Request};

/// What a server says of its health that has a model and all that a proxy needs.
pub fn health(model: &str) -> Value {
    let capabilities = json!({"sampled": true, "forward": true, "manifests": true});
    json!({"status": "healthy", "model": model, "capabilities": capabilities})
}

/// Answers for a server that has every adapter. One that loads none, or draws from none, comes before it.
pub fn answer(request: &Request) -> Reply {
    match request.path() {
        "/v1/health" => Reply::json(health("m")),
        "/v1/adapters" => Reply::json(json!({"adapters": []})),
        "/v1/load_lora_adapter" => {
            Reply::json(json!({"status": "ok", "step": 1, "sha256": "", "bytes": 1}))
        }
        "/v1/sample" => {
            let sequence = json!({"tokens": [1], "logprobs": [0.0], "stop_reason": "length"});
            Reply::json(json!({"sequences": [sequence]}))
        }
        "/v1/chat/completions" => {
            let mut reply = chat::says("Yes.");
            reply["model"] = request.json()["model"].clone();
            Reply::json(reply)
        }
        _ => Reply::status(404, json!({"error": {"message": "not in the script"}})),
    }
}

/// A refusal with a code.
pub fn refusal(status: u16, message: &str, code: &str) -> Reply {
    Reply::status(status, json!({"error": {"message": message, "code": code}}))
}
