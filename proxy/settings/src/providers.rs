//! Providers that can be named instead of an address, as in the Python original's wizard.

use metaclaw_aws::BedrockEndpoint;
use serde_json::Value;

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

/// The provider whose address depends on the region and the model, and who needs no key.
pub const BEDROCK: &str = "bedrock";
const REGION: &str = "llm.bedrock_region";
const DEFAULT_REGION: &str = "us-east-1";

/// A model of the settings that may have a provider.
struct NamedModel {
    section: &'static str,
    /// Its keys for the address and the model.
    address: &'static str,
    model: &'static str,
    /// Whether the provider counts only beside a key. The Python original wrote a provider for each model, and no text may
    /// go to a judge that would refuse it.
    needs_key: bool,
}

const NAMED: [NamedModel; 3] = [
    NamedModel {
        section: "llm",
        address: "api_base",
        model: "model_id",
        needs_key: false,
    },
    NamedModel {
        section: "judge",
        address: "url",
        model: "model",
        needs_key: true,
    },
    NamedModel {
        section: "evolver",
        address: "url",
        model: "model",
        needs_key: true,
    },
];

/// Returns what each `provider` stands for if its section has no address, as a layer below `layers`.
pub(super) fn layer(layers: &[Layer]) -> Option<Layer> {
    let mut layer = Layer::empty(Origin::Provider);
    for it in NAMED {
        let own = |name: &str| text(layers, &format!("{}.{name}", it.section));
        let Some(provider) = own("provider").filter(|_| own(it.address).is_none()) else {
            continue;
        };
        let has_key = !it.needs_key || own("key").is_some();
        let address = match provider {
            BEDROCK => {
                let region = text(layers, REGION).unwrap_or(DEFAULT_REGION);
                let model = own(it.model).or_else(|| text(layers, "llm.model_id"));
                Some(BedrockEndpoint::address(region, model.unwrap_or_default()))
            }
            name => named(name)
                .filter(|_| has_key)
                .map(|known| known.api_base.to_owned()),
        };
        if let Some(address) = address {
            layer.set(
                &format!("{}.{}", it.section, it.address),
                &Value::from(address),
            );
        }
    }
    (!layer.values().is_empty()).then_some(layer)
}

/// Returns what the environment says of Bedrock, as a layer below `layers`, if any provider is Bedrock.
pub(super) fn variables(layers: &[Layer], variables: &[(String, String)]) -> Layer {
    let mut layer = Layer::empty(Origin::Environment);
    let is_named = |section: &str| text(layers, &format!("{section}.provider")) == Some(BEDROCK);
    if !NAMED.iter().any(|it| is_named(it.section)) {
        return layer;
    }
    let given = |name: &str| {
        let found = variables.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value).filter(|it| !it.is_empty())
    };
    if let Some(region) = given("AWS_REGION").or_else(|| given("AWS_DEFAULT_REGION")) {
        layer.set(REGION, &Value::from(region.as_str()));
    }
    if let Some(key) = given("AWS_BEARER_TOKEN_BEDROCK").filter(|_| is_named("llm")) {
        layer.set("llm.api_key", &Value::from(key.as_str()));
    }
    layer
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
        let judge = layer_of("judge: {provider: qwen, key: k}\n").unwrap();
        assert_eq!(judge.values()["judge.url"].as_str().unwrap(), base);
        assert!(layer_of("rl: {prm_provider: openai, prm_api_key: ''}\n").is_none());
    }

    #[test]
    fn bedrocks_address_is_made_of_the_region_and_the_model() {
        let file = |text: &str| Layer::text("config.yaml".into(), text).unwrap();
        let text_of = "llm: {provider: bedrock, model_id: us.anthropic.claude-sonnet-4-6, bedrock_region: eu-west-1}
rl: {prm_provider: bedrock, prm_model: qwen.qwen3-32b}
";
        let named = layer(&[file(text_of)]).unwrap();
        let base = "https://bedrock-runtime.eu-west-1.amazonaws.com";
        let address = |path: &str| named.values()[path].as_str().unwrap().to_owned();
        assert_eq!(address("llm.api_base"), format!("{base}/anthropic/v1"));
        assert_eq!(address("judge.url"), format!("{base}/openai/v1"));
        let environment = [
            ("AWS_REGION".to_owned(), "us-west-2".to_owned()),
            ("AWS_BEARER_TOKEN_BEDROCK".to_owned(), "k".to_owned()),
        ];
        let said = variables(&[file("llm: {provider: bedrock}\n")], &environment);
        assert_eq!(said.values()[REGION].as_str(), Some("us-west-2"));
        assert_eq!(said.values()["llm.api_key"].as_str(), Some("k"));
        let other = variables(&[file("llm: {provider: openai}\n")], &environment);
        assert!(other.values().is_empty());
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
