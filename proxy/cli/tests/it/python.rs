//! Tests that configurations of the Python original, in each of its modes and versions, all start.

use anyhow::{Context as _, Result};

use crate::harness::{Running, TestHome, Upstream};

const FREE_PORT: [(&str, &str); 1] = [("METACLAW__PROXY__PORT", "0")];

/// A home with this file, and the proxy that runs in it.
async fn started(file: &str, upstream: &Upstream) -> Result<(TestHome, Running)> {
    let home = home(file, upstream)?;
    let proxy = run(&home, &FREE_PORT).await?;
    Ok((home, proxy))
}

fn home(file: &str, upstream: &Upstream) -> Result<TestHome> {
    let path = format!("{}/tests/it/python/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).context(path)?;
    TestHome::new(&text.replace("URL", &upstream.url))
}

async fn run(home: &TestHome, variables: &[(&str, &str)]) -> Result<Running> {
    let stderr = std::fs::File::create(home.path().join("stderr.log"))?;
    home.start_with(stderr.into(), variables).await
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
    let upstream = Upstream::new().await.unwrap();
    for (name, words) in SAID {
        let (home, proxy) = started(&format!("{name}.yaml"), &upstream).await.unwrap();
        for said in words {
            assert!(proxy.banner.contains(said), "{said:?}: {}", proxy.banner);
        }
        assert!(!proxy.banner.contains("api.openai.com"), "{}", proxy.banner);
        let key = "s\r\nauthorization: Bearer callers-key";
        let reply = proxy.post(key, &["Hello"]).await.unwrap();
        assert!(reply.contains("answer to 1"), "{name}: {reply}");
        let status = home.json(&["status", "--json"]).await.unwrap();
        assert_eq!(status["running"], true, "{name}");
        proxy.kill().await.unwrap();
    }
}

/// Before a service trains, its owner says whether conversations may be sent there; an owner who refuses keeps the
/// model that answered so far.
#[tokio::test]
async fn where_a_service_trains_its_owner_is_asked_first() {
    let upstream = Upstream::new().await.unwrap();
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
        let home = home(&format!("{name}.yaml"), &upstream).unwrap();
        let refused = run(&home, &FREE_PORT).await.err().unwrap().to_string();
        assert!(refused.contains(&format!(" at {host} ")), "{refused}");
        assert!(refused.contains("privacy.cloud_training_ok"), "{refused}");
        let without = [
            FREE_PORT[0],
            ("METACLAW__PRIVACY__CLOUD_TRAINING_OK", "false"),
        ];
        let proxy = run(&home, &without).await.unwrap();
        for said in words {
            assert!(proxy.banner.contains(said), "{said:?}: {}", proxy.banner);
        }
        assert!(
            !proxy.banner.contains(&format!("-> {host}")),
            "{}",
            proxy.banner
        );
        let reply = proxy.post("key", &["Hello"]).await.unwrap();
        assert!(reply.contains("answer to 1"), "{name}: {reply}");
        proxy.kill().await.unwrap();
    }
}

#[tokio::test]
async fn a_login_is_answered_by_what_auth_keeps() {
    let upstream = Upstream::new().await.unwrap();
    for (provider, host) in [
        ("anthropic", "api.anthropic.com"),
        ("codex", "api.openai.com"),
        ("gemini", "generativelanguage.googleapis.com"),
    ] {
        let file = format!("main_oauth_{provider}.yaml");
        let (home, proxy) = started(&file, &upstream).await.unwrap();
        let banner = &proxy.banner;
        assert!(banner.contains(&format!(" at {host}")), "{banner}");
        assert!(banner.contains("judge -> nowhere"), "{banner}");
        let log = std::fs::read_to_string(home.path().join("stderr.log")).unwrap();
        assert!(
            log.contains("`metaclaw auth paste-token --provider "),
            "{log}"
        );
        proxy.kill().await.unwrap();
    }
}

#[tokio::test]
async fn claude_at_bedrock_answers_and_does_not_judge() {
    let upstream = Upstream::new().await.unwrap();
    let (_home, proxy) = started("v033_bedrock.yaml", &upstream).await.unwrap();
    let banner = &proxy.banner;
    let at = " at bedrock-runtime.us-east-1.amazonaws.com";
    assert!(banner.contains(at), "{banner}");
    assert!(
        banner.contains("judge.url, evolver.url: models are asked in"),
        "{banner}"
    );
    assert!(banner.contains("judge -> nowhere"), "{banner}");
    assert!(banner.contains("proxy.api_key: it is empty"), "{banner}");
    proxy.kill().await.unwrap();
}

/// Before this test, the answer was 503, as if there were no model.
#[tokio::test]
async fn a_local_model_serves_where_no_weights_are_to_learn() {
    let upstream = Upstream::new().await.unwrap();
    let config = "mode: skills_only\nproxy: {port: 0}\nrl: {remote_url: 'REMOTE'}\n";
    let remote = upstream.url.trim_end_matches("/v1");
    let home = TestHome::new(&config.replace("REMOTE", remote)).unwrap();
    let proxy = home.start().await.unwrap();
    assert!(
        proxy.banner.contains("no weights (mode skills_only)"),
        "{}",
        proxy.banner
    );
    assert_eq!(proxy.chat("s", &["Hello"]).await.unwrap(), "answer to 1");
    proxy.kill().await.unwrap();
}
