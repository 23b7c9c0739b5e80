//! Providers that can be named instead of an address, as in the Python original's wizard.

use figment::value::Value;

use crate::{
    address::host,
    layer::{Layer, Origin},
};

/// A provider of chat models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatProvider {
    /// Its name in `llm.provider`.
    pub name: &'static str,
    /// Its common name.
    pub title: &'static str,
    /// Its address, for `llm.api_base`.
    pub api_base: &'static str,
    /// A model that it had when this was written; empty if the owner has to choose.
    pub model: &'static str,
}

const fn provider(
    name: &'static str,
    title: &'static str,
    api_base: &'static str,
    model: &'static str,
) -> ChatProvider {
    ChatProvider {
        name,
        title,
        api_base,
        model,
    }
}

/// The providers that have an address of their own. `custom` has none.
pub const PROVIDERS: &[ChatProvider] = &[
    provider("openai", "OpenAI", "https://api.openai.com/v1", "gpt-4o"),
    provider(
        "anthropic",
        "Anthropic",
        "https://api.anthropic.com",
        "claude-sonnet-4-6",
    ),
    provider(
        "gemini",
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "gemini-2.5-pro",
    ),
    provider(
        "openrouter",
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        "",
    ),
    provider("deepseek", "DeepSeek", "https://api.deepseek.com/v1", ""),
    provider(
        "kimi",
        "Kimi (Moonshot)",
        "https://api.moonshot.cn/v1",
        "kimi-k2.5",
    ),
    provider(
        "qwen",
        "Qwen (DashScope)",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        "qwen-plus",
    ),
    provider(
        "minimax",
        "MiniMax",
        "https://api.minimax.io/v1",
        "MiniMax-M2.7",
    ),
    provider("novita", "Novita", "https://api.novita.ai/openai", ""),
    provider(
        "volcengine",
        "Volcengine Ark",
        "https://ark.cn-beijing.volces.com/api/v3",
        "doubao-seed-2-0-pro-260215",
    ),
    provider(
        "ollama",
        "Ollama on this machine",
        "http://127.0.0.1:11434/v1",
        "",
    ),
    provider(
        "lmstudio",
        "LM Studio on this machine",
        "http://127.0.0.1:1234/v1",
        "",
    ),
    provider(
        "openai-codex",
        "OpenAI, by the login of Codex",
        "https://api.openai.com/v1",
        "",
    ),
];

/// Returns the provider of a name.
pub fn named(name: &str) -> Option<&'static ChatProvider> {
    PROVIDERS.iter().find(|it| it.name == name)
}

/// Returns the provider with this address.
pub fn at(url: &str) -> Option<&'static ChatProvider> {
    PROVIDERS.iter().find(|it| host(it.api_base) == host(url))
}

/// Returns what `llm.provider` stands for if `llm.api_base` is not set, as a layer below `layers`.
pub(super) fn layer(layers: &[Layer]) -> Option<Layer> {
    if text(layers, "llm.api_base").is_some() {
        return None;
    }
    let known = named(text(layers, "llm.provider")?)?;
    let mut layer = Layer::empty(Origin::Provider);
    layer.set("llm.api_base", &Value::from(known.api_base));
    Some(layer)
}

/// Returns the text in force at a key; the last layer has the highest priority.
pub(super) fn text<'a>(layers: &'a [Layer], path: &str) -> Option<&'a str> {
    let mut given = layers.iter().rev().filter_map(|it| it.values().get(path));
    given.find_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_stands_for_its_address_where_none_is_given() {
        let layer_of = |text: &str| layer(&[Layer::text("config.yaml".into(), text).unwrap()]);
        let named = layer_of("llm: {provider: qwen}\n").unwrap();
        let base = named.values()["llm.api_base"].as_str().unwrap().to_owned();
        assert!(base.starts_with("https://dashscope."), "{base}");
        assert!(layer_of("llm: {provider: qwen, api_base: 'http://h/v1'}\n").is_none());
        assert!(layer_of("llm: {provider: custom}\n").is_none());
    }

    #[test]
    fn names_and_hosts_are_each_found_again() {
        for it in PROVIDERS {
            assert_eq!(named(it.name), Some(it));
            assert_eq!(host(at(it.api_base).unwrap().api_base), host(it.api_base));
        }
        assert_eq!(
            host("https://user:pass@h.example:8443/v1"),
            "h.example:8443"
        );
        assert_eq!(at("https://api.openai.com.example/v1"), None);
    }
}
