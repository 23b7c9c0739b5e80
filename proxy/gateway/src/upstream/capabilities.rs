//! What an upstream can be asked, and how.

use http::uri::PathAndQuery;
use metaclaw_dialects::{Api, translate::Direction};

use super::negative_cache::NegativeCache;
use crate::{
    address::Address,
    config::{Provider, UpstreamConfig},
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

/// What an upstream can be asked.
///
/// Many servers that copy OpenAI's API speak Anthropic's messages as well by now, and many do not. Where
/// nobody said which, they are asked in the caller's own API first, and in OpenAI's for an hour if they
/// know no such route.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "none of them says anything of another"
)]
pub(crate) struct Capabilities {
    apis: Vec<Api>,
    /// Where it is a guess that it speaks messages: whether that was wrong.
    lacks_messages: Option<NegativeCache>,
    /// Where it should give token ids beside a chat completion: whether it does not.
    lacks_ids: Option<NegativeCache>,
    /// Its models may write tool calls and thinking as text.
    pub calls_in_text: bool,
    /// Its models read images and files.
    pub reads_media: bool,
    /// Requests that are no chats belong there. At our own trainer they would be orders.
    pub takes_everything: bool,
    /// It appends lessons to the system text itself.
    pub appends_system: bool,
    /// It refuses fields that it does not know, or must not take those of a client for its own.
    pub refuses_unknown: bool,
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
            && matches!(config.dialect, Openai | Vllm)
            && address.name() != OPENAI;
        let usual = || match config.dialect {
            Anthropic => vec![Api::Messages],
            Openai | Vllm if is_guessed => vec![Api::Chat, Api::Responses, Api::Messages],
            Openai | Vllm | Azure => vec![Api::Chat, Api::Responses],
        };
        Self {
            apis: config.speaks.clone().unwrap_or_else(usual),
            lacks_messages: is_guessed.then(NegativeCache::default),
            lacks_ids: (config.dialect == Vllm).then(NegativeCache::default),
            calls_in_text: config.tool_calls_in_text,
            reads_media: true,
            takes_everything: true,
            appends_system: false,
            refuses_unknown: config.dialect == Azure || STRICT.contains(&address.name()),
        }
    }

    /// Those of our own policy model.
    pub(super) fn policy(appends_system: bool) -> Self {
        Self {
            apis: vec![Api::Chat],
            lacks_messages: None,
            lacks_ids: None,
            calls_in_text: true,
            reads_media: false,
            takes_everything: false,
            appends_system,
            refuses_unknown: true,
        }
    }

    /// The first way to put a chat to it.
    pub(crate) fn variant(&self) -> Variant {
        let has = |lacks: &Option<NegativeCache>| lacks.as_ref().is_some_and(|it| !it.is_known());
        Variant {
            ids: has(&self.lacks_ids),
            guess: has(&self.lacks_messages),
        }
    }

    /// It turned out to give no token ids.
    pub(crate) fn lacks_ids(&self) {
        self.lacks_ids.iter().for_each(NegativeCache::set);
    }

    /// It turned out not to speak messages.
    pub(crate) fn lacks_messages(&self) {
        self.lacks_messages.iter().for_each(NegativeCache::set);
    }

    /// Whether an answer that knows no such route would be news.
    pub(crate) fn is_guess(&self, api: Api, variant: Variant) -> bool {
        api == Api::Messages && self.lacks_messages.is_some() && variant.guess
    }

    /// The API in which a chat of `api` goes to it: its own, else one that it can be translated to. `None`
    /// where there is no such.
    pub(crate) fn target_api(&self, api: Api, variant: Variant) -> Option<Api> {
        if self.has(api, variant) {
            return Some(api);
        }
        let can =
            |other: &Api| Direction::between(api, *other).is_some() && self.has(*other, variant);
        [Api::Chat, Api::Messages].into_iter().find(can)
    }

    fn has(&self, api: Api, variant: Variant) -> bool {
        let is_excluded = api == Api::Messages && self.lacks_messages.is_some() && !variant.guess;
        self.apis.contains(&api) && !is_excluded
    }

    /// Whether a route that is no chat is likely to be known there: what is below `/v1/messages` where
    /// that API is, all else where one of OpenAI's is.
    pub(crate) fn suits(&self, route: &PathAndQuery) -> bool {
        let has = |api| self.has(api, self.variant());
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
    async fn that_an_upstream_does_not_speak_messages_is_forgotten_in_time() {
        let config = UpstreamConfig::default();
        let address = Address::for_upstream("http://models.example/v1", config.dialect, None);
        let it = Capabilities::from_config(&config, &address.unwrap());
        let target = |api| it.target_api(api, it.variant());
        assert!(it.is_guess(Api::Messages, it.variant()));
        advance(FORGET).await;
        it.lacks_messages();
        assert_eq!(target(Api::Messages), Some(Api::Chat));
        assert!(!it.is_guess(Api::Messages, it.variant()));
        advance(FORGET / 2).await;
        assert_eq!(target(Api::Messages), Some(Api::Chat));
        advance(FORGET / 2).await;
        assert_eq!(
            target(Api::Messages),
            Some(Api::Messages),
            "it is asked again"
        );
    }
}
