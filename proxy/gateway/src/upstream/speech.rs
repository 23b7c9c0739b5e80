//! Which of the chat APIs an upstream speaks.

use http::uri::PathAndQuery;
use metaclaw_dialects::{Api, Dialect, translate::Direction};

use super::{Target, Upstream, lack::Lack};
use crate::{
    address::Address,
    config::{SpokenApi, UpstreamConfig, UpstreamDialect},
};

/// The host that serves OpenAI's own APIs and nobody else's.
const OPENAI: &str = "api.openai.com";

/// What an upstream speaks.
///
/// Many servers that copy OpenAI's API speak Anthropic's messages as well by now, and many do not. Where
/// nobody said which, they are asked in the caller's own words first, and in OpenAI's for an hour if
/// they know no such route.
#[derive(Debug)]
pub(super) struct Speech {
    apis: Vec<Api>,
    /// Whether it speaks messages is a guess.
    is_guessed: bool,
    /// Whether the guess was wrong.
    lacks_messages: Lack,
}

// === impl Speech ===

impl Speech {
    pub(super) fn of(config: &UpstreamConfig, address: &Address) -> Self {
        let read = |api: &SpokenApi| match api {
            SpokenApi::Chat => Api::Chat,
            SpokenApi::Responses => Api::Responses,
            SpokenApi::Messages => Api::Messages,
        };
        let said = config.speaks.as_ref();
        let said = said.map(|apis| apis.iter().map(read).collect());
        let is_guessed = said.is_none()
            && matches!(
                config.dialect,
                UpstreamDialect::Openai | UpstreamDialect::Vllm
            )
            && address.name() != OPENAI;
        let usual = || match config.dialect {
            UpstreamDialect::Anthropic => vec![Api::Messages],
            _ if is_guessed => vec![Api::Chat, Api::Responses, Api::Messages],
            _ => vec![Api::Chat, Api::Responses],
        };
        Self {
            apis: said.unwrap_or_else(usual),
            is_guessed,
            lacks_messages: Lack::default(),
        }
    }

    fn has(&self, api: Api) -> bool {
        self.apis.contains(&api) && !(api == Api::Messages && self.lacks_messages.is_known())
    }

    /// Whether a reply that knows no such route would be news.
    pub(super) fn is_guess(&self, api: Api) -> bool {
        api == Api::Messages && self.is_guessed && self.has(api)
    }

    /// Notes whether it speaks messages after all.
    pub(super) fn set_lacks_messages(&self, lacks: bool) {
        self.lacks_messages.set(lacks);
    }
}

// === impl Upstream ===

impl Upstream {
    /// How it wants its key on a route: Anthropic takes it as OpenAI does on OpenAI's.
    pub(super) fn key_dialect(&self, route: &PathAndQuery) -> UpstreamDialect {
        match (self.config.dialect, Api::of_path(route.path())) {
            (UpstreamDialect::Anthropic, Some(Api::Chat | Api::Responses)) => {
                UpstreamDialect::Openai
            }
            (dialect, _) => dialect,
        }
    }
}

// === impl Target ===

impl Target {
    /// The API in which a chat of `api` goes to it: its own, else one that it can be put in. `None`
    /// where there is no such.
    pub(super) fn spoken(&self, api: Api) -> Option<Api> {
        let has = |api| match self {
            Self::Policy(_) => api == Api::Chat,
            Self::Named(upstream) => upstream.speech.has(api),
        };
        let can = |other: &Api| Direction::between(api, *other).is_some() && has(*other);
        if has(api) {
            return Some(api);
        }
        [Api::Chat, Api::Messages].into_iter().find(can)
    }

    /// Whether a route that is no chat is likely to be known there: what is below `/v1/messages` where
    /// messages are spoken, all else where one of OpenAI's APIs is.
    pub(crate) fn suits(&self, route: &PathAndQuery) -> bool {
        let has = |apis: &[Api]| apis.iter().any(|api| self.spoken(*api) == Some(*api));
        match Dialect::of_path(route.path()) {
            Dialect::Anthropic => has(&[Api::Messages]),
            Dialect::OpenAi => has(&[Api::Chat, Api::Responses]),
        }
    }

    /// Whether its models may write calls and thinking as text.
    pub(super) fn writes_calls_as_text(&self) -> bool {
        match self {
            Self::Policy(_) => true,
            Self::Named(upstream) => upstream.config.tool_calls_in_text,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::{super::lack::FORGET, *};

    #[tokio::test(start_paused = true)]
    async fn that_an_upstream_does_not_speak_messages_is_forgotten_in_time() {
        let config = UpstreamConfig::default();
        let address = Address::of("http://models.example/v1", config.dialect, None);
        let speech = Speech::of(&config, &address.unwrap());
        assert!(speech.is_guess(Api::Messages));
        advance(FORGET).await;
        speech.set_lacks_messages(true);
        assert!(!speech.has(Api::Messages) && speech.has(Api::Chat));
        advance(FORGET / 2).await;
        assert!(!speech.has(Api::Messages));
        advance(FORGET / 2).await;
        assert!(speech.is_guess(Api::Messages), "it is asked again");
        speech.set_lacks_messages(true);
        speech.set_lacks_messages(false);
        assert!(speech.has(Api::Messages));
    }
}
