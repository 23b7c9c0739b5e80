//! A chat in the API of whoever is asked, and the answer in the API of whoever asks.
//!
//! Most chats pass as they are. Two are translated: one whose API the upstream does not speak, and one to
//! a model that writes its tool calls and thinking as text, as our own policy model may. From a reply of
//! vLLM only the token ids are taken that we asked for beside. What the log is told is what the upstream
//! said.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, uri::PathAndQuery};
use metaclaw_chat::{Message, now_ms};
use metaclaw_dialects::{
    Api, chat_form, error_status, json,
    mend::{Demands, Mended},
    request::APPEND_FIELD,
    rewrite::{Chained, Rewrite},
    toolcalls,
    translate::{self, Direction},
    vllm,
};
use serde_json::Value;

use super::chat::RoutedChat;
use crate::{
    headers,
    histories::Mending,
    upstream::{Upstream, UpstreamBody, UpstreamError, Variant},
};

/// The longest reply that is translated whole.
const MAX_REPLY: usize = 32 << 20;

/// OpenRouter's own fields of a request.
const OF_OPENROUTER: [&str; 3] = ["provider", "models", "route"];

/// A step of the way to another API, and what its reply needs of the request.
type TranslationStep = (Direction, translate::ReplyContext);

/// How a reply is to be changed.
#[derive(Debug, Default)]
pub(super) struct Translation {
    /// From the caller's API to the upstream's, each with what its reply needs; none where they speak the same.
    steps: Vec<TranslationStep>,
    /// Calls and thinking stand in the text.
    in_text: Option<toolcalls::ToolCallOptions>,
    /// Token ids are beside: what the caller did not ask for itself is taken out.
    pub ids: Option<vllm::RequestedIds>,
    /// The caller asked for a stream.
    wants_stream: bool,
}

/// A reply in the caller's words.
enum Said {
    Whole(Vec<u8>),
    /// An error that came with status 200, and the status that it gets.
    Error(StatusCode, Vec<u8>),
    Events(Vec<u8>),
}

/// A request in the API of its upstream.
pub(super) struct TranslatedRequest {
    pub route: PathAndQuery,
    pub headers: HeaderMap,
    pub body: Vec<Bytes>,
    pub api: Api,
    /// That the upstream speaks this API is a guess.
    pub is_guess: bool,
    pub translation: Translation,
    /// What was changed of its history.
    pub mended: Mended,
    /// What of the history was asked for, where it may be asked again otherwise.
    pub demands: Option<Demands>,
}

/// Another body in place of one that has been read already.
struct Instead(Vec<u8>);

impl Translation {
    /// Translates a request of `caller`'s API to `target`, which `upstream` speaks. If the history is mended after the
    /// translation, [`Mended`] says how.
    fn translate(
        upstream: &Upstream,
        caller: Api,
        target: Api,
        body: Vec<Bytes>,
        ids: Option<vllm::RequestedIds>,
        mending: Option<Mending<'_>>,
    ) -> Result<(Self, Vec<Bytes>, Option<Mended>), UpstreamError> {
        let mut translation = Self {
            ids,
            ..Self::default()
        };
        let path = Direction::path(caller, target);
        let has_text = target == Api::Chat && upstream.capabilities.calls_in_text;
        if path.is_empty() {
            // What goes to another API is translated without.
            let body = of_others(upstream, target, body);
            if !has_text {
                return Ok((translation, body, None));
            }
            let (translation, body) = translation.in_text(body);
            return Ok((translation, body, None));
        }
        let Some(given) = json::value(&body.concat()) else {
            return Err(no_value(upstream));
        };
        translation.wants_stream = given["stream"].as_bool() == Some(true);
        let mut now;
        (now, translation.steps) = translated(upstream, path, &given)?;
        let mending = mending.filter(|_| target == Api::Chat);
        let mended = mending.map(|mending| mending.apply(Api::Chat, Api::Chat, &mut now));
        if translation.ids.is_some() {
            ask_for_ids(&mut now);
        }
        if has_text {
            translation.in_text = Some(toolcalls::ToolCallOptions::for_request(&now, false));
            now = toolcalls::request(&now).unwrap_or(now);
        }
        Ok((translation, vec![now.to_string().into()], mended))
    }

