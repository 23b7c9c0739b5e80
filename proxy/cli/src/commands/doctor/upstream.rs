//! The upstream `llm`: whether it answers, and takes the key.

use std::time::Duration;

use metaclaw_llm::http_client;
use metaclaw_settings::{
    Llm, Loaded,
    address::{host, is_bedrock},
};
use reqwest::StatusCode;

use super::check::DoctorCheck;
use crate::roots;

const NAME: &str = "upstream";
const TIMEOUT: Duration = Duration::from_secs(10);
const ANTHROPIC: &str = "anthropic";

pub(super) async fn check(loaded: &Loaded) -> DoctorCheck {
    let llm = &loaded.config.llm;
    let Some(url) = &llm.api_base else {
        let others = loaded.config.gateway.upstreams.len();
        return if others == 0 {
            DoctorCheck::note(NAME, "none is configured (llm.api_base)")
        } else {
            DoctorCheck::note(NAME, format!("{others} in upstreams.*, not tried"))
        };
    };
    if is_bedrock(url) {
        return DoctorCheck::note(
            NAME,
            format!("{}: not tried, as it lists no models", host(url)),
        );
    }
    let url = models_url(url);
    let client = match http_client(&roots::load()) {
        Ok(client) => client,
        Err(error) => return DoctorCheck::note(NAME, format!("not tried: {error}")),
    };
    match asked(&client, &url, llm).await {
        Ok(status) => judged(&url, status, llm.api_key.is_some()),
        Err(error) => DoctorCheck::bad(
            NAME,
            format!("{url}: {}", error.without_url()),
            "check llm.api_base, and the way there (HTTPS_PROXY, upstreams.llm.proxy)",
        ),
    }
}

/// Its list of models, which costs nothing.
fn models_url(base: &str) -> String {
    let base = base.trim_end_matches('/');
    let is_bare = base
        .split_once("://")
        .is_some_and(|(_, rest)| !rest.contains('/'));
    if is_bare {
        format!("{base}/v1/models")
    } else {
        format!("{base}/models")
    }
}

async fn asked(
    client: &reqwest::Client,
    url: &str,
    llm: &Llm,
) -> Result<StatusCode, reqwest::Error> {
    let mut request = client.get(url).timeout(TIMEOUT);
    if let Some(key) = &llm.api_key {
        request = if url.contains(ANTHROPIC) {
            let request = request.header("x-api-key", key.expose());
            request.header("anthropic-version", "2023-06-01")
        } else {
            request.bearer_auth(key.expose())
        };
    }
    Ok(request.send().await?.status())
}

fn judged(url: &str, status: StatusCode, has_key: bool) -> DoctorCheck {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if has_key => DoctorCheck::bad(
            NAME,
            format!("{url} refuses the key ({status})"),
            "`metaclaw config llm.api_key KEY`, then stop and start",
        ),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            DoctorCheck::fine(NAME, format!("{url} answers; the key is the agent's own"))
        }
        status if status.is_server_error() => DoctorCheck::bad(
            NAME,
            format!("{url} answers {status}"),
            "it is the provider's: try again later",
        ),
        status if status.is_success() => DoctorCheck::fine(NAME, format!("{url} answers")),
        status => DoctorCheck::note(
            NAME,
            format!("{url} answers {status}: it is there, and lists no models"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_models_is_where_the_gateway_would_ask() {
        let urls = [
            "https://a.example",
            "https://a.example/v1/",
            "http://b/paas/v4",
        ];
        let asked = urls.map(models_url);
        assert_eq!(
            asked,
            [
                "https://a.example/v1/models",
                "https://a.example/v1/models",
                "http://b/paas/v4/models"
            ]
        );
    }
}
