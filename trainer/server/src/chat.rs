//! `POST /v1/chat/completions`, in OpenAI's shape.

mod logprobs;
mod messages;
mod reply;
mod request;
mod running;
mod think;
mod thinking;
mod usage;

use std::{io, sync::Arc};

use async_stream::try_stream;
use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt as _, future::try_join_all, stream};
use metaclaw_engine::generate::GenerateRequest;
use metaclaw_trainer_api::AdapterName;

use self::{
    logprobs::TokenLogprob,
    reply::{Choice, EventWriter, Head, event},
    request::{ChatRequest, Form},
    running::{News, Running},
    think::Piece,
    usage::Usage,
};
pub(crate) use self::{messages::check as check_messages, request::ChatBody};
use crate::{error::ApiError, json::JsonBody, state::App};

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
        draw,
        form,
    } = body.check()?;
    app.host.check_draw(&draw)?;
    let adapter = app.models.resolve(model.as_deref(), &app.host)?;
    let place = Arc::new(app.queue.enter(form.n)?);
    let prompt = Arc::new(app.host.render(conversation, true).await?);
    let room = app.host.room_after(prompt.ids.len())?;
    let draw = GenerateRequest {
        prompt_ids: prompt.ids.clone(),
        adapter: adapter.clone(),
        max_tokens: draw.max_tokens.min(room),
        ..draw
    };
    let served = adapter.as_ref().map(AdapterName::as_str);
    let head = Head::new(served.unwrap_or_else(|| app.host.base()).to_owned());
    let generations = app.host.generate(draw, form.n).await?;
    let choices = (0..).zip(generations).map(|(index, generation)| {
        let id = head.choice_id(index);
        let adapter = adapter.clone();
        let running = Running::new(&app, id, &prompt, adapter, generation, &place);
        (index, running)
    });
    let choices: Vec<(u32, Running)> = choices.collect();
    let mut response = if form.stream {
        streamed(head, choices, form)
    } else {
        whole(head, choices, form).await?.into_response()
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
    choices: Vec<(u32, Running)>,
    form: Form,
) -> Result<Json<impl serde::Serialize>, ApiError> {
    let choices = choices.into_iter();
    let ended = choices.map(|(index, running)| choice(index, running, form));
    let (choices, usages): (Vec<Choice>, Vec<Usage>) =
        try_join_all(ended).await?.into_iter().unzip();
    let usage = usages.into_iter().reduce(Usage::and).unwrap_or_default();
    Ok(Json(head.completion(choices, usage)))
}

async fn choice(index: u32, mut running: Running, form: Form) -> Result<(Choice, Usage), ApiError> {
    let mut text = Piece::default();
    let mut logprobs: Vec<TokenLogprob> = Vec::new();
    loop {
        match running.next(form.logprobs).await? {
            News::Text { piece, logprob } => {
                text.push(&piece);
                logprobs.extend(logprob);
            }
            News::End {
                rest,
                reason,
                usage,
            } => {
                text.push(&rest);
                let logprobs = form.logprobs.then_some(logprobs);
                return Ok((Choice::new(index, text, logprobs, reason), usage));
            }
        }
    }
}

/// The reply as an event stream. When the client hangs up the stream is dropped, and with it the
/// generations.
fn streamed(head: Head, choices: Vec<(u32, Running)>, form: Form) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(events(head, choices, form))).into_response()
}

/// The events of all choices, in the order in which they come. A failure after the first byte is told in an event and
/// then shown as a cut: there is no `[DONE]`, and the body does not end as a whole one does.
fn events(
    head: Head,
    choices: Vec<(u32, Running)>,
    form: Form,
) -> impl Stream<Item = Result<Bytes, io::Error>> {
    let writer = EventWriter::new(head, form.include_usage);
    try_stream! {
        for (index, _) in &choices {
            yield Bytes::from(writer.role(*index));
        }
        let mut usage: Option<Usage> = None;
        let mut n_running = choices.len();
        // Tokens whose text has not come yet, because a character is not complete.
        let mut silent: Vec<Vec<TokenLogprob>> = choices.iter().map(|_| Vec::new()).collect();
        let mut news = stream::select_all(choices.into_iter().map(|it| news_of(it, form)));
        while let Some((index, next)) = news.next().await {
            let silent = &mut silent[index as usize];
            match next {
                Ok(News::Text { piece, logprob }) => {
                    silent.extend(logprob);
                    if !piece.is_empty() {
                        yield Bytes::from(writer.news(index, piece, std::mem::take(silent)));
                    }
                }
                Ok(News::End { rest, reason, usage: used }) => {
                    let mut last = String::new();
                    if !rest.is_empty() || !silent.is_empty() {
                        last = writer.news(index, rest, std::mem::take(silent));
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
                Err(error) => {
                    yield Bytes::from(event(&error.body()));
                    Err(io::Error::other(error.to_string()))?;
                }
            }
        }
    }
}

/// What happens to one choice, to its end.
fn news_of(
    (index, running): (u32, Running),
    form: Form,
) -> impl Stream<Item = (u32, Result<News, ApiError>)> + Unpin {
    let going = stream::unfold(Some(running), move |running| async move {
        let mut running = running?;
        let news = running.next(form.logprobs).await;
        let goes_on = matches!(news, Ok(News::Text { .. }));
        Some(((index, news), goes_on.then_some(running)))
    });
    Box::pin(going)
}