    /// A request in its upstream's own API, whose model writes calls as text.
    fn in_text(mut self, body: Vec<Bytes>) -> (Self, Vec<Bytes>) {
        // What no value can hold passes.
        let Some(given) = json::value(&body.concat()) else {
            return (self, body);
        };
        self.wants_stream = given["stream"].as_bool() == Some(true);
        self.in_text = Some(toolcalls::ToolCallOptions::for_request(&given, false));
        let changed = toolcalls::request(&given);
        let body = changed.map_or(body, |changed| vec![changed.to_string().into()]);
        (self, body)
    }

    /// Whether the reply passes as it comes.
    fn is_none(&self) -> bool {
        !self.is_other() && self.ids.is_none_or(vllm::RequestedIds::is_all)
    }

    /// Whether the caller could not do with the reply as it comes; ids beside it hurt nobody.
    fn is_other(&self) -> bool {
        !self.steps.is_empty() || self.in_text.is_some()
    }

    /// Reads a reply that is translated whole. An error that came with status 200 gets a status of its own, so
    /// that it is known for one, here and by the caller.
    pub(super) async fn read_ahead(
        &self,
        upstream: &Upstream,
        reply: &mut Response<UpstreamBody>,
    ) -> Result<(), UpstreamError> {
        let is_whole = reply.status().is_success() && !headers::is_events(reply.headers());
        if !is_whole || !self.is_other() {
            return Ok(());
        }
        let read = reply.body_mut().read_whole(MAX_REPLY, upstream.idle);
        let read = read.await.map_err(|why| unreadable(upstream, why))?;
        let status = error_status(&read).and_then(|it| StatusCode::from_u16(it).ok());
        if let Some(status) = status {
            *reply.status_mut() = status;
        }
        Ok(())
    }

