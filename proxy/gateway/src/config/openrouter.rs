//! `openrouter.*`: what requests to OpenRouter ask for beside the chat.
//!
//! <https://openrouter.ai/docs/features/provider-routing> and <https://openrouter.ai/docs/features/model-routing>
//! describe the fields.

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const HOST: &str = "openrouter.ai";
const REFERER: HeaderName = HeaderName::from_static("http-referer");
const TITLE: HeaderName = HeaderName::from_static("x-title");

/// `openrouter.*`: for upstreams at openrouter.ai, and for models there that learning asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpenRouterConfig {
    /// The name of your app in OpenRouter's statistics. The header X-Title carries it.
    pub app_name: Option<String>,
    /// The address of your app in OpenRouter's statistics. The header HTTP-Referer carries it.
    #[schemars(url)]
    pub app_url: Option<String>,
    /// By what OpenRouter chooses among the providers of a model: price, throughput or latency. With fallback, and
    /// without it, OpenRouter balances them itself.
    pub route: Option<OpenRouterRoute>,
    /// The models that OpenRouter asks if the first one cannot answer. Learning never uses them for a judge.
    pub fallback_models: Vec<String>,
    /// Whether providers may be asked that keep prompts or train on them. With deny, OpenRouter asks only others.
    pub data_policy: Option<DataPolicy>,
}

/// The order of a model's providers: `openrouter.route`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpenRouterRoute {
    /// OpenRouter's own balance.
    Fallback,
    Price,
    Throughput,
    Latency,
}

/// Whether providers may keep prompts: `openrouter.data_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataPolicy {
    Allow,
    Deny,
}

// === impl OpenRouterConfig ===

impl OpenRouterConfig {
    /// Returns whether a host is OpenRouter's.
    pub fn is_host(host: &str) -> bool {
        host == HOST
            || host
                .strip_suffix(HOST)
                .is_some_and(|above| above.ends_with('.'))
    }

    /// Returns the fields to set in a request that has these fields and asks for `model`. What a client set itself is
    /// among them only with additions.
    pub fn fields(
        &self,
        field: impl Fn(&str) -> Option<Value>,
        model: Option<&str>,
    ) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        if let Some(provider) = self.provider(field("provider")) {
            fields.push(("provider", Value::Object(provider).to_string()));
        }
        let mut models: Vec<&str> = model.into_iter().collect();
        let more = self.fallback_models.iter().map(|name| name.trim());
        models.extend(more.filter(|name| !name.is_empty() && Some(*name) != model));
        if models.len() > 1 && field("models").is_none() {
            fields.push(("models", Value::from(models).to_string()));
        }
        fields
    }

    /// Returns the preferences among providers, or none if these settings add nothing to those `given`.
    pub fn provider(&self, given: Option<Value>) -> Option<Map<String, Value>> {
        let mut provider = match given {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(given)) => given,
            Some(_) => return None,
        };
        let before = provider.len();
        let sort = self.route.and_then(OpenRouterRoute::sort);
        let policy = self.data_policy.map(DataPolicy::word);
        for (name, value) in [("sort", sort), ("data_collection", policy)] {
            if let Some(value) = value {
                provider.entry(name).or_insert_with(|| Value::from(value));
            }
        }
        (provider.len() > before).then_some(provider)
    }

    /// Returns the headers that name the app, as far as they can be headers.
    pub fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let named = [(REFERER, &self.app_url), (TITLE, &self.app_name)];
        named.into_iter().filter_map(|(name, value)| {
            let value = HeaderValue::try_from(value.as_deref()?);
            Some((name, value.ok()?))
        })
    }

    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in self.headers() {
            headers.entry(name).or_insert(value);
        }
    }
}

// === impl OpenRouterRoute ===

impl OpenRouterRoute {
    fn sort(self) -> Option<&'static str> {
        match self {
            Self::Fallback => None,
            Self::Price => Some("price"),
            Self::Throughput => Some("throughput"),
            Self::Latency => Some("latency"),
        }
    }
}

// === impl DataPolicy ===

impl DataPolicy {
    fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(given: Value) -> OpenRouterConfig {
        serde_json::from_value(given).unwrap()
    }

    fn set(config: &OpenRouterConfig, request: &Value) -> Value {
        let fields = config.fields(|name| request.get(name).cloned(), Some("a/main"));
        let fields = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), serde_json::from_str(&value).unwrap()));
        fields.collect::<Map<_, _>>().into()
    }

    #[test]
    fn settings_become_fields_and_what_the_client_set_wins() {
        let all = config(json!({
            "route": "price", "fallback_models": ["b/next", "", "a/main"], "data_policy": "deny"
        }));
        assert_eq!(
            set(&all, &json!({})),
            json!({
                "provider": {"sort": "price", "data_collection": "deny"},
                "models": ["a/main", "b/next"],
            })
        );
        let own = json!({"models": ["c"], "provider": {"sort": "latency", "order": ["x"]}});
        assert_eq!(
            set(&all, &own),
            json!({"provider": {"sort": "latency", "order": ["x"], "data_collection": "deny"}})
        );
        let own =
            json!({"provider": {"sort": "latency", "data_collection": "allow"}, "models": null});
        assert_eq!(set(&all, &own), json!({}));
        assert_eq!(set(&all, &json!({"provider": 7, "models": []})), json!({}));
        let none = config(json!({"route": "fallback", "fallback_models": [""]}));
        assert_eq!(set(&none, &json!({})), json!({}));
    }

    #[test]
    fn only_openrouters_own_hosts_are_its() {
        assert!(OpenRouterConfig::is_host("openrouter.ai"));
        assert!(OpenRouterConfig::is_host("eu.openrouter.ai"));
        assert!(!OpenRouterConfig::is_host("notopenrouter.ai"));
        assert!(!OpenRouterConfig::is_host("openrouter.ai.example"));
    }
}
