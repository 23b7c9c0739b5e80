//! Tests of the messages about invalid requests. Callers rely on each message.

use std::{fmt::Write as _, path::Path};

use axum::{middleware, routing};

use super::*;
use metaclaw_trainer_chat::answers::catch_panic;

/// Returns each refusal as `STATUS code param: message`.
fn line(rig: &Rig, (status, body): &(StatusCode, Value)) -> String {
    let error = &body["error"];
    let text = |field: &str| error[field].as_str().unwrap_or("-").to_owned();
    let message = rig.clean(&text("message"));
    let (code, param) = (text("code"), text("param"));
    format!("{} {code} {param}: {message}", status.as_u16())
}

#[tokio::test]
async fn a_bad_chat_is_told_what_is_wrong() {
    let rig = rig();
    let path = "/v1/chat/completions";
    let mut lines = String::new();
    let mut say = |refusal| writeln!(lines, "{}", line(&rig, &refusal)).unwrap();
    say(rig.post_raw(path, "{\"messages\": [").await);
    say(rig.post_raw(path, "[]").await);
    say(rig.post(path, &json!({})).await);
    say(rig.post(path, &json!({"messages": []})).await);
    let bad = [
        json!({"messages": [{"role": "robot", "content": "hi"}]}),
        json!({"messages": [{"content": "hi"}]}),
        json!({"messages": [{"role": "user", "content": 7}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}]}),
        json!({"messages": [{"role": "user", "content": "x".repeat(600)}]}),
        json!({"model": "gpt-9"}),
        json!({"model": "../../etc/passwd"}),
        json!({"temperature": -1}),
        json!({"n": 200}),
        json!({"min_p": 2}),
        json!({"top_p": 0}),
        json!({"logprobs": true, "top_logprobs": 21}),
        json!({"presence_penalty": 3}),
        json!({"stop_token_ids": [1000]}),
        json!({"logit_bias": {"5": 1}}),
        json!({"guided_json": {}}),
        json!({"thinking_budget": 100}),
        json!({"tool_choice": "required"}),
        json!({"response_format": {"type": "json_object"}}),
        json!({"chat_template_kwargs": {"messages": []}}),
        json!({"messages": [{"role": "user", "content": "x".repeat(20_000)}]}),
        json!({"messages": [{"role": "user", "content": "x".repeat(2_000_000)}]}),
    ];
    for more in bad {
        say(rig.post(path, &chat(&more)).await);
    }
    insta::assert_snapshot!(lines);
}

#[tokio::test]
async fn a_list_of_parts_is_a_text() {
    let rig = rig();
    let content = json!([{"type": "text", "text": "hi"}]);
    let parts = json!({"messages": [{"role": "user", "content": content}]});
    let (listed, plain) = (rig.chat(&parts).await, rig.chat(&json!({})).await);
    let message = |reply: &Value| reply["choices"][0]["message"].clone();
    assert_eq!(message(&listed), message(&plain));
}

/// Returns the answer to each body, one on each line; `run` is the id of a run, which varies.
async fn refusals(rig: &Rig, run: &str, calls: Vec<(&str, Value)>) -> String {
    let mut lines = String::new();
    for (path, body) in calls {
        let refusal = line(rig, &rig.post(path, &body).await);
        writeln!(lines, "{path} {}", refusal.replace(run, "[run]")).unwrap();
    }
    lines
}

#[tokio::test]
async fn a_bad_batch_is_told_what_is_wrong() {
    let rig = rig();
    let run = rig.create().await;
    let datum = json!({"model_input_tokens": [1, 2], "target_tokens": [2, 3], "weights": [1, 1]});
    let short = json!({"model_input_tokens": [1], "target_tokens": [1, 2]});
    let alien = json!({"model_input_tokens": [1], "target_tokens": [999], "weights": [1]});
    let ce = "cross_entropy";
    let bodies = [
        json!({"session_id": "0badc0de", "datums": [datum], "loss_fn": ce}),
        json!({"session_id": "../x", "datums": [datum]}),
        json!({"session_id": run}),
        json!({"session_id": run, "datums": []}),
        json!({"session_id": run, "datums": [datum]}),
        json!({"session_id": run, "datums": [datum], "loss_fn": "gspo"}),
        json!({"session_id": run, "datums": [datum], "loss_fn": ce, "loss_fn_config": {"beta": 1}}),
        json!({"session_id": run, "datums": [datum, short], "loss_fn": ce}),
        json!({"session_id": run, "datums": [alien], "loss_fn": ce}),
        json!({"session_id": run, "datums": [datum], "loss_fn": ce, "loss": "sum"}),
        json!({"session_id": run, "datums": [{"model_input_tokens": [1], "target_tokens": [1], "mask": [1]}], "loss_fn": ce}),
    ];
    let calls = bodies.map(|body| ("/v1/train/forward_backward", body));
    insta::assert_snapshot!(refusals(&rig, &run, calls.to_vec()).await);
}

