//! A chat in the words of whoever is asked, and the answer in the words of whoever asks.
//!
//! Most chats pass as they are. Two are put in other words: one whose API the upstream does not speak,
//! and one to a model that writes its tool calls and thinking as text, as our own policy model may. From
//! a reply of vLLM only the token ids are taken that we asked for beside. What the log is told is what
//! the upstream said.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, uri::PathAndQuery};
use metaclaw_dialects::{
    Api, json,
    request::APPEND_FIELD,
    rewrite::{Rewrite, Then},
    toolcalls,
    translate::{self, Direction},
    vllm,
};
use serde_json::Value;

use super::{Answer, Outgoing, Sent, Target, body::UpstreamBody};
use crate::{clock, headers, pieces::Pieces, refusal::Refusal};

/// The longest reply that is put in other words whole.
const MAX_REPLY: usize = 32 << 20;

/// How a reply is to be changed.
#[derive(Debug, Default)]
pub(super) struct Wording {
    /// The caller's API and the upstream's are two.
    other: Option<(Direction, translate::ReplyContext)>,
    /// Calls and thinking stand in the text.
    in_text: Option<toolcalls::Options>,
    /// Token ids are beside: what the caller did not ask for itself is taken out.
    pub ids: Option<vllm::Asked>,
}

/// A request in the words of its target.
pub(super) struct Worded<'a> {
    pub outgoing: Outgoing<'a>,
    pub api: Option<Api>,
    pub wording: Wording,
}

/// An answer as the upstream gave it.
pub(super) struct Raw {
    pub target: Target,
    pub reply: Response<UpstreamBody>,
    pub api: Option<Api>,
    pub wording: Wording,
}

/// Another body in place of one that has been read already.
struct Instead(Vec<u8>);

impl Wording {
    /// Puts a request in the words of `target`, which is asked in `upstream`'s API.
    fn of(
        target: &Target,
        (caller, upstream): (Api, Api),
        body: Pieces,
        ids: Option<vllm::Asked>,
    ) -> Result<(Self, Pieces), Refusal> {
        let mut wording = Self {
            ids: ids.filter(|_| upstream == Api::Chat),
            ..Self::default()
        };
        let direction = Direction::between(caller, upstream);
        let has_text = upstream == Api::Chat && target.writes_calls_as_text();
        if direction.is_none() && !has_text {
            return Ok((wording, body));
        }
        let Some(given) = json::value(&body.joined()) else {
            // What no value can hold (a number beyond f64) passes, unless it must be said anew.
            return match direction {
                None => Ok((wording, body)),
                Some(_) => Err(Refusal::Unsayable {
                    name: target.name().to_owned(),
                    field: None,
                    reason: "the body holds a number that cannot be read".to_owned(),
                }),
            };
        };
        let mut said = None;
        if let Some(direction) = direction {
            let mut now = translated(target, direction, &given)?;
            if wording.ids.is_some() {
                ask_for_ids(&mut now);
            }
            said = Some(now);
            let created = clock::now_ms() / 1_000;
            wording.other = Some((direction, translate::ReplyContext::of(&given, created)));
        }
        if has_text {
            let now = said.as_ref().unwrap_or(&given);
            wording.in_text = Some(toolcalls::Options::of(now, false));
            said = toolcalls::request(now).or(said);
        }
        let body = said.map_or(body, |said| Bytes::from(said.to_string()).into());
        Ok((wording, body))
    }

    /// Whether the reply passes as it comes.
    fn is_none(&self) -> bool {
        !self.is_other() && self.ids.is_none_or(vllm::Asked::is_all)
    }

    /// Whether the caller could not do with the reply as it comes; ids beside it hurt nobody.
    fn is_other(&self) -> bool {
        self.other.is_some() || self.in_text.is_some()
    }