    /// Translates a reply: a stream as it comes, anything else once it is there. A caller of another API gets a
    /// stream where it asked for one, and one reply where it did not, whatever the upstream sends.
    pub(super) async fn reply(
        self,
        upstream: &Upstream,
        mut reply: Response<UpstreamBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let status = reply.status();
        if self.is_none() || !status.is_success() && self.steps.is_empty() {
            return Ok(reply);
        }
        if status.is_success()
            && let Err(why) = is_plain(upstream, reply.headers())
        {
            return self.unread(reply, why);
        }
        let is_events = headers::is_events(reply.headers());
        if status.is_success() && is_events && (self.wants_stream || self.steps.is_empty()) {
            if let Some(rewrite) = self.stream() {
                headers::rewritten(reply.headers_mut());
                reply.body_mut().rewrite(rewrite);
            }
            return Ok(reply);
        }
        let read = if status.is_success() {
            match reply.body_mut().read_whole(MAX_REPLY, upstream.idle).await {
                Ok(whole) => whole,
                Err(reason) => return self.unread(reply, unreadable(upstream, reason)),
            }
        } else {
            reply.body_mut().peek().await
        };
        let is_other = self.is_other();
        let Some(said) = self.said(upstream, status, &read, is_events)? else {
            return Ok(reply);
        };
        let (said, kind) = match said {
            Said::Events(said) => (said, "text/event-stream"),
            Said::Whole(said) => (said, "application/json"),
            Said::Error(status, said) => {
                *reply.status_mut() = status;
                (said, "application/json")
            }
        };
        let headers = reply.headers_mut();
        headers::rewritten(headers);
        headers.insert(header::CONTENT_LENGTH, said.len().into());
        if is_other {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        reply.body_mut().rewrite(Box::new(Instead(said)));
        Ok(reply)
    }

    /// What was read, in the caller's words, and in the form that it asked for where its API is another;
    /// `None` where it stays the same.
    fn said(
        self,
        upstream: &Upstream,
        status: StatusCode,
        read: &[u8],
        is_events: bool,
    ) -> Result<Option<Said>, UpstreamError> {
        if self.steps.is_empty() || !status.is_success() {
            return self.whole(upstream, status, read);
        }
        let is_events = is_events || chat_form::is_events(read);
        match (is_events, self.wants_stream) {
            (false, false) => self.whole(upstream, status, read),
            (true, true) => Ok(Some(Said::Events(self.rewritten(read)))),
            (is_events, _) => self.reformed(upstream, read, is_events).map(Some),
        }
    }

    /// A reply in the other form than the caller asked for. The form is changed where the reply is a chat completion:
    /// after the first step back from an upstream that speaks another API, or before.
    fn reformed(
        mut self,
        upstream: &Upstream,
        read: &[u8],
        is_events: bool,
    ) -> Result<Said, UpstreamError> {
        let is_others = |step: &mut TranslationStep| step.0.upstream() != Api::Chat;
        let first = Self {
            steps: self.steps.pop_if(is_others).into_iter().collect(),
            ..Self::default()
        };
        let ok = StatusCode::OK;
        let chat = if is_events {
            chat_form::as_whole(&first.rewritten(read))
        } else {
            match first.whole(upstream, ok, read)? {
                None => read.to_vec(),
                Some(Said::Error(status, error)) if self.steps.is_empty() => {
                    return Ok(Said::Error(status, error));
                }
                Some(Said::Whole(said) | Said::Error(_, said) | Said::Events(said)) => said,
            }
        };
        let events = (!is_events).then(|| chat_form::as_events(&chat)).flatten();
        if let Some(events) = events {
            return Ok(Said::Events(self.rewritten(&events)));
        }
        // A whole one, or no completion: an error in words of its own, or nothing that can be read.
        let said = self.whole(upstream, ok, &chat)?;
        Ok(said.unwrap_or_else(|| said_with_status(chat)))
    }

    /// A whole stream, rewritten.
    fn rewritten(self, events: &[u8]) -> Vec<u8> {
        let Some(mut rewrite) = self.stream() else {
            return events.to_vec();
        };
        let mut out = Vec::new();
        rewrite.feed(events, &mut out);
        rewrite.finish(&mut out);
        out
    }

    /// What could not be read goes on as it came, if the caller can do with that.
    fn unread(
        &self,
        reply: Response<UpstreamBody>,
        why: UpstreamError,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        if self.is_other() { Err(why) } else { Ok(reply) }
    }

    /// First our ids are taken out, then calls are taken from the text, then all is translated.
    fn stream(self) -> Option<Box<dyn Rewrite>> {
        let ids = self.ids.filter(|asked| !asked.is_all());
        let ids = ids.map(|asked| Box::new(vllm::stream(asked)) as Box<dyn Rewrite>);
        let in_text = self.in_text.map(toolcalls::stream);
        let back = self.steps.iter().rev();
        let back = back.map(|(direction, asked)| translate::stream(*direction, asked));
        let steps = [ids, in_text].into_iter().flatten().chain(back);
        steps.reduce(|first, then| Box::new(Chained::new(first, then)))
    }

    /// A whole reply, translated; `None` where it stays the same.
    fn whole(
        &self,
        upstream: &Upstream,
        status: StatusCode,
        body: &[u8],
    ) -> Result<Option<Said>, UpstreamError> {
        let mut back = self.steps.iter().rev().peekable();
        if !status.is_success() && back.peek().is_some() {
            let error = error_along(back, status.as_u16(), body.to_vec());
            return Ok(Some(Said::Whole(error)));
        }
        let stripped = self.ids.and_then(|asked| vllm::reply(asked, body));
        let given = stripped.as_deref().unwrap_or(body);
        let options = self.in_text.as_ref();
        let recovered = options.and_then(|options| toolcalls::reply(options, given));
        if back.peek().is_none() {
            return Ok(recovered.or(stripped).map(Said::Whole));
        }
        let mut said = recovered.as_deref().unwrap_or(given).to_vec();
        while let Some((direction, asked)) = back.next() {
            let translated = translate::reply(*direction, asked, &said);
            let translated = translated.map_err(|error| unreadable(upstream, error.to_string()))?;
            let status = translated.error.map(StatusCode::from_u16);
            if let Some(Ok(status)) = status {
                let error = error_along(back, status.as_u16(), translated.body);
                return Ok(Some(Said::Error(status, error)));
            }
            said = translated.body;
        }
        Ok(Some(Said::Whole(said)))
    }
}

/// An error's body after the steps back to the caller.
fn error_along<'a>(
    back: impl Iterator<Item = &'a TranslationStep>,
    status: u16,
    body: Vec<u8>,
) -> Vec<u8> {
    back.fold(body, |body, (direction, _)| {
        translate::error(*direction, status, &body)
    })
}

