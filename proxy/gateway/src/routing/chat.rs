//! A chat that is to be sent to an upstream.

use bytes::Bytes;
use http::{HeaderMap, uri::PathAndQuery};
use metaclaw_chat::{AgentId, Message, SessionId, excerpt};
use metaclaw_dialects::{
    Api,
    mend::Demands,
    translate::{is_translated_reply_id, upstream_reply_id},
    vllm,
};
use tokio::sync::OnceCell;

use crate::{
    histories::{Histories, History, Mending},
    past_replies::{PastReplies, find},
    upstream::{Upstream, UpstreamError, Variant},
};

pub(crate) struct RoutedChat<'a> {
    pub api: Api,
    pub route: &'a PathAndQuery,
    pub headers: &'a HeaderMap,
    /// Its body as an upstream gets it, with or without the fields that ask for token ids.
    pub body: &'a (dyn Fn(&Upstream, bool) -> Vec<Bytes> + Sync),
    /// The reply that it continues, instead of repeating the conversation.
    pub previous: Option<Previous<'a>>,
    /// The earlier conversation that the request repeats, if it contains replies and its token ids may be restored.
    pub repeated: Option<Repeated<'a>>,
    /// If token ids may be requested: those that the caller requests itself.
    pub ids: Option<vllm::RequestedIds>,
}

pub(crate) struct Previous<'a> {
    /// The id that the caller uses.
    pub id: String,
    pub agent: &'a AgentId,
    pub past: &'a dyn PastReplies,
    /// Whether it was given recently, so that it may still be on its way to the log.
    pub is_known: bool,
    pub found: OnceCell<Option<Vec<Message>>>,
}

pub(crate) struct Repeated<'a> {
    pub histories: &'a Histories,
    pub agent: &'a AgentId,
    pub session: &'a SessionId,
    /// Whether the session begins with this request.
    pub is_new: bool,
    pub model: Option<String>,
    /// Whether it contains tool calls. The restored fields belong to them.
    pub has_calls: bool,
    /// Returns the id of its last call.
    pub last_call: &'a (dyn Fn() -> Option<String> + Sync),
    pub found: OnceCell<History>,
}

// === impl RoutedChat ===

impl RoutedChat<'_> {
    pub(super) async fn mending<'m>(
        &'m self,
        upstream: &'m Upstream,
        demands: Demands,
    ) -> Option<Mending<'m>> {
        self.repeated.as_ref()?.mending(upstream, demands).await
    }

    pub(super) fn demands(&self, upstream: &Upstream) -> Demands {
        let repeated = self.repeated.as_ref();
        repeated
            .map(|repeated| repeated.demands(upstream))
            .unwrap_or_default()
    }

    pub(super) fn remember(&self, upstream: &Upstream, demands: Demands) {
        if let Some(repeated) = &self.repeated {
            repeated.remember(upstream, demands);
        }
    }

    /// Returns the earlier conversation, if this upstream does not have it.
    pub(super) async fn said_before(
        &self,
        upstream: &Upstream,
        variant: Variant,
    ) -> Result<Option<&[Message]>, UpstreamError> {
        let target = upstream.capabilities.target_api(self.api, variant);
        let has_it = |previous: &&Previous<'_>| {
            target == Some(Api::Responses) && !is_translated_reply_id(&previous.id)
        };
        let Some(previous) = self.previous.as_ref().filter(|previous| !has_it(previous)) else {
            return Ok(None);
        };
        match previous.conversation().await {
            Some(said) => Ok(Some(said)),
            None => Err(UpstreamError::NoPreviousResponse {
                name: upstream.name.clone(),
                id: excerpt(&previous.id).into_owned(),
            }),
        }
    }
}

// === impl Repeated ===

impl Repeated<'_> {
    /// Returns how it is mended for this upstream. For the policy model nothing is mended, because its server remembers
    /// replies by their token ids.
    async fn mending<'m>(
        &'m self,
        upstream: &'m Upstream,
        demands: Demands,
    ) -> Option<Mending<'m>> {
        if upstream.is_policy() {
            return None;
        }
        let look = async || {
            if !self.has_calls {
                return History::default();
            }
            if self.is_new {
                self.histories.begin(self.agent, self.session);
                return History::default();
            }
            let found = self
                .histories
                .find(self.agent, self.session, self.last_call);
            found.await
        };
        let history = self.found.get_or_init(look).await;
        Some(Mending {
            history,
            upstream: &upstream.name,
            demands,
        })
    }

    fn demands(&self, upstream: &Upstream) -> Demands {
        let known = upstream.capabilities.demands(self.model(upstream));
        let histories = self.histories;
        known.and(histories.refused(self.agent, self.session, &upstream.name))
    }

    fn remember(&self, upstream: &Upstream, demands: Demands) {
        let model = self.model(upstream);
        tracing::info!(
            upstream = upstream.name,
            model,
            ?demands,
            "this upstream gets histories in the form that it requires"
        );
        upstream.capabilities.demand(model, demands.of_server());
        if demands.has_of_history() {
            let histories = self.histories;
            histories.refuse(self.agent, self.session, &upstream.name, demands);
        }
    }

    fn model<'m>(&'m self, upstream: &'m Upstream) -> &'m str {
        let model = upstream.model(None).or(self.model.as_deref());
        model.unwrap_or_default()
    }
}

// === impl Previous ===

impl Previous<'_> {
    /// Returns the conversation up to the reply. It is looked up once.
    async fn conversation(&self) -> Option<&[Message]> {
        let look = async || {
            let id = upstream_reply_id(&self.id);
            let found = find(self.past, self.agent, id, self.is_known).await;
            found.unwrap_or_else(|error| {
                tracing::warn!(%error, "the log cannot be searched for the reply that a request continues");
                None
            })
        };
        self.found.get_or_init(look).await.as_deref()
    }
}
