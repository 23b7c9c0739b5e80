//! What models at OpenRouter are told besides a chat when learning asks them.

use http::HeaderValue;
use metaclaw_gateway::OpenRouterConfig;
use metaclaw_llm::ExtraParts;
use metaclaw_settings::address::host;
use serde_json::Value;

/// What a model at this address is told besides the chat. No other model than the one that was chosen may judge, so
/// OpenRouter is not told which others it may ask.
pub(super) fn extra_parts(url: &str, openrouter: &OpenRouterConfig) -> ExtraParts {
    let name = host(url).split(':').next().unwrap_or_default();
    if !OpenRouterConfig::is_host(name) {
        return ExtraParts::default();
    }
    let headers = openrouter.headers();
    let text = |value: HeaderValue| value.to_str().map(str::to_owned).ok();
    let provider = openrouter.provider(None);
    let provider = provider.map(|it| ("provider".to_owned(), Value::Object(it)));
    ExtraParts {
        headers: headers
            .filter_map(|(name, value)| Some((name.to_string(), text(value)?)))
            .collect(),
        fields: provider.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_at_openrouter_is_asked_by_its_settings() {
        let openrouter = serde_json::json!({
            "app_name": "Mine", "data_policy": "deny", "fallback_models": ["other"]
        });
        let openrouter = serde_json::from_value(openrouter).unwrap();
        let extra = extra_parts("https://openrouter.ai/api/v1", &openrouter);
        assert_eq!(extra.headers["x-title"], "Mine");
        let fields = Value::Object(extra.fields);
        let expected = serde_json::json!({"provider": {"data_collection": "deny"}});
        assert_eq!(fields, expected);
        let extra = extra_parts("https://openrouter.ai.example/v1", &openrouter);
        assert_eq!(extra, ExtraParts::default());
    }
}
