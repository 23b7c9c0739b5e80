//! Translates a chat to the API of its upstream, and the reply to the API of the caller.
//!
//! Most chats pass unchanged. Two kinds are translated: a chat in an API that the upstream does not have, and a chat
//! with a model that writes tool calls and thinking as text, as our own policy model may. From a reply of vLLM, only
//! the token ids are removed that the proxy requested. The log gets the upstream's own reply.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, uri::PathAndQuery};
use metaclaw_capture::Encoding;
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
    body::decoded,
    headers,
    histories::Mending,
    upstream::{Upstream, UpstreamBody, UpstreamError, Variant},
};

/// The longest reply that is translated as a whole, in bytes.
const MAX_REPLY: usize = 32 << 20;

const OF_OPENROUTER: [&str; 3] = ["provider", "models", "route"];

/// One step of the translation to another API, and what the translation of the reply needs from the request.
type TranslationStep = (Direction, translate::ReplyContext);

#[derive(Debug, Default)]
pub(super) struct Translation {
    /// The steps from the caller's API to the upstream's. There are none if the APIs are the same.
    steps: Vec<TranslationStep>,
    /// Set if tool calls and thinking are written as text.
    in_text: Option<toolcalls::ToolCallOptions>,
    /// Set if token ids were requested. Those that the caller did not request itself are removed.
    pub ids: Option<vllm::RequestedIds>,
    wants_stream: bool,
}

enum Said {
    Whole(Vec<u8>),
    /// An error that came with status 200, with the status that it gets.
    Error(StatusCode, Vec<u8>),
    Events(Vec<u8>),
}

pub(super) struct TranslatedRequest {
    pub route: PathAndQuery,
    pub headers: HeaderMap,
    pub body: Vec<Bytes>,
    pub api: Api,
    /// Whether it is only a guess that the upstream has this API.
    pub is_guess: bool,
    pub translation: Translation,
    /// What was changed in its history.
    pub mended: Mended,
    /// The requirements that the history meets, if it may be sent again in another form.
    pub demands: Option<Demands>,
}

/// A body that replaces one that was already read.
struct Instead(Vec<u8>);

impl Translation {
    /// Translates a request in the API `caller` to `target`, which `upstream` has. If the history is mended after the
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
            // In a request to another API, the translation leaves these out.
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

    fn in_text(mut self, body: Vec<Bytes>) -> (Self, Vec<Bytes>) {
        // A body that cannot be read as a value passes unchanged.
        let Some(given) = json::value(&body.concat()) else {
            return (self, body);
        };
        self.wants_stream = given["stream"].as_bool() == Some(true);
        self.in_text = Some(toolcalls::ToolCallOptions::for_request(&given, false));
        let changed = toolcalls::request(&given);
        let body = changed.map_or(body, |changed| vec![changed.to_string().into()]);
        (self, body)
    }

    fn is_none(&self) -> bool {
        !self.is_other() && self.ids.is_none_or(vllm::RequestedIds::is_all)
    }

    /// Returns whether the caller could not use the unchanged reply. Additional token ids do no harm.
    fn is_other(&self) -> bool {
        !self.steps.is_empty() || self.in_text.is_some()
    }

