//! `POST /v1/chat/completions` in OpenAI's format.

mod given;
mod logprobs;
mod messages;
mod reply;
mod request;
mod running;
mod think;
mod thinking;
mod usage;

use std::{io, time::Duration};

use async_stream::try_stream;
use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::Stream;
use metaclaw_trainer_terms::{AdapterName, SamplerRequest};
use tokio::time::timeout;

use self::{
    logprobs::TokenLogprob,
    reply::{Choice, EventWriter, Head, event},
    request::{CompletionRequest, ReplyForm},
    running::{News, RunningReplies},
    think::ReplyPiece,
    usage::ChatUsage,
};
pub(crate) use self::{messages::check as check_messages, request::ChatBody};
use crate::{error::ApiError, front::Front, json::JsonBody};

/// Names the adapter that wrote the reply. It is absent for the base model.
const ADAPTER_HEADER: &str = "x-metaclaw-adapter";
/// A streamed reply begins after this time at the latest, even if the sampler has not accepted the request yet. Before
/// that, a refusal is answered with its status, so the caller can use another model.
const PATIENCE: Duration = Duration::from_secs(5);
/// If a stream is silent for this long, it sends a comment, so that no proxy in between treats it as dead.
const QUIET: Duration = Duration::from_secs(10);
const WAITING: &str = ": waiting\n\n";

pub(crate) async fn completions(
    State(front): State<Front>,
    JsonBody(body): JsonBody<ChatBody>,
) -> Result<Response, ApiError> {
    let CompletionRequest {
        model: named,
        conversation,
        draw,
        form,
    } = body.check()?;
    let model = front.model()?;
    front.sampler().check(&draw)?;
    let adapter = front.resolve(named.as_deref()).await?;
    let place = front.queue().enter(draw.n)?;
    let prompt = model.render(front.served(), conversation, true).await?;
    let room = model.room_after(prompt.ids.len())?;
    let draw = SamplerRequest {
        adapter: adapter.clone(),
        max_tokens: draw.max_tokens.min(room),
        ..draw
    };
    let served = adapter.as_ref().map(AdapterName::as_str);
    let head = Head::new(served.unwrap_or_else(|| model.name()).to_owned());
    let n = draw.n;
    let running = RunningReplies::new(&front, model, prompt, draw, &head, place);
    let running = running.with_logprobs(form.logprobs);
    let mut response = if form.stream {
        streamed(head, n, running, form).await?
    } else {
        whole(head, n, running, form).await?.into_response()
    };
    if let Some(adapter) = adapter
        && let Ok(value) = HeaderValue::from_str(adapter.as_str())
    {
        response.headers_mut().insert(ADAPTER_HEADER, value);
    }
    Ok(response)
}

#[derive(Debug, Default)]
struct Said {
    text: ReplyPiece,
    logprobs: Vec<TokenLogprob>,
    reason: &'static str,
}

async fn whole(
    head: Head,
    n: u32,
    mut running: RunningReplies,
    form: ReplyForm,
) -> Result<Json<impl serde::Serialize>, ApiError> {
    let mut said: Vec<Said> = (0..n).map(|_| Said::default()).collect();
    let mut usage: Option<ChatUsage> = None;
    while let Some((index, news)) = running.next().await? {
        let said = &mut said[index as usize];
        match news {
            News::Text { piece, logprob } => {
                said.text.push(&piece);
                said.logprobs.extend(logprob);
            }
            News::End {
                rest,
                reason,
                usage: used,
            } => {
                said.text.push(&rest);
                said.reason = reason;
                usage = Some(usage.map_or(used, |usage| usage.and(used)));
            }
        }
    }
    let choice = |(index, said): (u32, Said)| {
        let logprobs = form.logprobs.then_some(said.logprobs);
        Choice::new(index, said.text, logprobs, said.reason)
    };
    let choices = (0..).zip(said).map(choice).collect();
    Ok(Json(head.completion(choices, usage.unwrap_or_default())))
}

/// Sends the reply as an event stream. If the client disconnects, the stream is dropped, and this cancels the sampler's
/// work.
async fn streamed(
    head: Head,
    n: u32,
    mut running: RunningReplies,
    form: ReplyForm,
) -> Result<Response, ApiError> {
    if let Ok(accepted) = timeout(PATIENCE, running.accepted()).await {
        accepted?;
    }
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Otherwise nginx holds events back.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let events = events(EventWriter::new(head, form.include_usage), n, running);
    Ok((headers, Body::from_stream(events)).into_response())
}

/// Returns the events of all replies in the order in which they arrive. A failure after the first byte is sent as an
/// event, and then the stream is cut: there is no `[DONE]`, and the body does not end like a complete one.
fn events(
    writer: EventWriter,
    n: u32,
    mut running: RunningReplies,
) -> impl Stream<Item = Result<Bytes, io::Error>> {
    try_stream! {
        for index in 0..n {
            yield Bytes::from(writer.role(index));
        }
        let mut usage: Option<ChatUsage> = None;
        let mut n_running = n;
        // Tokens without text yet, because a character is not complete.
        let mut silent: Vec<Vec<TokenLogprob>> = (0..n).map(|_| Vec::new()).collect();
        loop {
            let Ok(next) = timeout(QUIET, running.next()).await else {
                yield Bytes::from_static(WAITING.as_bytes());
                continue;
            };
            match next {
                Ok(Some((index, News::Text { piece, logprob }))) => {
                    let silent = &mut silent[index as usize];
                    silent.extend(logprob);
                    if !piece.is_empty() {
                        yield Bytes::from(writer.news(index, piece, std::mem::take(silent)));
                    }
                }
                Ok(Some((index, News::End { rest, reason, usage: used }))) => {
                    let silent = std::mem::take(&mut silent[index as usize]);
                    let mut last = String::new();
                    if !rest.is_empty() || !silent.is_empty() {
                        last = writer.news(index, rest, silent);
                    }
                    last += &writer.finish(index, reason);
                    let used = usage.map_or(used, |usage| usage.and(used));
                    usage = Some(used);
                    n_running -= 1;
                    if n_running == 0 {
                        last += &writer.end(used);
                    }
                    yield Bytes::from(last);
                }
                Ok(None) => break,
                Err(error) => {
                    yield Bytes::from(event(&error.body()));
                    Err(io::Error::other(error.to_string()))?;
                }
            }
        }
    }
}