#[tokio::test]
async fn a_bad_call_is_told_what_is_wrong() {
    let rig = rig();
    let run = rig.create().await;
    let of_run = |key: &str, value: Value| json!({"session_id": run, key: value});
    let calls = vec![
        ("/v1/lora/create", json!({"base_model": "Qwen/Qwen3-4B"})),
        ("/v1/lora/create", json!({"rank": 0})),
        ("/v1/lora/create", json!({"lora_alpha": 0.5})),
        ("/v1/lora/create", json!({"targets": ["q_proj", "lm_tail"]})),
        ("/v1/train/optim_step", json!({"session_id": run})),
        ("/v1/train/optim_step", of_run("learning_rate", json!(-1))),
        ("/v1/weights/save", of_run("name", json!("../../escape"))),
        ("/v1/weights/save", of_run("name", json!("base"))),
        ("/v1/checkpoint/save", of_run("name", json!("../escape"))),
        ("/v1/checkpoint/load", of_run("path", json!("/etc"))),
        ("/v1/checkpoint/load", of_run("path", json!("nothing"))),
        ("/v1/sample", json!({"tokens": []})),
        ("/v1/sample", json!({"tokens": [1, 4000]})),
        ("/v1/sample", json!({"tokens": [1], "num_samples": 0})),
        ("/tokenize", json!({})),
    ];
    let mut lines = refusals(&rig, &run, calls).await;
    for path in ["/v1/sampled/chatcmpl-0", "/v1/nothing", "/v1/sample"] {
        let refusal = rig.get(path).await;
        writeln!(lines, "{path} {}", line(&rig, &refusal)).unwrap();
    }
    insta::assert_snapshot!(lines);
}

#[tokio::test]
async fn an_adapter_of_another_model_is_refused() {
    let rig = rig();
    let folder = rig.folder.path().join("checkpoints/adapters/stranger");
    std::fs::create_dir_all(&folder).unwrap();
    let config = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 32, "target_modules": ["q_proj"], "base_model_name_or_path": "someone/else", "bias": "none", "use_dora": false, "use_rslora": false, "task_type": "CAUSAL_LM"});
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("adapter_model.safetensors"), [0; 4]).unwrap();
    let refusal = read(rig.begin_chat(&json!({"model": "stranger"})).await).await;
    insta::assert_snapshot!(line(&rig, &refusal));
}

#[tokio::test]
async fn all_but_health_need_the_key() {
    let rig = rig_with(ServerLimits::default(), Some("sk-trainer-secret"));
    assert_eq!(rig.get("/v1/health").await.0, StatusCode::OK);
    let mut lines = vec![line(&rig, &rig.get("/v1/models").await)];
    let with = |name: &str, value: &str| {
        let request = Request::get("/v1/models").header(name, value);
        request.body(Body::empty()).unwrap()
    };
    let request = with("authorization", "Bearer sk-trainer-secreT");
    let wrong = rig.send(request).await;
    assert_eq!(wrong.headers()["www-authenticate"], "Bearer");
    lines.push(line(&rig, &read(wrong).await));
    insta::assert_snapshot!(lines.join("\n"));
    for (name, value) in [
        ("authorization", "Bearer sk-trainer-secret"),
        ("authorization", "bearer sk-trainer-secret"),
        ("x-api-key", "sk-trainer-secret"),
    ] {
        let status = rig.send(with(name, value)).await.status();
        assert_eq!(status, StatusCode::OK, "{name}");
    }
}

#[tokio::test]
async fn a_body_has_a_bound_and_a_type() {
    let usual = metaclaw_trainer_chat::Limits::default();
    let rig = rig_of_chats(metaclaw_trainer_chat::Limits {
        body: 1000,
        ..usual
    });
    let body = json!({"prompt": "x".repeat(2000)});
    let large = rig.post("/tokenize", &body).await;
    let request = Request::post("/tokenize").body(Body::from("{\"prompt\": \"x\"}"));
    let form = read(rig.send(request.unwrap()).await).await;
    insta::assert_snapshot!([line(&rig, &large), line(&rig, &form)].join("\n"));
}

#[tokio::test]
async fn a_panic_is_answered_without_its_insides() {
    async fn broken() -> &'static str {
        panic!("secret state")
    }
    let routes: Router = Router::new().route("/broken", routing::get(broken));
    let router = routes.layer(middleware::from_fn(catch_panic));
    let request = Request::get("/broken").body(Body::empty()).unwrap();
    let (status, body) = read(router.oneshot(request).await.unwrap()).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    insta::assert_snapshot!(body["error"]["message"].as_str().unwrap(), @"GET /broken failed inside the server; its log says where");
}

