//! `POST /v1/chat/completions`, in OpenAI's shape.

mod messages;
mod reply;
mod request;
mod running;
mod think;

use std::io;

use async_stream::try_stream;
use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::Stream;
use metaclaw_trainer_api::AdapterName;

pub(crate) use self::{
    messages::check as check_messages,
    request::{stops, temperature, top_k, top_p},
};
use self::{
    reply::{EventWriter, Head, TokenLogprob, event},
    request::{ChatBody, ChatRequest, Form},
    running::{News, Running},
    think::Piece,
};
use crate::{error::ApiError, host::Draw, json::JsonBody, state::App};

/// Which adapter wrote the reply; absent when the base did.
const ADAPTER_HEADER: &str = "x-metaclaw-adapter";

/// Answers a conversation.
pub(crate) async fn completions(
    State(app): State<App>,
    JsonBody(body): JsonBody<ChatBody>,
) -> Result<Response, ApiError> {
    let ChatRequest {
        model,
        conversation,
        sampling,
        max_tokens,
        form,
    } = body.check()?;
    let adapter = app.models.resolve(model.as_deref(), &app.host)?;
    let place = app.queue.enter()?;
    let prompt = app.host.render(conversation, true).await?;
    let room = app.host.room_after(prompt.ids.len())?;
    let draw = Draw {
        prompt_ids: prompt.ids.clone(),
        adapter: adapter.clone(),
        max_tokens: max_tokens.map_or(room, |n| usize::try_from(n).map_or(room, |n| n.min(room))),
        sampling,
    };
    let served = adapter.as_ref().map(AdapterName::as_str);
    let head = Head::new(served.unwrap_or_else(|| app.host.base()).to_owned());
    let generation = app.host.generate(draw).await?;
    let running = Running::new(&app, &head, &prompt, adapter.clone(), generation, place);
    let mut response = if form.stream {
        streamed(head, running, form)
    } else {
        whole(head, running, form).await?.into_response()
    };
    if let Some(adapter) = adapter
        && let Ok(value) = HeaderValue::from_str(adapter.as_str())
    {
        response.headers_mut().insert(ADAPTER_HEADER, value);
    }
    Ok(response)
}

/// The reply in one piece.
async fn whole(
    head: Head,
    mut running: Running,
    form: Form,
) -> Result<Json<impl serde::Serialize>, ApiError> {
    let mut text = Piece::default();
    let mut logprobs: Vec<TokenLogprob> = Vec::new();
    loop {
        match running.next().await? {
            News::Text { piece, logprob } => {
                text.push(&piece);
                logprobs.extend(logprob.filter(|_| form.logprobs));
            }
            News::End {
                rest,
                reason,
                usage,
            } => {
                text.push(&rest);
                let logprobs = form.logprobs.then_some(logprobs);
                return Ok(Json(head.completion(text, logprobs, reason, usage)));
            }
        }
    }
}

/// The reply as an event stream. When the client hangs up the stream is dropped, and with it the
/// generation.
fn streamed(head: Head, running: Running, form: Form) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(events(head, running, form))).into_response()
}

/// A failure after the first byte is told in an event and then shown as a cut: there is no `[DONE]`, and
/// the body does not end as a whole one does.
fn events(
    head: Head,
    mut running: Running,
    form: Form,
) -> impl Stream<Item = Result<Bytes, io::Error>> {
    let writer = EventWriter::new(head, form.include_usage);
    try_stream! {
        yield Bytes::from(writer.role());
        // Tokens whose text has not come yet, because a character is not complete.
        let mut silent: Vec<TokenLogprob> = Vec::new();
        loop {
            match running.next().await {
                Ok(News::Text { piece, logprob }) => {
                    silent.extend(logprob.filter(|_| form.logprobs));
                    if !piece.is_empty() {
                        let logprobs = std::mem::take(&mut silent);
                        yield Bytes::from(writer.news(piece, logprobs));
                    }
                }
                Ok(News::End { rest, reason, usage }) => {
                    let mut last = String::new();
                    if !rest.is_empty() || !silent.is_empty() {
                        last = writer.news(rest, silent);
                    }
                    yield Bytes::from(last + &writer.end(reason, usage));
                    return;
                }
                Err(error) => {
                    yield Bytes::from(event(&error.body()));
                    Err(io::Error::other(error.to_string()))?;
                }
            }
        }
    }
}
