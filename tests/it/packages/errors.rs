//! Tests of errors: each package raises the class that its users catch, with all fields that they read.

use serde_json::{Value, json};

use super::{Pair, program, run};

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn each_package_raises_what_it_would_without_us() {
    for (package, apis) in [
        ("openai", &["chat", "responses"][..]),
        ("anthropic", &["messages"]),
    ] {
        let pair = Pair::start(package, &Value::Null).await;
        let seen = pair.assert_same("raises.py", &args(package, apis)).await;
        assert_classes(package, apis, &seen);
        pair.proxy.stop().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn our_own_refusals_are_typed_too() {
    for (package, api) in [("openai", "chat"), ("anthropic", "messages")] {
        let locked = json!({"proxy": {"api_key": "sk-the-right-one"}});
        let pair = Pair::start(package, &locked).await;
        let proxy = &pair.proxy;
        let raised = async |key| {
            let args = [package, key, api, "text"];
            let seen = run(program(&pair.python, "raises.py", &proxy.base_url, &args)).await;
            let seen = &seen[format!("{api} text streamed")];
            (seen["raised"].clone(), seen["status"].clone())
        };
        let door = raised("sk-the-wrong-one").await;
        assert_eq!(door, (json!("AuthenticationError"), json!(401)));
        assert!(pair.behind.received().is_empty(), "nobody came in");
        assert_eq!(raised("sk-the-right-one").await.0, Value::Null);
        drop(pair.behind);
        let away = raised("sk-the-right-one").await;
        assert_eq!(away, (json!("InternalServerError"), json!(502)));
        pair.proxy.stop().await.unwrap();
    }
}

/// Sends every error to a package behind the proxy, in these APIs.
pub(super) async fn assert_raised(pair: &Pair, package: &str, apis: &[&str]) {
    let args = args(package, apis);
    let at = &pair.proxy.base_url;
    let seen = run(program(&pair.python, "raises.py", at, &args)).await;
    assert_classes(package, apis, &seen);
}

fn args<'a>(package: &'a str, apis: &[&'a str]) -> Vec<&'a str> {
    let scenes = [
        "text",
        "err500",
        "err429",
        "err400ctx",
        "cut",
        "once-limited",
    ];
    [&[package, "sk-caller"], apis, &scenes].concat()
}

fn assert_classes(package: &str, apis: &[&str], seen: &Value) {
    for api in apis {
        for how in ["whole", "streamed"] {
            let raised = |scene| &seen[format!("{api} {scene} {how}")];
            assert_eq!(raised("text")["raised"], Value::Null);
            assert_eq!(raised("err500")["raised"], "InternalServerError");
            assert_eq!(raised("err429")["raised"], "RateLimitError");
            assert_eq!(raised("err429")["headers"]["retry-after"], "1");
            let overflow = raised("err400ctx");
            assert_eq!(overflow["raised"], "BadRequestError");
            let is_named = overflow["code"] == "context_length_exceeded";
            assert_eq!(is_named, package == "openai", "{overflow}");
            assert_ne!(raised("cut")["raised"], Value::Null, "a cut is no end");
        }
        let retried = &seen[format!("{api} once-limited whole")];
        assert_eq!(retried["raised"], Value::Null, "{retried}");
    }
}
