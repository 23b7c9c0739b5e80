//! What an upstream can be asked, and how.

use std::{num::NonZeroUsize, sync::Mutex};

use http::uri::PathAndQuery;
use lru::LruCache;
use metaclaw_dialects::{Api, mend::Demands, translate::Direction};

use super::negative_cache::NegativeCache;
use crate::{
    address::Address,
    config::{Provider, UpstreamConfig},
    lock::lock,
};

/// The host that serves OpenAI's own APIs and nobody else's.
const OPENAI: &str = "api.openai.com";
/// Hosts that refuse a request with a field that they do not know.
const STRICT: [&str; 6] = [
    OPENAI,
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "api.mistral.ai",
    "api.groq.com",
    "api.cerebras.ai",
];

/// Models of one server of which it is remembered what they want in a history.
const MODELS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// What an upstream can be asked.
///
/// Every server that copies OpenAI's API speaks chat completions. Many speak Responses and Anthropic's messages as
/// well by now, and many do not. Where nobody said which, they are asked in the caller's own API first, and in chat
/// completions for an hour if they know no such route.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "none of them says anything of another"
)]
pub(crate) struct Capabilities {
    apis: Vec<Api>,
    /// Where it is a guess that it speaks more than chat completions: what of it was wrong.
    lacks: Option<LackedApis>,
    /// Where it should give token ids beside a chat completion: whether it does not.
    lacks_ids: Option<NegativeCache>,
    /// Whether it has no route that counts the tokens of a conversation.
    lacks_count: NegativeCache,
    /// Its models may write tool calls and thinking as text.
    pub calls_in_text: bool,
    /// Its models read images and files.
    pub reads_media: bool,
    /// Requests that are no chats belong there. At our own trainer they would be orders.
    pub takes_everything: bool,
    /// It appends lessons to the system text itself.
    pub appends_system: bool,
    /// What each of its models has refused histories for.
    demands: Mutex<LruCache<String, Demands>>,
    /// It refuses fields that it does not know, or must not take those of a client for its own.
    pub refuses_unknown: bool,
}

/// The APIs that a server was guessed to speak and does not.
#[derive(Debug, Default)]
struct LackedApis {
    messages: NegativeCache,
    responses: NegativeCache,
}

/// One of the ways to put a chat to an upstream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    /// Token ids are asked for, where it gives them.
    pub ids: bool,
    /// An API is used that the server is only guessed to have.
    pub guess: bool,
}

// === impl Capabilities ===

impl Capabilities {
    /// Those of a configured upstream.
    pub(super) fn from_config(config: &UpstreamConfig, address: &Address) -> Self {
        use Provider::{Anthropic, Azure, Openai, Vllm};
        let is_guessed = config.speaks.is_none()
            && matches!(config.dialect, Openai | Vllm | Azure)
            && address.name() != OPENAI;
        let usual = || match config.dialect {
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
            takes_everything: true,
            appends_system: false,
            demands: Mutex::new(LruCache::new(MODELS)),
            refuses_unknown: config.dialect == Azure || STRICT.contains(&address.name()),
        }
    }

    /// Those of our own policy model.
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

    /// What a model wants in a history, as far as it has said so.
    pub(crate) fn demands(&self, model: &str) -> Demands {
        lock(&self.demands).get(model).copied().unwrap_or_default()
    }

    /// A model refused a history, and said what it wants.
    pub(crate) fn demand(&self, model: &str, demands: Demands) {
        lock(&self.demands).put(model.to_owned(), demands);
    }

    /// The first way to put a chat of `api` to it.
    pub(crate) fn variant(&self, api: Api) -> Variant {
        let lacked = self.lacked(api);
        Variant {
            ids: self.lacks_ids.as_ref().is_some_and(|it| !it.is_known()),
            guess: lacked.is_some_and(|it| !it.is_known()),
        }
    }

    /// It turned out to give no token ids.
    pub(crate) fn lacks_ids(&self) {
        self.lacks_ids.iter().for_each(NegativeCache::set);
    }

    /// It turned out not to speak this.
    pub(crate) fn lacks_api(&self, api: Api) {
        self.lacked(api).into_iter().for_each(NegativeCache::set);
    }

    /// It turned out not to count tokens.
    pub(crate) fn lacks_count(&self) {
        self.lacks_count.set();
    }

    /// Whether it is likely to count the tokens of a conversation in Anthropic's API.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.takes_everything
            && self.has(Api::Messages, self.variant(Api::Messages))
            && !self.lacks_count.is_known()
    }

    /// Whether an answer that knows no such route would be news.
    pub(crate) fn is_guess(&self, api: Api, variant: Variant) -> bool {
        variant.guess && self.lacked(api).is_some()
    }

    /// Where it is a guess that it speaks this: whether that was wrong.
    fn lacked(&self, api: Api) -> Option<&NegativeCache> {
        let lacks = self.lacks.as_ref()?;
        match api {
            Api::Chat => None,
            Api::Messages => Some(&lacks.messages),
            Api::Responses => Some(&lacks.responses),
        }
    }

    /// The API in which a chat of `api` goes to it: its own, else one that it can be translated to. `None`
    /// where there is no such.
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

    /// Whether a route that is no chat is likely to be known there: what is below `/v1/messages` where
    /// that API is, all else where one of OpenAI's is.
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

    use super::{super::negative_cache::FORGET, *};

    #[tokio::test(start_paused = true)]
    async fn that_an_upstream_does_not_speak_an_api_is_forgotten_in_time() {
        let config = UpstreamConfig::default();
        let address = Address::for_upstream("http://models.example/v1", config.dialect, None);
        let it = Capabilities::from_config(&config, &address.unwrap());
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
        let address = Address::for_upstream("https://api.openai.com/v1", config.dialect, None);
        let it = Capabilities::from_config(&config, &address.unwrap());
        let variant = it.variant(Api::Responses);
        assert_eq!(it.target_api(Api::Responses, variant), Some(Api::Responses));
        assert!(!it.is_guess(Api::Responses, variant));
        let variant = it.variant(Api::Messages);
        assert_eq!(it.target_api(Api::Messages, variant), Some(Api::Chat));
    }
}
