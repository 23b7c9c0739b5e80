//! The sign-in at OpenRouter, which gives an API key: <https://openrouter.ai/docs/oauth>.

use anyhow::Context as _;
use metaclaw_chat::Secret;
use reqwest::Url;
use serde_json::json;

use super::loopback::{Pkce, Redirect, answered};

pub(crate) const OPENROUTER: &str = "https://openrouter.ai";
/// The port that OpenRouter's documentation names for programs on one's own machine.
pub(crate) const PORT: u16 = 3000;

pub(crate) fn page(site: &str, redirect: &Redirect, pkce: &Pkce) -> anyhow::Result<Url> {
    let back = format!("http://localhost:{}/{}", redirect.port, redirect.state);
    let query = [
        ("callback_url", back.as_str()),
        ("code_challenge", &pkce.challenge),
        ("code_challenge_method", "S256"),
    ];
    Ok(Url::parse_with_params(&format!("{site}/auth"), query)?)
}

/// Exchanges a code for an API key. The key does not expire. The account's page at openrouter.ai can withdraw it.
///
/// # Errors
/// If OpenRouter refuses the code, or cannot be reached.
pub(crate) async fn key(
    client: &reqwest::Client,
    site: &str,
    code: &str,
    pkce: &Pkce,
) -> anyhow::Result<Secret> {
    let body = json!({
        "code": code, "code_verifier": pkce.verifier, "code_challenge_method": "S256",
    });
    let request = client.post(format!("{site}/api/v1/auth/keys"));
    let request = request.header("content-type", "application/json");
    let answer = answered(request.body(body.to_string())).await;
    let answer = answer.context("OpenRouter gives no key")?;
    let key = answer["key"]
        .as_str()
        .context("OpenRouter's answer has no key")?;
    Ok(key.into())
}

#[cfg(test)]
mod tests {
    use metaclaw_test_kit::{Reply, Server};

    use super::*;

    #[tokio::test]
    async fn a_code_and_its_proof_become_a_key() {
        let server = Server::new(|request| {
            let asked = request.json();
            assert_eq!(request.path(), "/api/v1/auth/keys");
            assert_eq!(asked["code_challenge_method"], "S256");
            assert!(asked["code_verifier"].as_str().unwrap().len() >= 43);
            if asked["code"] == "right" {
                return Reply::json(json!({ "key": "sk-or-v1-x" }));
            }
            Reply::status(
                403,
                json!({ "error": { "code": 403, "message": "Invalid code" } }),
            )
        });
        let client = metaclaw_llm::loopback_client().unwrap();
        let pkce = Pkce::new();
        let right = key(&client, &server.url(), "right", &pkce).await.unwrap();
        assert_eq!(right.expose(), "sk-or-v1-x");
        let wrong = key(&client, &server.url(), "wrong", &pkce)
            .await
            .unwrap_err();
        assert!(format!("{wrong:#}").ends_with("Invalid code"), "{wrong:#}");
    }

    #[tokio::test]
    async fn the_page_names_where_to_come_back_to_and_the_challenge() {
        let redirect = Redirect::listen(0).await.unwrap();
        let pkce = Pkce::new();
        let page = page(OPENROUTER, &redirect, &pkce).unwrap();
        let pairs: Vec<_> = page.query_pairs().collect();
        let back = format!("http://localhost:{}/{}", redirect.port, redirect.state);
        assert_eq!(pairs[0].1, back);
        assert_eq!(pairs[1].1, pkce.challenge);
        assert!(page.as_str().starts_with("https://openrouter.ai/auth?"));
    }
}
