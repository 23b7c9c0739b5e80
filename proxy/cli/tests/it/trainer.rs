//! A trainer of our own: started with us, missed when it dies, started again, gone when we are.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use metaclaw_turns::{TurnLog, TurnsConfig};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::harness::{TestHome, Upstream, serve, until};

/// Notes each life, waits for `go` from the second one on, says that the upstream is its own
/// address, and lives until its stdin closes.
fn script(upstream: &Upstream) -> String {
    format!(
        "test -e lives && until test -e go; do sleep 0.02; done\n\
         echo $$ >> lives\n\
         echo \"$@\" > arguments\n\
         env > environment\n\
         echo '{{\"ready\":true,\"address\":\"{}\",\"pid\":1}}'\n\
         cat > /dev/null",
        upstream.address
    )
}

fn lives(home: &Path) -> Vec<Pid> {
    let text = std::fs::read_to_string(home.join("lives")).unwrap_or_default();
    let pids = text.lines().filter_map(|line| line.parse().ok());
    pids.filter_map(Pid::from_raw).collect()
}

fn with_trainer(upstream: &Upstream) -> anyhow::Result<TestHome> {
    let config = "mode: rl\nproxy: {port: 0}\ntrainer: {model: model.gguf, threads: 3}\njudge: {kind: rules}\ngate: {enabled: false}\n";
    // No gate: the stand-in scores nothing.
    let home = TestHome::new(config)?;
    std::fs::write(home.path().join("model.gguf"), "")?;
    home.with_trainer(&script(upstream))
}