/// A chat completion, which may be an error instead.
fn said_with_status(whole: Vec<u8>) -> Said {
    let status = error_status(&whole).and_then(|it| StatusCode::from_u16(it).ok());
    match status {
        Some(status) => Said::Error(status, whole),
        None => Said::Whole(whole),
    }
}

/// A request in the caller's own API without what other providers made: Claude Code's accounting line is for Anthropic
/// alone, and reasoning that we put in the words of Responses is for nobody who speaks them.
fn of_others(upstream: &Upstream, target: Api, body: Vec<Bytes>) -> Vec<Bytes> {
    let has = |mark: fn(&[u8]) -> bool| body.iter().any(|piece| mark(piece));
    let has_reasoning = target == Api::Responses && has(translate::has_own_reasoning);
    let has_accounting = !upstream.is_anthropic() && has(translate::has_accounting);
    if !has_reasoning && !has_accounting {
        return body;
    }
    let mut whole: Bytes = body.concat().into();
    for (is_there, strip) in [
        (
            has_reasoning,
            translate::strip_own_reasoning as fn(&[u8]) -> Option<Vec<u8>>,
        ),
        (has_accounting, translate::strip_accounting),
    ] {
        if let Some(stripped) = is_there.then(|| strip(&whole)).flatten() {
            whole = stripped.into();
        }
    }
    vec![whole]
}

/// A request in its caller's words with its history mended. What no value can hold passes as it is.
fn mended_before(
    mending: Mending<'_>,
    caller: Api,
    target: Api,
    body: Vec<Bytes>,
) -> (Vec<Bytes>, Mended) {
    let is_mended = caller == Api::Chat || caller == target;
    let request = is_mended.then(|| json::value(&body.concat()));
    let Some(mut request) = request.flatten() else {
        return (body, Mended::default());
    };
    let mended = mending.apply(caller, target, &mut request);
    if mended.is_nothing() {
        return (body, mended);
    }
    (vec![request.to_string().into()], mended)
}

/// A request of Responses with what was said before it, for an upstream that has not heard it.
fn gone_on(
    upstream: &Upstream,
    target: Api,
    body: &[Bytes],
    before: &[Message],
) -> Result<Vec<Bytes>, UpstreamError> {
    let request = json::value(&body.concat()).filter(Value::is_object);
    let mut request = request.ok_or_else(|| no_value(upstream))?;
    translate::go_on(&mut request, before);
    if let (Api::Responses, Some(request)) = (target, request.as_object_mut()) {
        // It has no reply of that id.
        request.shift_remove("previous_response_id");
    }
    Ok(vec![request.to_string().into()])
}

