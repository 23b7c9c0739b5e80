//! A trainer of our own: started with us, missed when it dies, started again, gone when we are.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use metaclaw_turns::{TurnLog, TurnsConfig};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::harness::{Home, Reply, Running, Server, Upstream, gone, has, training, until};

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

fn with_trainer(upstream: &Upstream) -> Home {
    let config = "mode: rl\nproxy: {port: 0}\ntrainer: {model: model.gguf, threads: 3}\njudge: {kind: rules}\ngate: {enabled: false}\n";
    // No gate: the stand-in scores nothing.
    let home = Home::new(config);
    home.write("model.gguf", "");
    home.with_trainer(&script(upstream))
}

async fn ready(proxy: &Running, status: &str) {
    until(
        "readiness",
        async || proxy.get("/readyz").await,
        |it| it.contains(status),
    )
    .await;
}

#[tokio::test]
async fn a_trainer_that_dies_is_missed_for_a_moment_only() {
    let upstream = Upstream::new();
    let home = with_trainer(&upstream);
    let proxy = home.start().await;
    ready(&proxy, "200").await;
    assert_eq!(proxy.chat("s", &["Hello"]).await, "answer to 1");

    kill_process(lives(home.path())[0], Signal::KILL).unwrap();
    ready(&proxy, "503").await;
    let refused = proxy.post("s", &["Hello?"]).await.to_lowercase();
    assert!(refused.starts_with("http/1.1 503"), "{refused}");
    assert!(refused.contains("\r\nretry-after: "), "{refused}");
    assert!(lives(home.path()).len() == 1);

    home.write("go", "");
    ready(&proxy, "200").await;
    assert_eq!(proxy.chat("s", &["Hello?"]).await, "answer to 1");
    let second = lives(home.path())[1];
    proxy.kill().await;
    until(
        "its end",
        async || test_kill_process(second).is_err(),
        |it| *it,
    )
    .await;
}

#[tokio::test]
async fn a_trainer_knows_what_it_needs_and_no_more() {
    let upstream = Upstream::new();
    let home = with_trainer(&upstream);
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::create_dir(home.path().join("trainer")).unwrap();
    std::fs::set_permissions(home.path().join("trainer"), open).unwrap();
    let proxy = home.start().await;
    ready(&proxy, "200").await;
    let read = |name: &str| home.read(name);
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
    home.stop(proxy).await;
    assert!(
        test_kill_process(lives(home.path())[0]).is_err(),
        "gone before we are"
    );
}

#[tokio::test]
async fn a_trainer_is_told_what_trainer_says() {
    let upstream = Upstream::new();
    let config = "mode: rl\nproxy: {port: 0}\ntrainer: {model: model.gguf, dtype: f32, checkpoint_dir: mine}\njudge: {kind: rules}\n";
    let home = Home::new(config);
    home.write("model.gguf", "");
    let home = home.with_trainer(&script(&upstream));
    let proxy = home.start().await;
    ready(&proxy, "200").await;
    let arguments = home.read("arguments");
    let arguments = home.neutral(&arguments);
    for own in ["--dtype=f32", "--checkpoint-dir=HOME/mine"] {
        assert!(arguments.contains(own), "{arguments}");
    }
    assert!(home.path().join("mine").is_dir());
    proxy.kill().await;
}

