//! What was asked, kept as it came until there is time to read it for the log.

use std::sync::Arc;

use http::HeaderValue;
use metaclaw_chat::SaidHash;
use metaclaw_dialects::Api;
use metaclaw_turns::{JsonText, LessonRef, RawSetup, RawTurn, Served};
use serde_json::{Map, Value};

use super::{Said, Unread, setups::Setups, shorts::Shorts};
use crate::{
    identity::{Chains, Identity, Replied},
    inject::Written,
    metrics::Metrics,
    request::ChatRequest,
    upstream::Target,
};

/// What is known of a turn when its reply begins.
#[derive(Debug)]
pub(crate) struct Asked {
    pub api: Api,
    pub who: Identity,
    pub started_ms: u64,
    /// The trace that the client is in: W3C's `traceparent`.
    pub traceparent: Option<HeaderValue>,
    pub request: Request,
}

/// A request on its way to the log.
#[derive(Debug)]
pub(crate) enum Request {
    /// To read it takes longer than to relay a reply: what waits for the first bytes waits for nothing
    /// else.
    AsItCame(Box<AsItCame>),
    Noted(Box<Noted>),
    /// Some of it no value can hold.
    Unreadable,
}

/// A request, and under what it is served.
#[derive(Debug)]
pub(crate) struct AsItCame {
    pub chat: ChatRequest,
    pub chains: Chains,
    pub target: Target,
    /// The adapter that answers.
    pub adapter: Option<String>,
    pub lessons: Arc<Written>,
}

/// A request as the log will have it.
#[derive(Debug)]
pub(crate) struct Noted {
    pub said: Said,
    pub setup: RawSetup,
}

/// What requests are read with.
#[derive(Debug)]
pub(super) struct Notebook {
    pub setups: Setups,
    pub shorts: Shorts,
    pub metrics: Arc<Metrics>,
}

// === impl Asked ===

impl Asked {
    /// Reads the request, unless it was; nothing, and counted, where it cannot be read.
    pub(super) fn note(&mut self, notebook: &Notebook) -> Option<&Noted> {
        if let Request::AsItCame(request) = &self.request {
            let noted = request.noted(notebook);
            if noted.is_err() {
                notebook.metrics.unread.inc();
            }
            self.request =
                noted.map_or(Request::Unreadable, |noted| Request::Noted(Box::new(noted)));
        }
        match &self.request {
            Request::Noted(noted) => Some(noted),
            Request::AsItCame(_) | Request::Unreadable => None,
        }
    }

    /// Bytes of the request as it came.
    pub(super) fn n_raw(&self) -> usize {
        match &self.request {
            Request::AsItCame(request) => request.chat.raw.len(),
            Request::Noted(_) | Request::Unreadable => 0,
        }
    }

    /// Whether it is still as it came.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.request, Request::AsItCame(_))
    }

    /// What a request that goes on from the reply has to know.
    pub(super) fn replied(&mut self, notebook: &Notebook) -> Option<Replied> {
        let chain = self.note(notebook)?.said.chain;
        Some(Replied {
            session: self.who.session.clone(),
            chain: chain.then_said(SaidHash::ASSISTANT),
        })
    }
}

// === impl AsItCame ===

impl AsItCame {
    fn noted(&self, notebook: &Notebook) -> Result<Noted, Unread> {
        let (mut said, tools) = Said::read(&self.chat, &self.chains, &notebook.shorts)?;
        let (setup, n_own) = notebook.setups.of(self, tools)?;
        said.n_own += n_own;
        Ok(Noted { said, setup })
    }

    /// The setup, written out.
    pub(super) fn setup(
        &self,
        params: Map<String, Value>,
        tools: Option<JsonText>,
    ) -> Result<RawSetup, Unread> {
        let block = self.lessons.system.as_ref().map(|it| it.0.clone());
        RawSetup::new(params, self.served(), tools, block).map_err(|_| Unread)
    }

    /// The model that was asked for, where that is not for the caller to say.
    pub(super) fn model(&self) -> Option<&str> {
        self.target.model(self.adapter.as_deref())
    }

    fn served(&self) -> Served {
        let callers = || self.chat.field("model")?.as_str().map(str::to_owned);
        let model = self.model().map(str::to_owned).or_else(callers);
        let lessons = &self.lessons.lessons;
        let skills = lessons.skills.iter().map(|skill| LessonRef {
            name: skill.name.to_string(),
            version: skill.version.clone(),
        });
        Served {
            api: match self.chat.api {
                Api::Chat => None,
                other => Some(other.path().to_owned()),
            },
            upstream: self.target.name().to_owned(),
            model: model.unwrap_or_default(),
            adapter: self.adapter.clone(),
            skills: skills.collect(),
            wishes: lessons.wishes_version.clone(),
            system_block: None,
            user_line: lessons.user_line.clone(),
        }
    }
}

// === impl Noted ===

impl Noted {
    /// What it takes while it waits; what it shares with others is theirs.
    pub(super) fn n_bytes(&self) -> u64 {
        self.said.n_own + size_of::<RawTurn>() as u64
    }
}