/// What no value can hold: a number beyond f64, 128 levels.
fn no_value(upstream: &Upstream) -> UpstreamError {
    UpstreamError::Untranslatable {
        name: upstream.name.clone(),
        field: None,
        reason: "the body holds a number, or a nesting, that cannot be read".to_owned(),
    }
}

fn unreadable(upstream: &Upstream, reason: String) -> UpstreamError {
    UpstreamError::Unreadable {
        name: upstream.name.clone(),
        reason,
    }
}

/// Asks for token ids in a request that is translated anyway.
fn ask_for_ids(request: &mut Value) {
    if let Some(request) = request.as_object_mut() {
        let wanted = vllm::WANTED.iter();
        let wanted = wanted.filter_map(|(key, value)| {
            let value = serde_json::from_str(value).ok()?;
            Some(((*key).to_owned(), value))
        });
        request.extend(wanted);
    }
}

fn translated(
    upstream: &Upstream,
    path: &[Direction],
    given: &Value,
) -> Result<(Value, Vec<TranslationStep>), UpstreamError> {
    let created = now_ms() / 1_000;
    let translated = translate::request_along(path, given, created);
    let (mut request, steps) = translated.map_err(|error| UpstreamError::Untranslatable {
        name: upstream.name.clone(),
        field: error.field().map(str::to_owned),
        reason: error.to_string(),
    })?;
    // One field is between us and our own trainer, the others are OpenRouter's in each API.
    let of_openrouter = upstream.openrouter().map_or(&[][..], |_| &OF_OPENROUTER);
    for name in [APPEND_FIELD].iter().chain(of_openrouter) {
        if let (Some(ours), Some(request)) = (given.get(name), request.as_object_mut()) {
            request.insert((*name).to_owned(), ours.clone());
        }
    }
    Ok((request, steps))
}

/// What was asked for unencoded and came encoded cannot be translated.
fn is_plain(upstream: &Upstream, headers: &HeaderMap) -> Result<(), UpstreamError> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(given) if !given.as_bytes().eq_ignore_ascii_case(b"identity") => {
            let given = String::from_utf8_lossy(given.as_bytes());
            let reason = format!("it is encoded as {given}, and was asked for as it is");
            Err(unreadable(upstream, reason))
        }
        Some(_) | None => Ok(()),
    }
}

// === impl TranslatedRequest ===

impl TranslatedRequest {
    pub(super) fn new(
        upstream: &Upstream,
        chat: &RoutedChat<'_>,
        variant: Variant,
        before: Option<&[Message]>,
        mending: Option<Mending<'_>>,
    ) -> Result<Self, UpstreamError> {
        let caller = chat.api;
        let target = upstream.capabilities.target_api(caller, variant);
        let target = target.ok_or_else(|| UpstreamError::NotSpoken {
            name: upstream.name.clone(),
            path: caller.path(),
        })?;
        let ids = chat.ids.filter(|_| variant.ids && target == Api::Chat);
        let body = (chat.body)(upstream, ids.is_some());
        let body = match before {
            Some(before) => gone_on(upstream, target, &body, before)?,
            None => body,
        };
        let demands = mending.map(|mending| mending.demands);
        let mending = mending.filter(Mending::is_needed);
        let (body, mended_before) = match mending {
            Some(mending) => mended_before(mending, caller, target, body),
            None => (body, Mended::default()),
        };
        let (translation, body, mended_after) =
            Translation::translate(upstream, caller, target, body, ids, mending)?;
        let mut headers = chat.headers.clone();
        if target != caller {
            headers::reworded(&mut headers, target);
        } else if !translation.is_none() {
            headers::readable(&mut headers);
        }
        Ok(Self {
            route: if target == caller {
                chat.route.clone()
            } else {
                // Without what another's callers say after it.
                PathAndQuery::from_static(target.path())
            },
            headers,
            body,
            api: target,
            is_guess: upstream.capabilities.is_guess(target, variant),
            translation,
            mended: mended_after.unwrap_or(mended_before),
            demands,
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