    /// Puts a reply in the caller's words: a stream as it comes, anything else once it is there.
    async fn reply(
        self,
        target: &Target,
        mut reply: Response<UpstreamBody>,
    ) -> Result<Response<UpstreamBody>, Refusal> {
        let status = reply.status();
        if self.is_none() || !status.is_success() && self.other.is_none() {
            return Ok(reply);
        }
        if status.is_success()
            && let Err(why) = is_plain(target, reply.headers())
        {
            return self.unread(reply, why);
        }
        if status.is_success() && headers::is_events(reply.headers()) {
            if let Some(rewrite) = self.stream() {
                headers::rewritten(reply.headers_mut());
                reply.body_mut().rewrite(rewrite);
            }
            return Ok(reply);
        }
        let read = if status.is_success() {
            match reply.body_mut().read(MAX_REPLY, target.idle()).await {
                Ok(whole) => whole,
                Err(reason) => return self.unread(reply, target.unreadable(reason)),
            }
        } else {
            reply.body_mut().peek().await
        };
        let Some(said) = self.whole(target, status, &read)? else {
            return Ok(reply);
        };
        let headers = reply.headers_mut();
        headers::rewritten(headers);
        headers.insert(header::CONTENT_LENGTH, said.len().into());
        if self.is_other() {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        reply.body_mut().rewrite(Box::new(Instead(said)));
        Ok(reply)
    }

    /// What could not be read goes on as it came, if the caller can do with that.
    fn unread(
        &self,
        reply: Response<UpstreamBody>,
        why: Refusal,
    ) -> Result<Response<UpstreamBody>, Refusal> {
        if self.is_other() { Err(why) } else { Ok(reply) }
    }

    /// First our ids are taken out, then calls are taken from the text, then all is said anew.
    fn stream(self) -> Option<Box<dyn Rewrite>> {
        let ids = self.ids.filter(|asked| !asked.is_all());
        let ids = ids.map(|asked| Box::new(vllm::stream(asked)) as Box<dyn Rewrite>);
        let in_text = self.in_text.map(toolcalls::stream);
        let other = self.other;
        let other = other.map(|(direction, asked)| translate::stream(direction, &asked));
        let steps = [ids, in_text, other].into_iter().flatten();
        steps.reduce(|first, then| Box::new(Then::new(first, then)))
    }

    /// A whole reply in other words; `None` where they are the same.
    fn whole(
        &self,
        target: &Target,
        status: StatusCode,
        body: &[u8],
    ) -> Result<Option<Vec<u8>>, Refusal> {
        if let (Some((direction, _)), false) = (&self.other, status.is_success()) {
            return Ok(Some(translate::error(*direction, status.as_u16(), body)));
        }
        let stripped = self.ids.and_then(|asked| vllm::reply(asked, body));
        let body = stripped.as_deref().unwrap_or(body);
        let options = self.in_text.as_ref();
        let recovered = options.and_then(|options| toolcalls::reply(options, body));
        let Some((direction, asked)) = &self.other else {
            return Ok(recovered.or(stripped));
        };
        let body = recovered.as_deref().unwrap_or(body);
        let said = translate::reply(*direction, asked, body);
        said.map(Some)
            .map_err(|error| target.unreadable(error.to_string()))
    }
}

/// Asks for token ids in a request that is said anew anyway.
fn ask_for_ids(said: &mut Value) {
    if let Some(said) = said.as_object_mut() {
        let wanted = vllm::WANTED.iter();
        let wanted = wanted.filter_map(|(key, value)| {
            let value = serde_json::from_str(value).ok()?;
            Some(((*key).to_owned(), value))
        });
        said.extend(wanted);
    }
}

fn translated(target: &Target, direction: Direction, given: &Value) -> Result<Value, Refusal> {
    let said = translate::request(direction, given);
    let mut said = said.map_err(|error| Refusal::Unsayable {
        name: target.name().to_owned(),
        field: error.field().map(str::to_owned),
        reason: error.to_string(),
    })?;
    // The one field that is between us and our own trainer.
    if let (Some(ours), Some(said)) = (given.get(APPEND_FIELD), said.as_object_mut()) {
        said.insert(APPEND_FIELD.to_owned(), ours.clone());
    }
    Ok(said)
}

/// What was asked for unencoded and came encoded cannot be put in other words.
fn is_plain(target: &Target, headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(given) if !given.as_bytes().eq_ignore_ascii_case(b"identity") => {
            let given = String::from_utf8_lossy(given.as_bytes());
            let reason = format!("it is encoded as {given}, and was asked for as it is");
            Err(target.unreadable(reason))
        }
        Some(_) | None => Ok(()),
    }
}

// === impl Worded ===

impl<'a> Worded<'a> {
    pub(super) fn of(target: &Target, mut outgoing: Outgoing<'a>) -> Result<Self, Refusal> {
        let api = Api::of_path(outgoing.route.path());
        let (Some(caller), Sent::Chat(body)) = (api, &mut outgoing.body) else {
            return Ok(Self {
                outgoing,
                api: None,
                wording: Wording::default(),
            });
        };
        let upstream = target.spoken(caller).ok_or_else(|| Refusal::NotSpoken {
            name: target.name().to_owned(),
            path: caller.path(),
        })?;
        let wording;
        let (apis, sent) = ((caller, upstream), std::mem::take(body));
        (wording, *body) = Wording::of(target, apis, sent, outgoing.ids)?;
        if upstream != caller {
            outgoing.route = route(upstream);
            headers::reworded(&mut outgoing.headers, upstream);
        } else if !wording.is_none() {
            headers::readable(&mut outgoing.headers);
        }
        Ok(Self {
            outgoing,
            api: Some(upstream),
            wording,
        })
    }
}

/// The route of an API, without what another's callers say after it.
fn route(api: Api) -> &'static PathAndQuery {
    static ROUTES: LazyLock<[PathAndQuery; 3]> = LazyLock::new(|| {
        [Api::Chat, Api::Responses, Api::Messages].map(|api| PathAndQuery::from_static(api.path()))
    });
    match api {
        Api::Chat => &ROUTES[0],
        Api::Responses => &ROUTES[1],
        Api::Messages => &ROUTES[2],
    }
}

// === impl Raw ===

impl Raw {
    /// In the caller's words.
    pub(super) async fn worded(self) -> Result<Answer, Refusal> {
        let Self {
            target,
            reply,
            api,
            wording,
        } = self;
        let has_ids = wording.ids.is_some();
        let reply = wording.reply(&target, reply).await?;
        Ok(Answer {
            target,
            reply,
            api,
            has_ids,
        })
    }
}

// === impl Instead ===

impl Rewrite for Instead {
    fn feed(&mut self, _: &[u8], _: &mut Vec<u8>) {}

    fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.0);
    }
}
