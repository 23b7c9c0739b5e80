//! The JSON answers of a provider: of its token endpoint, and of the API that a token opens.

use std::time::Duration;

use anyhow::{bail, ensure};
use serde_json::Value;

/// The largest answer that is read, in bytes.
const MAX_ANSWER: usize = 1 << 20;
/// The timeout for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a request, and reads the answer as JSON. The value is `null` if the answer is no JSON.
///
/// # Errors
/// If the provider refuses, with its own words. Also if it cannot be reached, or its answer is too long or too late.
pub(crate) async fn answered(request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
    let told = |error: reqwest::Error| anyhow::Error::from(error.without_url());
    let mut answer = request.timeout(TIMEOUT).send().await.map_err(told)?;
    let status = answer.status();
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(told)? {
        ensure!(
            body.len() + chunk.len() <= MAX_ANSWER,
            "the answer has more than {MAX_ANSWER} bytes, which is the limit"
        );
        body.extend_from_slice(&chunk);
    }
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    if !status.is_success() {
        let why = ["error_description", "error"]
            .iter()
            .find_map(|it| value[*it].as_str());
        let nested = value["error"]["message"].as_str();
        bail!(
            "the answer is {status}: {}",
            why.or(nested).unwrap_or("no reason is given")
        );
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use metaclaw_test_kit::{Reply, Server};

    use super::*;

    #[tokio::test]
    async fn an_answer_is_read_up_to_the_limit() {
        let server =
            Server::scripted([3, MAX_ANSWER + 1].map(|length| Reply::bytes("1".repeat(length))));
        let client = metaclaw_llm::loopback_client().unwrap();
        let fits = answered(client.get(server.url())).await;
        assert_eq!(fits.unwrap(), 111);
        let why = answered(client.get(server.url())).await;
        assert_eq!(
            why.unwrap_err().to_string(),
            "the answer has more than 1048576 bytes, which is the limit"
        );
    }
}
