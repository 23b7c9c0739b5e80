//! Tests that configurations of the Python original, in each of its modes and versions, all start.

use crate::harness::{Home, Running, Upstream, has};

async fn started(file: &str, upstream: &Upstream) -> (Home, Running) {
    let home = home(file, upstream);
    let proxy = home.start().await;
    (home, proxy)
}

fn home(file: &str, upstream: &Upstream) -> Home {
    let path = format!("{}/tests/it/python/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    let home = Home::new(&text.replace("URL", &upstream.url));
    home.with_variable("METACLAW__PROXY__PORT", "0")
}

/// The texts that the banner must contain; not all of it, because reasons change.
const SAID: [(&str, &[&str]); 4] = [
    (
        "main_auto",
        &[
            "serves    moonshotai/Kimi-K2.5 at",
            HUB,
            JUDGE,
            "skills.retrieval_mode",
        ],
    ),
    ("main_skills_only", &["serves    scripted at", HUB]),
    (
        "main_set",
        &[
            "serves    scripted at",
            JUDGE,
            "memory.embedding_mode",
            "wechat.enabled",
        ],
    ),
    (
        "v033_madmax",
        &[
            "(mode auto)",
            "serves    moonshotai/kimi-k2 at",
            HUB,
            JUDGE,
            "skills.retrieval_mode",
        ],
    ),
];
const HUB: &str = "rl.model: nothing is fetched by this key, so no weights are trained";
const JUDGE: &str = "judge.url: it has no key";

#[tokio::test]
async fn each_that_has_an_address_serves_by_it_and_says_what_it_lacks() {
    let upstream = Upstream::new();
    for (name, words) in SAID {
        let (home, proxy) = started(&format!("{name}.yaml"), &upstream).await;
        has(&proxy.banner, words);
        assert!(!proxy.banner.contains("api.openai.com"), "{}", proxy.banner);
        let key = "s\r\nauthorization: Bearer callers-key";
        let reply = proxy.post(key, &["Hello"]).await;
        assert!(reply.contains("answer to 1"), "{name}: {reply}");
        let status = home.json(&["status", "--json"]).await;
        assert_eq!(status["running"], true, "{name}");
        proxy.kill().await;
    }
}

/// Before a service trains, its owner says whether conversations may be sent there; an owner who refuses keeps the
/// model that answered so far.
#[tokio::test]
async fn where_a_service_trains_its_owner_is_asked_first() {
    let upstream = Upstream::new();
    for (name, host, words) in [
        (
            "main_rl",
            "tinker.thinkingmachines.dev",
            [JUDGE, "scripted"],
        ),
        (
            "v033_mint_rl",
            "mint.example",
            ["judge.url: models are asked in", "scripted"],
        ),
    ] {
        let home = home(&format!("{name}.yaml"), &upstream);
        let refused = home.refusal(&["start"]).await;
        assert!(refused.contains(&format!(" at {host} ")), "{refused}");
        assert!(refused.contains("privacy.cloud_training_ok"), "{refused}");
        let home = home.with_variable("METACLAW__PRIVACY__CLOUD_TRAINING_OK", "false");
        let proxy = home.start().await;
        has(&proxy.banner, words);
        assert!(
            !proxy.banner.contains(&format!("{host}: ")),
            "{}",
            proxy.banner
        );
        let reply = proxy.post("key", &["Hello"]).await;
        assert!(reply.contains("answer to 1"), "{name}: {reply}");
        proxy.kill().await;
    }
}

#[tokio::test]
async fn a_login_is_answered_by_what_auth_keeps() {
    let upstream = Upstream::new();
    for (provider, host) in [
        ("anthropic", "api.anthropic.com"),
        ("codex", "api.openai.com"),
        ("gemini", "generativelanguage.googleapis.com"),
    ] {
        let file = format!("main_oauth_{provider}.yaml");
        let (home, proxy) = started(&file, &upstream).await;
        let banner = &proxy.banner;
        assert!(banner.contains(&format!(" at {host}")), "{banner}");
        assert!(!banner.contains("to judge"), "{banner}");
        let log = home.read("stderr.log");
        has(&log, ["`metaclaw auth paste-token --provider "]);
        proxy.kill().await;
    }
}

#[tokio::test]
async fn claude_at_bedrock_answers_and_does_not_judge() {
    let upstream = Upstream::new();
    let (_home, proxy) = started("v033_bedrock.yaml", &upstream).await;
    let banner = &proxy.banner;
    let at = " at bedrock-runtime.us-east-1.amazonaws.com";
    assert!(banner.contains(at), "{banner}");
    has(banner, ["judge.url, evolver.url: models are asked in"]);
    assert!(!banner.contains("to judge"), "{banner}");
    assert!(banner.contains("proxy.api_key: it is empty"), "{banner}");
    proxy.kill().await;
}

/// Before this test, the answer was 503, as if there were no model.
#[tokio::test]
async fn a_local_model_serves_where_no_weights_are_to_learn() {
    let upstream = Upstream::new();
    let config = "mode: skills_only\nproxy: {port: 0}\nrl: {remote_url: 'REMOTE'}\n";
    let remote = upstream.url.trim_end_matches("/v1");
    let home = Home::new(&config.replace("REMOTE", remote));
    let proxy = home.start().await;
    has(&proxy.banner, ["no weights (mode skills_only)"]);
    assert_eq!(proxy.chat("s", &["Hello"]).await, "answer to 1");
    proxy.kill().await;
}