/// A site whose name resolves to this machine would otherwise have full access, because its page needs no permission to
/// read.
#[tokio::test]
async fn a_page_of_another_site_gets_nothing_from_a_server_without_a_key() {
    let asked_by_a_page = |path: &str, host: &'static str, origin: Option<&'static str>| {
        let mut request = post(path, "{\"rank\": 4}");
        let headers = request.headers_mut();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        request
    };
    let open = rig();
    for (host, origin) in [
        ("evil.com", Some("https://evil.com")),
        ("evil.com", None),
        ("127.0.0.1:8000", Some("https://evil.com")),
    ] {
        for path in ["/v1/lora/create", "/v1/health", "/v1/chat/completions"] {
            let (status, body) = read(open.send(asked_by_a_page(path, host, origin)).await).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path} {host} {origin:?}");
            assert_eq!(body["error"]["code"], "foreign_page");
        }
    }
    let program = asked_by_a_page("/v1/lora/create", "127.0.0.1:8000", None);
    assert_eq!(open.send(program).await.status(), StatusCode::OK);

    let locked = rig_with(ServerLimits::default(), Some("secret"));
    let behind_a_name = asked_by_a_page("/v1/health", "trainer.example", None);
    // The key is its lock.
    let status = locked.send(behind_a_name).await.status();
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

/// Makes a copy of `kept` with one file changed; of linked files, only this copy changes.
fn changed_copy(of: &Path, name: &str, file: &str, change: &dyn Fn(String) -> String) {
    let folder = of.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(of.join("kept")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let file = folder.join(file);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, change(text)).unwrap();
}

#[tokio::test]
async fn a_bad_adapter_or_checkpoint_is_told_what_is_wrong() {
    let rig = rig();
    let run = rig.create().await;
    let named = json!({"session_id": run, "name": "kept"});
    rig.ok("/v1/checkpoint/save", &named).await;
    rig.ok("/v1/weights/save", &named).await;
    let kept = rig.folder.path().join("checkpoints");
    let change = |of: &str, name: &str, file: &str, change: &dyn Fn(String) -> String| {
        changed_copy(&kept.join(of), name, file, change);
    };
    let base = |text: String| {
        let mut origin: Value = serde_json::from_str(&text).unwrap();
        origin["base_name"] = "other".into();
        origin["base_fingerprint"] = "0123456789abcdef".into();
        origin.to_string()
    };
    let rank =
        |rank: u32| move |text: String| text.replace("\"r\": 4,", &format!("\"r\": {rank},"));
    let short = |text: String| text[..text.len() / 2].to_owned();
    let origin = std::fs::read(kept.join("adapters/kept/metaclaw.json")).unwrap();
    let origin: Value = serde_json::from_slice(&origin).unwrap();
    let own = origin["base_fingerprint"].as_str().unwrap()[..12].to_owned();
    let mut lines = String::new();
    let mut say = async |path: &str, body: &Value| {
        let told = line(&rig, &rig.post(path, body).await).replace(&run, "[run]");
        let refusal = told.replace(&own, "[fingerprint]");
        writeln!(lines, "{path} {refusal}").unwrap();
    };
    for of in ["adapters", "checkpoints"] {
        change(of, "of-another", "metaclaw.json", &base);
        change(of, "rank-0", "adapter_config.json", &rank(0));
        change(of, "rank-99", "adapter_config.json", &rank(99));
        change(of, "rank-5", "adapter_config.json", &rank(5));
        change(of, "short", "metaclaw.json", &short);
        change(of, "lacking", "metaclaw.json", &|text| text);
        std::fs::remove_file(kept.join(of).join("lacking/adapter_model.safetensors")).unwrap();
        for name in [
            "of-another",
            "rank-0",
            "rank-99",
            "rank-5",
            "short",
            "lacking",
        ] {
            if of == "adapters" {
                say("/v1/load_lora_adapter", &json!({"lora_name": name})).await;
            } else {
                let load = json!({"session_id": run, "path": name});
                say("/v1/checkpoint/load", &load).await;
            }
        }
    }
    for (name, path) in [("nobody", ""), ("../kept", ""), ("kept", "/etc")] {
        let body = json!({"lora_name": name, "lora_path": path});
        say("/v1/load_lora_adapter", &body).await;
    }
    say("/v1/unload_lora_adapter", &json!({"lora_name": "../kept"})).await;
    let load = json!({"session_id": run, "path": "../adapters/kept"});
    say("/v1/checkpoint/load", &load).await;
    say("/v1/checkpoints/prune", &json!({"keep": ["../kept"]})).await;
    say("/v1/lora/close", &json!({"session_id": "0badc0de"})).await;
    say("/v1/lora/create", &json!({"rank": 99})).await;
    for path in [
        "/v1/adapters/nobody",
        "/v1/adapters/..%2Fkept",
        "/v1/checkpoints/nobody",
        "/v1/checkpoints/..%2Fadapters%2Fkept",
    ] {
        let refusal = line(&rig, &rig.delete(path).await);
        writeln!(lines, "DELETE {path} {refusal}").unwrap();
    }
    insta::assert_snapshot!(lines);
}
