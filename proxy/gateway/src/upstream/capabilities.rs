//! What an upstream supports.

use std::{num::NonZeroUsize, sync::Mutex, time::Duration};

use http::uri::PathAndQuery;
use lru::LruCache;
use metaclaw_aws::BedrockEndpoint;
use metaclaw_dialects::{Api, mend::Demands, translate::Direction};
use tokio::time::Instant;

use crate::{
    LONGEST_NAME,
    address::UpstreamAddress,
    config::{Provider, UpstreamConfig},
    lock::lock,
};

/// The host that serves only OpenAI's own APIs.
const OPENAI: &str = "api.openai.com";
const STRICT: [&str; 6] = [
    OPENAI,
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "api.mistral.ai",
    "api.groq.com",
    "api.cerebras.ai",
];

/// How long it is remembered that a server lacks something, because the server may be replaced or updated.
const FORGET: Duration = Duration::from_secs(3_600);
const MODELS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// What an upstream supports.
///
/// Every server that copies OpenAI's API has chat completions. Many also have Responses and Anthropic's messages, and
/// many do not. If no setting says which, the proxy first uses the caller's own API, and uses chat completions for an
/// hour if the server has no such route.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "none of them says anything of another"
)]
pub(crate) struct UpstreamCapabilities {
    apis: Vec<Api>,
    /// If the further APIs are only guessed: which guesses were wrong.
    lacks: Option<LackedApis>,
    lacks_ids: Option<NegativeCache>,
    lacks_count: NegativeCache,
    /// Whether its models may write tool calls and thinking as text.
    pub calls_in_text: bool,
    /// Whether its models read images and files.
    pub reads_media: bool,
    /// Whether requests that are not chats may be sent to it. For our own trainer, these would be orders.
    pub takes_everything: bool,
    /// Whether it appends lessons to the system prompt itself.
    pub appends_system: bool,
    demands: Mutex<LruCache<String, Demands>>,
    /// Whether it refuses unknown fields, or must not mistake a client's fields for its own.
    pub refuses_unknown: bool,
}

#[derive(Debug, Default)]
struct LackedApis {
    messages: NegativeCache,
    responses: NegativeCache,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    /// Whether token ids are requested, if it can return them.
    pub ids: bool,
    /// Whether the API is only guessed.
    pub guess: bool,
}

#[derive(Debug, Default)]
struct NegativeCache(Mutex<Option<Instant>>);

// === impl NegativeCache ===

impl NegativeCache {
    fn is_known(&self) -> bool {
        lock(&self.0).is_some_and(|since| since.elapsed() < FORGET)
    }

    fn set(&self) {
        *lock(&self.0) = Some(Instant::now());
    }
}

// === impl UpstreamCapabilities ===

impl UpstreamCapabilities {
    pub(super) fn from_config(config: &UpstreamConfig, address: &UpstreamAddress) -> Self {
        use Provider::{Anthropic, Azure, Openai, Vllm};
        let is_bedrock = BedrockEndpoint::of_host(address.name()).is_some();
        let is_guessed = config.speaks.is_none()
            && matches!(config.dialect, Openai | Vllm | Azure)
            && address.name() != OPENAI
            && !is_bedrock;
        let usual = || match config.dialect {
            _ if is_bedrock && BedrockEndpoint::is_messages(&config.url) => vec![Api::Messages],
            _ if is_bedrock => vec![Api::Chat],
            Anthropic => vec![Api::Messages],
            Openai | Vllm if is_guessed => vec![Api::Chat, Api::Responses, Api::Messages],
            Openai | Vllm | Azure => vec![Api::Chat, Api::Responses],
        };
        Self {
            apis: config.speaks.clone().unwrap_or_else(usual),
            lacks: is_guessed.then(LackedApis::default),
            lacks_ids: (config.dialect == Vllm).then(NegativeCache::default),
            lacks_count: NegativeCache::default(),
            calls_in_text: config.tool_calls_in_text,
            reads_media: true,
            // What is not a chat streams by, and a stream cannot be signed; a list of models has no body.
            takes_everything: !is_bedrock,
            appends_system: false,
            demands: Mutex::new(LruCache::new(MODELS)),
            refuses_unknown: config.dialect == Azure
                || is_bedrock
                || STRICT.contains(&address.name()),
        }
    }

    pub(super) fn policy(appends_system: bool) -> Self {
        Self {
            apis: vec![Api::Chat],
            lacks: None,
            lacks_ids: None,
            lacks_count: NegativeCache::default(),
            calls_in_text: true,
            reads_media: false,
            takes_everything: false,
            appends_system,
            demands: Mutex::new(LruCache::new(MODELS)),
            refuses_unknown: true,
        }
    }