#[tokio::test]
async fn a_trainer_that_dies_is_missed_for_a_moment_only() {
    let upstream = Upstream::new().await.unwrap();
    let home = with_trainer(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    let ready = async || Ok(proxy.get("/readyz").await?.contains("200"));
    until(ready).await.unwrap();
    assert_eq!(proxy.chat("s", &["Hello"]).await.unwrap(), "answer to 1");

    kill_process(lives(home.path())[0], Signal::KILL).unwrap();
    let away = async || Ok(!proxy.get("/readyz").await?.contains("200"));
    until(away).await.unwrap();
    let refused = proxy.post("s", &["Hello?"]).await.unwrap().to_lowercase();
    assert!(refused.starts_with("http/1.1 503"), "{refused}");
    assert!(refused.contains("\r\nretry-after: "), "{refused}");
    assert!(lives(home.path()).len() == 1);

    std::fs::write(home.path().join("go"), "").unwrap();
    until(ready).await.unwrap();
    assert_eq!(proxy.chat("s", &["Hello?"]).await.unwrap(), "answer to 1");
    let second = lives(home.path())[1];
    proxy.kill().await.unwrap();
    let gone = async || Ok(test_kill_process(second).is_err());
    until(gone).await.unwrap();
}

#[tokio::test]
async fn a_trainer_knows_what_it_needs_and_no_more() {
    let upstream = Upstream::new().await.unwrap();
    let home = with_trainer(&upstream).unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::create_dir(home.path().join("trainer")).unwrap();
    std::fs::set_permissions(home.path().join("trainer"), open).unwrap();
    let proxy = home.start().await.unwrap();
    let ready = async || Ok(proxy.get("/readyz").await?.contains("200"));
    until(ready).await.unwrap();
    let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    let arguments = home.neutral(&read("arguments"));
    insta::assert_snapshot!(arguments.trim(), @r#"--parent-stdin --host=127.0.0.1 --port=0 --model=HOME/model.gguf --checkpoint-dir=HOME/trainer --cache-dir=HOME/cache --keep=5 --max-queue=256"#);
    let environment = read("environment");
    let of = |name: &str| environment.lines().find_map(|line| line.strip_prefix(name));
    assert_eq!(of("METACLAW_API_KEY=").map(str::len), Some(32));
    assert_eq!(of("OMP_WAIT_POLICY="), Some("passive"));
    assert_eq!(of("OMP_NUM_THREADS="), Some("3"));
    assert_eq!(of("METACLAW_HOME="), None);
    let mode = |name: &str| {
        let meta = std::fs::metadata(home.path().join(name)).unwrap();
        meta.permissions().mode() & 0o777
    };
    assert_eq!(
        mode("trainer"),
        0o700,
        "it was made before, for all to read"
    );
    assert_eq!(mode("environment"), 0o600, "what the trainer writes");
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    assert!(
        test_kill_process(lives(home.path())[0]).is_err(),
        "gone before we are"
    );
}

#[tokio::test]
async fn a_trainer_is_told_what_trainer_says() {
    let upstream = Upstream::new().await.unwrap();
    let config = "mode: rl\nproxy: {port: 0}\ntrainer: {model: model.gguf, dtype: f32, checkpoint_dir: mine}\njudge: {kind: rules}\n";
    let home = TestHome::new(config).unwrap();
    std::fs::write(home.path().join("model.gguf"), "").unwrap();
    let home = home.with_trainer(&script(&upstream)).unwrap();
    let proxy = home.start().await.unwrap();
    let ready = async || Ok(proxy.get("/readyz").await?.contains("200"));
    until(ready).await.unwrap();
    let arguments = std::fs::read_to_string(home.path().join("arguments")).unwrap();
    let arguments = home.neutral(&arguments);
    for own in ["--dtype=f32", "--checkpoint-dir=HOME/mine"] {
        assert!(arguments.contains(own), "{arguments}");
    }
    assert!(home.path().join("mine").is_dir());
    proxy.kill().await.unwrap();
}

/// As after `trainer.model` was changed: an agent whose adapter does not fit is served all the same.
#[tokio::test]
async fn an_adapter_that_the_trainer_does_not_have_costs_no_chat() {
    let upstream = Upstream::new().await.unwrap();
    let home = with_trainer(&upstream).unwrap();
    let log = TurnLog::open(&home.path().join("turns"), &TurnsConfig::default()).unwrap();
    for (agent, adapter) in [
        ("_default", "lost-1"),
        ("work", "kept-1"),
        ("nan", "nan-1"),
        ("large", "refused-1"),
    ] {
        let agent = agent.parse().unwrap();
        log.set_serving(&agent, Some(adapter.to_owned()))
            .await
            .unwrap();
    }
    log.close().await;
    let proxy = home.start().await.unwrap();
    let answered = async || {
        let reply = proxy.post("s", &["Hello"]).await?;
        Ok(reply.contains("answer to 1") && reply.contains(r#""model":"base""#))
    };
    until(answered).await.unwrap();
    let headers = "s2\r\nx-agent-id: work";
    let reply = proxy.post(headers, &["Hello"]).await.unwrap();
    assert!(reply.contains(r#""model":"kept-1""#), "{reply}");
    // One that answers what is no number is as good as none.
    let headers = "s3\r\nx-agent-id: nan";
    let reply = proxy.post(headers, &["Hello"]).await.unwrap();
    assert!(reply.contains(r#""model":"base""#), "{reply}");
    // Nor is one that is refused by what answers chats for the trainer, which draws from it.
    let headers = "s4\r\nx-agent-id: large";
    let reply = proxy.post(headers, &["Hello"]).await.unwrap();
    assert!(reply.contains(r#""model":"base""#), "{reply}");
    let said = std::fs::read_to_string(home.path().join("stderr.log")).unwrap();
    assert!(said.contains("lost-1") && said.contains("base"), "{said}");
    assert!(
        said.contains("nan-1") && said.contains("not finite"),
        "{said}"
    );
    let status = home.json(&["status", "--json"]).await.unwrap();
    assert_eq!(status["serving"], serde_json::json!({"work": "kept-1"}));
}

/// First hour, A16: there was no way back from weights that went too far.
#[tokio::test]
async fn the_owner_chooses_what_serves_at_once_and_after_a_restart() {
    let upstream = Upstream::new().await.unwrap();
    let home = with_trainer(&upstream).unwrap();
    std::fs::write(home.path().join("go"), "").unwrap();
    let ruined = "_default-0badcafe-000002";
    let agent = metaclaw_chat::AgentId::default_agent();
    let log = TurnLog::open(&home.path().join("turns"), &TurnsConfig::default()).unwrap();
    log.set_serving(&agent, Some(ruined.to_owned()))
        .await
        .unwrap();
    log.close().await;
    let served = async |proxy: &crate::harness::Running| {
        let reply = proxy.post("s", &["Hello"]).await?;
        let model = reply.split(r#""model":""#).nth(1).unwrap_or_default();
        anyhow::Ok(model.split('"').next().unwrap_or_default().to_owned())
    };
    let proxy = home.start().await.unwrap();
    until(async || Ok(served(&proxy).await? == ruined))
        .await
        .unwrap();
    let said = home.ask(&["adapters", "use", "base"]).await.unwrap();
    insta::assert_snapshot!(said, @"_default is served with the base model from its next request on; its next training starts from there (`mode: skills_only` in the settings ends training)");
    // The same session, at its next request.
    assert_eq!(served(&proxy).await.unwrap(), "base");
    let refused = home.refusal(&["adapters", "use", "base"]).await.unwrap();
    insta::assert_snapshot!(refused, @"metaclaw: no agent is served with an adapter: the base model answers already");
    let refused = home.refusal(&["adapters", "use", "lost-1"]).await.unwrap();
    assert!(
        refused.contains("lost-1 cannot be served") && refused.contains("is not here"),
        "{refused}"
    );
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    let proxy = home.start().await.unwrap();
    until(async || Ok(served(&proxy).await? == "base"))
        .await
        .unwrap();
    let good = "_default-0badcafe-000001";
    home.ask(&["adapters", "use", good]).await.unwrap();
    assert_eq!(served(&proxy).await.unwrap(), good);
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    // Where nothing runs, what lies on the disk is what there is.
    let refused = home.refusal(&["adapters", "use", ruined]).await.unwrap();
    assert!(refused.contains("there is no adapter"), "{refused}");
    home.ask(&["adapters", "use", "base"]).await.unwrap();
    let proxy = home.start().await.unwrap();
    until(async || Ok(served(&proxy).await? == "base"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_trainer_that_cannot_start_says_why_in_the_status() {
    let home = TestHome::new("mode: rl\nproxy: {port: 0}\ntrainer: {model: model.gguf}\n").unwrap();
    std::fs::write(home.path().join("model.gguf"), "").unwrap();
    let home = home
        .with_trainer("echo 'model.gguf is cut short' >&2; exit 1")
        .unwrap();
    let proxy = home.start().await.unwrap();
    let told = async || {
        let status = home.json(&["status", "--json"]).await?;
        Ok(status["trainer"]["reason"] == "exit status: 1: model.gguf is cut short")
    };
    until(told).await.unwrap();
    let ready = proxy.get_whole("/readyz").await.unwrap();
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(!ready.contains("cut short"), "for its owner alone: {ready}");
    home.ask(&["stop"]).await.unwrap();
}

#[tokio::test]
async fn a_trainer_that_was_never_built_is_missed_in_words() {
    let home = TestHome::new("mode: rl\nproxy: {port: 0}\ntrainer: {model: model.gguf}\n").unwrap();
    std::fs::write(home.path().join("model.gguf"), "").unwrap();
    let home = home.with_trainer("").unwrap();
    std::fs::remove_file(home.path().join("bin/metaclaw-trainer")).unwrap();
    let refusal = home.refusal(&["start"]).await.unwrap();
    insta::assert_snapshot!(refusal, @r#"metaclaw: metaclaw-trainer is neither beside HOME/bin/metaclaw nor installed nor in PATH: `metaclaw trainer install` brings it (in a checkout, `cargo xtask start` builds it), or set mode: skills_only"#);
}

/// As the fork's server answers: nothing of what it can do.
async fn forks_health() -> axum::Json<Value> {
    axum::Json(
        json!({"status": "healthy", "gpu_count": 2, "model": "", "step": 0, "inference_backend": "hf", "version": "0.1.0"}),
    )
}

/// As our own server answers that was started without a model.
async fn without_a_model() -> axum::Json<Value> {
    let capabilities = json!({"sampled": true, "forward": true, "manifests": true});
    axum::Json(json!({"status": "healthy", "model": "", "capabilities": capabilities}))
}

#[tokio::test]
async fn status_says_what_a_training_server_elsewhere_lacks() {
    let refuse = async || {
        let error = json!({"error": {"message": "base_model \"m\" is no file or folder here"}});
        (axum::http::StatusCode::BAD_REQUEST, axum::Json(error))
    };
    let routes = axum::Router::new()
        .route("/v1/health", axum::routing::get(without_a_model))
        .route("/v1/lora/create", axum::routing::post(refuse));
    let (address, mut server) = serve(routes).await.unwrap();
    let config = |more: &str| {
        format!("mode: rl\nproxy: {{port: 0}}\nrl: {{remote_url: 'http://{address}'{more}}}\n")
    };
    for (more, why) in [
        (
            "",
            "start it with one, or say in rl.model which it is to load",
        ),
        (", model: /m", "no file or folder here"),
    ] {
        let home = TestHome::new(&config(more)).unwrap();
        let proxy = home.start().await.unwrap();
        let told = async || {
            let trainer = home.json(&["status", "--json"]).await?["trainer"].take();
            let why_not = trainer["why"].as_str().unwrap_or_default();
            Ok(trainer["is"] == "without_model" && why_not.contains(why))
        };
        until(told).await.unwrap();
        let shown = home.ask(&["status"]).await.unwrap();
        let line = format!("trainer: http://{address} has no model: ");
        assert!(shown.contains(&line) && shown.contains(why), "{shown}");
        let refused = proxy.post("s", &["Hello"]).await.unwrap().to_lowercase();
        assert!(refused.starts_with("http/1.1 503"), "{refused}");
        home.ask(&["stop"]).await.unwrap();
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_training_server_that_gives_no_ids_is_refused_at_the_start() {
    let routes = axum::Router::new().route("/v1/health", axum::routing::get(forks_health));
    let (address, _server) = serve(routes).await.unwrap();
    let config = format!("mode: rl\nproxy: {{port: 0}}\nrl: {{remote_url: 'http://{address}'}}\n");
    let home = TestHome::new(&config).unwrap();
    let refusal = home.refusal(&["start"]).await.unwrap();
    insta::assert_snapshot!(refusal.replace(&address.to_string(), "ADDRESS"));
}
