//! Providers that can be named instead of an address, as in the Python original's wizard.

use std::sync::LazyLock;

use metaclaw_aws::BedrockEndpoint;
use serde_json::Value;

use crate::{
    address::host,
    environment,
    layer::{Layer, Origin},
    table,
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

/// The providers that have an address of their own. `custom` has none.
pub static PROVIDERS: LazyLock<Vec<ChatProvider>> = LazyLock::new(|| {
    let lines = include_str!("providers.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#'));
    rows.filter_map(provider).collect()
});

/// The provider of a row, if the row has all columns.
fn provider(row: &'static str) -> Option<ChatProvider> {
    let mut fields = row.split('|').map(str::trim);
    Some(ChatProvider {
        name: fields.next()?,
        title: fields.next()?,
        api_base: fields.next()?,
        model: fields.next()?,
    })
}

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

/// The sections of models that may have a provider, and the key of each one's address.
///
/// A provider of learning's models counts only beside a key: the Python original wrote a provider for each model, and no
/// text may go to a judge that would refuse it.
const SECTIONS: [(&str, &str); 3] = [("llm", "api_base"), ("judge", "url"), ("evolver", "url")];

/// Returns what each `provider` stands for if its section has no address, as a layer below `layers`.
pub(super) fn layer(layers: &[Layer]) -> Option<Layer> {
    let mut layer = Layer::empty(Origin::Provider);
    for (section, address) in SECTIONS {
        let own = |name: &str| text(layers, &format!("{section}.{name}"));
        let is_llm = section == "llm";
        let Some(provider) = own("provider").filter(|_| own(address).is_none()) else {
            continue;
        };
        let given = if provider == BEDROCK {
            let region = text(layers, REGION).unwrap_or(DEFAULT_REGION);
            let model = own("model").or_else(|| text(layers, "llm.model_id"));
            Some(BedrockEndpoint::address(region, model.unwrap_or_default()))
        } else {
            let known = named(provider).filter(|_| is_llm || own("key").is_some());
            known.map(|known| known.api_base.to_owned())
        };
        if let Some(given) = given {
            layer.set(&format!("{section}.{address}"), &given.into());
        }
    }
    (!layer.values().is_empty()).then_some(layer)
}

/// Refuses unknown providers. With an address of its own, a section may name a provider that only `metaclaw auth` knows,
/// but not one that reads like a known name.
pub(super) fn refuse_unknown(layers: &mut [Layer]) {
    let names = PROVIDERS.iter().map(|it| it.name);
    let known: Vec<&str> = names.chain(["custom", BEDROCK]).collect();
    for (section, address) in SECTIONS {
        let key = format!("{section}.provider");
        let Some(given) = text(layers, &key).filter(|it| !known.contains(it)) else {
            continue;
        };
        let given = given.to_owned();
        let nearest = table::closest(&given.to_lowercase(), known.iter().map(|it| (*it, *it)));
        let address = format!("{section}.{address}");
        if nearest.is_none() && text(layers, &address).is_some() {
            continue;
        }
        let meant = nearest.map_or_else(String::new, |it| format!("did you mean {it}? One of "));
        let known = known.join(", ");
        let reason = format!("{meant}{known}; for another server, set {address} to its address");
        let mut givers = layers.iter_mut().rev();
        if let Some(giver) = givers.find(|it| it.values().contains_key(&key)) {
            giver.problem(&key, &given, reason);
        }
    }
}

/// Returns what the environment says of Bedrock, as a layer below `layers`, if any provider is Bedrock.
pub(super) fn variables(layers: &[Layer], variables: &[(String, String)]) -> Layer {
    let mut layer = Layer::empty(Origin::Environment);
    let is_named = |section: &str| text(layers, &format!("{section}.provider")) == Some(BEDROCK);
    if !SECTIONS.iter().any(|(section, _)| is_named(section)) {
        return layer;
    }
    let given = |name: &str| environment::given(variables, name);
    if let Some(region) = given("AWS_REGION").or_else(|| given("AWS_DEFAULT_REGION")) {
        layer.set(REGION, &region.into());
    }
    if let Some(key) = given("AWS_BEARER_TOKEN_BEDROCK").filter(|_| is_named("llm")) {
        layer.set("llm.api_key", &key.into());
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
        for it in PROVIDERS.iter() {
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