    pub(crate) fn demands(&self, model: &str) -> Demands {
        lock(&self.demands).get(model).copied().unwrap_or_default()
    }

    pub(crate) fn demand(&self, model: &str, demands: Demands) {
        if model.len() <= LONGEST_NAME {
            lock(&self.demands).put(model.to_owned(), demands);
        }
    }

    pub(crate) fn variant(&self, api: Api) -> Variant {
        let lacked = self.lacked(api);
        Variant {
            ids: self.lacks_ids.as_ref().is_some_and(|lack| !lack.is_known()),
            guess: lacked.is_some_and(|lack| !lack.is_known()),
        }
    }

    pub(crate) fn lacks_ids(&self) {
        self.lacks_ids.iter().for_each(NegativeCache::set);
    }

    pub(crate) fn lacks_api(&self, api: Api) {
        self.lacked(api).into_iter().for_each(NegativeCache::set);
    }

    pub(crate) fn lacks_count(&self) {
        self.lacks_count.set();
    }

    pub(crate) fn counts_tokens(&self) -> bool {
        self.takes_everything
            && self.has(Api::Messages, self.variant(Api::Messages))
            && !self.lacks_count.is_known()
    }

    /// Returns whether a reply that the route does not exist would be new information.
    pub(crate) fn is_guess(&self, api: Api, variant: Variant) -> bool {
        variant.guess && self.lacked(api).is_some()
    }

    /// Returns whether a guess that it has this API was wrong, if it was a guess.
    fn lacked(&self, api: Api) -> Option<&NegativeCache> {
        let lacks = self.lacks.as_ref()?;
        match api {
            Api::Chat => None,
            Api::Messages => Some(&lacks.messages),
            Api::Responses => Some(&lacks.responses),
        }
    }

    /// Returns the API in which a chat of `api` is sent to it: the chat's own, else one into which it can be
    /// translated. Returns `None` if there is none.
    pub(crate) fn target_api(&self, api: Api, variant: Variant) -> Option<Api> {
        if self.has(api, variant) {
            return Some(api);
        }
        let can =
            |other: &Api| !Direction::path(api, *other).is_empty() && self.has(*other, variant);
        [Api::Chat, Api::Messages].into_iter().find(can)
    }

    fn has(&self, api: Api, variant: Variant) -> bool {
        let is_excluded = self.lacked(api).is_some() && !variant.guess;
        self.apis.contains(&api) && !is_excluded
    }

    /// Returns whether it probably has a route that is not a chat: a route below `/v1/messages` if it has that API, any
    /// other if it has one of OpenAI's.
    pub(crate) fn suits(&self, route: &PathAndQuery) -> bool {
        let has = |api| self.has(api, self.variant(api));
        match Api::nearest(route.path()) {
            Api::Messages => has(Api::Messages),
            Api::Chat | Api::Responses => has(Api::Chat) || has(Api::Responses),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_an_upstream_does_not_speak_an_api_is_forgotten_in_time() {
        let config = UpstreamConfig::default();
        let address =
            UpstreamAddress::for_upstream("http://models.example/v1", config.dialect, None);
        let it = UpstreamCapabilities::from_config(&config, &address.unwrap());
        let target = |api| it.target_api(api, it.variant(api));
        for (api, other) in [
            (Api::Messages, Api::Responses),
            (Api::Responses, Api::Messages),
        ] {
            assert!(it.is_guess(api, it.variant(api)));
            advance(FORGET).await;
            it.lacks_api(api);
            assert_eq!(target(api), Some(Api::Chat));
            assert_eq!(target(other), Some(other), "one says nothing of the other");
            assert!(!it.is_guess(api, it.variant(api)));
            advance(FORGET / 2).await;
            assert_eq!(target(api), Some(Api::Chat));
            advance(FORGET / 2).await;
            assert_eq!(target(api), Some(api), "it is asked again");
        }
    }

    #[test]
    fn openai_itself_is_known_to_speak_responses() {
        let config = UpstreamConfig::default();
        let address =
            UpstreamAddress::for_upstream("https://api.openai.com/v1", config.dialect, None);
        let it = UpstreamCapabilities::from_config(&config, &address.unwrap());
        let variant = it.variant(Api::Responses);
        assert_eq!(it.target_api(Api::Responses, variant), Some(Api::Responses));
        assert!(!it.is_guess(Api::Responses, variant));
        let variant = it.variant(Api::Messages);
        assert_eq!(it.target_api(Api::Messages, variant), Some(Api::Chat));
    }
}