/// As after `trainer.model` was changed: an agent whose adapter does not fit is served all the same.
#[tokio::test]
async fn an_adapter_that_the_trainer_does_not_have_costs_no_chat() {
    let upstream = Upstream::new();
    let home = with_trainer(&upstream);
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
    let proxy = home.start().await;
    let answered = async || proxy.post("s", &["Hello"]).await;
    let of_base = r#""model":"base""#;
    until("the base model", answered, |it| {
        it.contains("answer to 1") && it.contains(of_base)
    })
    .await;
    let headers = "s2\r\nx-agent-id: work";
    let reply = proxy.post(headers, &["Hello"]).await;
    assert!(reply.contains(r#""model":"kept-1""#), "{reply}");
    // One that answers what is no number is as good as none.
    let headers = "s3\r\nx-agent-id: nan";
    let reply = proxy.post(headers, &["Hello"]).await;
    assert!(reply.contains(r#""model":"base""#), "{reply}");
    // Nor is one that is refused by what answers chats for the trainer, which draws from it.
    let headers = "s4\r\nx-agent-id: large";
    let reply = proxy.post(headers, &["Hello"]).await;
    assert!(reply.contains(r#""model":"base""#), "{reply}");
    let said = home.read("stderr.log");
    assert!(said.contains("lost-1") && said.contains("base"), "{said}");
    has(&said, ["nan-1", "not finite"]);
    let status = home.json(&["status", "--json"]).await;
    assert_eq!(status["serving"], serde_json::json!({"work": "kept-1"}));
}

/// First hour, A16: there was no way back from weights that went too far.
#[tokio::test]
async fn the_owner_chooses_what_serves_at_once_and_after_a_restart() {
    let upstream = Upstream::new();
    let home = with_trainer(&upstream);
    home.write("go", "");
    let ruined = "_default-0badcafe-000002";
    let agent = metaclaw_chat::AgentId::default_agent();
    let log = TurnLog::open(&home.path().join("turns"), &TurnsConfig::default()).unwrap();
    log.set_serving(&agent, Some(ruined.to_owned()))
        .await
        .unwrap();
    log.close().await;
    let served = async |proxy: &Running| {
        let reply = proxy.post("s", &["Hello"]).await;
        let model = reply.split(r#""model":""#).nth(1).unwrap_or_default();
        model.split('"').next().unwrap_or_default().to_owned()
    };
    let proxy = home.start().await;
    until(
        "the adapter",
        async || served(&proxy).await,
        |it| it == ruined,
    )
    .await;
    let said = home.ask(&["adapters", "use", "base"]).await;
    insta::assert_snapshot!(said, @"_default is served with the base model from its next request on; its next training starts from there (`mode: skills_only` in the settings ends training)");
    // The same session, at its next request.
    assert_eq!(served(&proxy).await, "base");
    let refused = home.refusal(&["adapters", "use", "base"]).await;
    insta::assert_snapshot!(refused, @"metaclaw: no agent is served with an adapter: the base model answers already");
    let refused = home.refusal(&["adapters", "use", "lost-1"]).await;
    has(&refused, ["lost-1 cannot be served", "is not here"]);
    home.stop(proxy).await;
    let proxy = home.start().await;
    until(
        "the base model",
        async || served(&proxy).await,
        |it| it == "base",
    )
    .await;
    let good = "_default-0badcafe-000001";
    home.ask(&["adapters", "use", good]).await;
    assert_eq!(served(&proxy).await, good);
    home.stop(proxy).await;
    // Where nothing runs, what lies on the disk is what there is.
    let refused = home.refusal(&["adapters", "use", ruined]).await;
    assert!(refused.contains("there is no adapter"), "{refused}");
    home.ask(&["adapters", "use", "base"]).await;
    let proxy = home.start().await;
    until(
        "the base model",
        async || served(&proxy).await,
        |it| it == "base",
    )
    .await;
}

#[tokio::test]
async fn a_trainer_that_cannot_start_says_why_in_the_status() {
    let home = Home::new("mode: rl\nproxy: {port: 0}\ntrainer: {model: model.gguf}\n");
    home.write("model.gguf", "");
    let home = home.with_trainer("echo 'model.gguf is cut short' >&2; exit 1");
    let proxy = home.start().await;
    let why = "exit status: 1: model.gguf is cut short";
    home.json_until(&["status", "--json"], |it| it["trainer"]["reason"] == why)
        .await;
    let ready = proxy.get_whole("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(!ready.contains("cut short"), "for its owner alone: {ready}");
    home.ask(&["stop"]).await;
}

#[tokio::test]
async fn a_trainer_that_was_never_built_is_missed_in_words() {
    let home = Home::new("mode: rl\nproxy: {port: 0}\ntrainer: {model: model.gguf}\n");
    home.write("model.gguf", "");
    let home = home.with_trainer("");
    std::fs::remove_file(home.path().join("bin/metaclaw-trainer")).unwrap();
    let refusal = home.refusal(&["start"]).await;
    insta::assert_snapshot!(refusal, @r#"metaclaw: metaclaw-trainer is neither beside HOME/bin/metaclaw nor installed nor in PATH: `metaclaw trainer install` brings it (in a checkout, `cargo xtask start` builds it), or set mode: skills_only"#);
}

#[tokio::test]
async fn status_says_what_a_training_server_elsewhere_lacks() {
    // As our own server answers that was started without a model.
    let server = Server::new(|request| match request.path() {
        "/v1/health" => Reply::json(training::health("")),
        _ => Reply::status(
            400,
            json!({"error": {"message": "base_model \"m\" is no file or folder here"}}),
        ),
    });
    let address = server.address;
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
        let home = Home::new(&config(more));
        let proxy = home.start().await;
        let told = |status: &Value| {
            let trainer = &status["trainer"];
            trainer["is"] == "without_model" && trainer["why"].to_string().contains(why)
        };
        home.json_until(&["status", "--json"], told).await;
        let shown = home.ask(&["status"]).await;
        let line = format!("trainer: http://{address} has no model: ");
        assert!(shown.contains(&line) && shown.contains(why), "{shown}");
        let refused = proxy.post("s", &["Hello"]).await.to_lowercase();
        assert!(refused.starts_with("http/1.1 503"), "{refused}");
        home.ask(&["stop"]).await;
    }
}

#[tokio::test]
async fn a_training_server_that_gives_no_ids_is_refused_at_the_start() {
    // As the fork's server answers: nothing of what it can do.
    let health = json!({"status": "healthy", "gpu_count": 2, "model": "", "step": 0, "inference_backend": "hf", "version": "0.1.0"});
    let server = Server::new(move |_| Reply::json(&health));
    let address = server.address;
    let home = Home::new(&format!(
        "mode: rl\nproxy: {{port: 0}}\nrl: {{remote_url: 'http://{address}'}}\n"
    ));
    let refusal = home.refusal(&["start"]).await;
    insta::assert_snapshot!(refusal.replace(&address.to_string(), "ADDRESS"));
}

#[tokio::test]
async fn a_service_is_asked_what_it_offers_where_no_model_is_named() {
    let offer =
        json!({"supported_models": [{"model_name": "Qwen/Qwen3-8B"}, {"model_name": "acme"}]});
    let server = Server::new(move |_| Reply::json(&offer));
    let (address, gone) = (server.address.to_string(), gone().replace("http://", ""));
    let refusal = async |address: &str, llm: &str| {
        let home = Home::new(&format!(
            "mode: rl\nproxy: {{port: 0}}\nllm: {{api_base: 'http://127.0.0.1:9/v1', model_id: {llm}}}\n\
             rl: {{backend: tinker, tinker_api_key: tml-k, tinker_base_url: 'http://{address}'}}\n"
        ));
        home.refusal(&["start"]).await.replace(address, "ADDRESS")
    };
    let told = [
        refusal(&address, "qwen3-14b").await,
        // The model of llm.* is taken, and lacks a tokenizer alone.
        refusal(&address, "acme").await,
        refusal(&gone, "acme").await,
    ];
    insta::assert_snapshot!(told.join("\n"));
}