    /// Decompresses a reply that will be read, if it is compressed although it was requested uncompressed. An error that
    /// cannot be decompressed keeps its status.
    pub(super) async fn decode(
        &self,
        upstream: &Upstream,
        reply: &mut Response<UpstreamBody>,
    ) -> Result<(), UpstreamError> {
        if !self.is_other() || Encoding::from_headers(reply.headers()) == Encoding::Identity {
            return Ok(());
        }
        let whole = reply.body_mut().read_whole(MAX_REPLY, upstream.idle).await;
        let whole = whole.map_err(|why| unreadable(upstream, why))?;
        match decoded(reply.headers(), whole, MAX_REPLY as u64, Vec::<u8>::new).await {
            Ok(whole) => {
                headers::rewritten(reply.headers_mut());
                reply.body_mut().replace(whole.into());
            }
            Err(error) if reply.status().is_success() => {
                let given = reply.headers().get(header::CONTENT_ENCODING);
                let reason = format!("its content-encoding {given:?} cannot be undone: {error}");
                return Err(unreadable(upstream, reason));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Reads a reply that is translated as a whole. An error that came with status 200 gets a status of its own, so
    /// that the proxy and the caller recognise it.
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
        let status = error_status(&read).and_then(|status| StatusCode::from_u16(status).ok());
        if let Some(status) = status {
            *reply.status_mut() = status;
        }
        Ok(())
    }

    /// Translates a reply: a stream while it arrives, and anything else as a whole. If the APIs differ, the caller gets
    /// a stream if it asked for one, and otherwise one reply, whatever the upstream sends.
    pub(super) async fn reply(
        self,
        upstream: &Upstream,
        mut reply: Response<UpstreamBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let status = reply.status();
        if self.is_none() || !status.is_success() && self.steps.is_empty() {
            return Ok(reply);
        }
        if status.is_success() && Encoding::from_headers(reply.headers()) != Encoding::Identity {
            return Ok(reply);
        }
        let is_events = headers::is_events(reply.headers());
        if status.is_success() && is_events && (self.wants_stream || self.steps.is_empty()) {
            if let Some(rewrite) = self.stream() {
                headers::rewritten(reply.headers_mut());
                headers::unbuffered(reply.headers_mut());
                reply.body_mut().rewrite(rewrite);
            }
            return Ok(reply);
        }
        let read = if status.is_success() {
            match reply.body_mut().read_whole(MAX_REPLY, upstream.idle).await {
                Ok(whole) => whole,
                Err(reason) if self.is_other() => return Err(unreadable(upstream, reason)),
                // The caller can use it unchanged.
                Err(_) => return Ok(reply),
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
        if headers::is_events(headers) {
            headers::unbuffered(headers);
        }
        reply.body_mut().rewrite(Box::new(Instead(said)));
        Ok(reply)
    }

    /// Translates what was read to the caller's API, and to the form that it asked for if the APIs differ. Returns
    /// `None` if nothing changes.
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

    /// Translates a reply whose form is not the one that the caller asked for: a stream or one reply. The form is
    /// changed while the reply is a chat completion, which is after the first step back if the upstream has another
    /// API.
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
        // It is a whole reply, or no completion: an error in another format, or something unreadable.
        let said = self.whole(upstream, ok, &chat)?;
        Ok(said.unwrap_or_else(|| said_with_status(chat)))
    }

    fn rewritten(self, events: &[u8]) -> Vec<u8> {
        let Some(mut rewrite) = self.stream() else {
            return events.to_vec();
        };
        let mut out = Vec::new();
        rewrite.feed(events, &mut out);
        rewrite.finish(&mut out);
        out
    }

    /// Returns the rewrite of a stream: it removes our token ids, then takes calls from the text, then translates.
    fn stream(self) -> Option<Box<dyn Rewrite>> {
        let ids = self.ids.filter(|asked| !asked.is_all());
        let ids = ids.map(|asked| Box::new(vllm::stream(asked)) as Box<dyn Rewrite>);
        let in_text = self.in_text.map(toolcalls::stream);
        let back = self.steps.iter().rev();
        let back = back.map(|(direction, asked)| translate::stream(*direction, asked));
        let steps = [ids, in_text].into_iter().flatten().chain(back);
        steps.reduce(|first, then| Box::new(Chained::new(first, then)))
    }

    /// Translates a whole reply, or returns `None` if nothing changes.
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
            let translated = translate::reply(*direction, asked, &said)
                .map_err(|error| unreadable(upstream, error.to_string()))?;
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

fn error_along<'a>(
    back: impl Iterator<Item = &'a TranslationStep>,
    status: u16,
    body: Vec<u8>,
) -> Vec<u8> {
    back.fold(body, |body, (direction, _)| {
        translate::error(*direction, status, &body)
    })
}

fn said_with_status(whole: Vec<u8>) -> Said {
    let status = error_status(&whole).and_then(|status| StatusCode::from_u16(status).ok());
    match status {
        Some(status) => Said::Error(status, whole),
        None => Said::Whole(whole),
    }
}

/// Removes what is not meant for this upstream from a request in the caller's own API: Claude Code's accounting line,
/// which is for Anthropic alone, and reasoning that the proxy translated to Responses, which no server accepts.
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

/// Mends the history of a request in the caller's API. A body that cannot be read as a value passes unchanged.
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
        // The upstream has no reply with that id.
        request.shift_remove("previous_response_id");
    }
    Ok(vec![request.to_string().into()])
}

/// Makes the error for a body that cannot be read as a value: it has a number beyond f64, or more than 128 levels.
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

fn ask_for_ids(request: &mut Value) {
    if let Some(request) = request.as_object_mut() {
        let wanted = vllm::WANTED.iter().filter_map(|(key, value)| {
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
    // One field is for our own trainer. The others are OpenRouter's in each API.
    let of_openrouter = upstream
        .openrouter
        .as_ref()
        .map_or(&[][..], |_| &OF_OPENROUTER);
    for name in [APPEND_FIELD].iter().chain(of_openrouter) {
        if let (Some(ours), Some(request)) = (given.get(name), request.as_object_mut()) {
            request.insert((*name).to_owned(), ours.clone());
        }
    }
    Ok((request, steps))
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
                // Without the query, which belongs to the caller's API.
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
