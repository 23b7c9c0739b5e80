//! What was asked, kept as it came until there is time to read it for the log.

use std::sync::Arc;

use http::HeaderValue;
use metaclaw_chat::{ChainHash, SaidHash};
use metaclaw_dialects::{Api, request::ChatRequest};
use metaclaw_turns::{JsonText, LessonRef, RawSetup, RawTurn, Served};

use super::{
    Said,
    said::{self, Unread},
};
use crate::{
    identity::{Identity, Replied},
    inject::Written,
    metrics::Metrics,
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
    /// The hash of the conversation before its first message.
    pub start: ChainHash,
    pub upstream: String,
    /// The model that was asked for, where that is not for the caller to say.
    pub model: Option<String>,
    /// The adapter that answers.
    pub adapter: Option<String>,
    pub lessons: Arc<Written>,
}

/// A request as the log will have it.
#[derive(Debug)]
pub(crate) struct Noted {
    pub said: Said,
    pub setup: RawSetup,
    /// Bytes of both.
    n_bytes: u64,
}

// === impl Asked ===

impl Asked {
    /// Reads the request, unless it was; nothing, and counted, where it cannot be read.
    pub(super) fn note(&mut self, metrics: &Metrics) -> Option<&Noted> {
        if let Request::AsItCame(request) = &self.request {
            let noted = request.noted();
            if noted.is_err() {
                metrics.unread.inc();
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
            Request::AsItCame(request) => request.chat.raw().len(),
            Request::Noted(_) | Request::Unreadable => 0,
        }
    }

    /// Whether it is still as it came.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.request, Request::AsItCame(_))
    }

    /// What a request that goes on from the reply has to know.
    pub(super) fn replied(&mut self, metrics: &Metrics) -> Option<Replied> {
        let chain = self.note(metrics)?.said.chain;
        Some(Replied {
            session: self.who.session.clone(),
            chain: chain.then_said(SaidHash::ASSISTANT),
        })
    }
}

// === impl AsItCame ===

impl AsItCame {
    fn noted(&self) -> Result<Noted, Unread> {
        let said = Said::read(&self.chat, self.start)?;
        let params = said::params(&self.chat);
        let block = self.lessons.lessons.system_block.as_deref();
        let block = block.map(JsonText::of_str);
        let setup = RawSetup::new(params, self.served(), said::tools(&self.chat)?, block);
        let setup = setup.map_err(|_| Unread)?;
        // As much of the request as is no message, about.
        let n_messages = self.chat.items().map(str::len).sum::<usize>();
        let n_bytes = said.n_bytes + (self.chat.raw().len() - n_messages) as u64;
        Ok(Noted {
            said,
            setup,
            n_bytes,
        })
    }

    fn served(&self) -> Served {
        let callers = || self.chat.field("model")?.as_str().map(str::to_owned);
        let model = self.model.clone().or_else(callers);
        let lessons = &self.lessons.lessons;
        let skills = lessons.skills.iter().map(|skill| LessonRef {
            name: skill.name.to_string(),
            version: skill.version.clone(),
        });
        Served {
            api: match self.chat.api() {
                Api::Chat => None,
                other => Some(other.path().to_owned()),
            },
            upstream: self.upstream.clone(),
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
    /// What it takes while it waits.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes + size_of::<RawTurn>() as u64
    }
}
