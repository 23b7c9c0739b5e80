//! OpenAI's chat completions: reads an unstreamed reply, or assembles a streamed one.

pub mod form;
mod stream;
mod thinking;

use std::borrow::Cow;

use metaclaw_chat::{Message, Usage, finish_reason};

pub(crate) use self::{stream::ChatAccumulator, thinking::thought};
use crate::{fields::JsonFields, reply::Reply};

/// Reads an unstreamed reply. A body that is not JSON, or not a completion, gives an empty reply.
pub(crate) fn read_json(bytes: &[u8]) -> Reply {
    // The fast way comes first.
    let text = str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    let Some(body) = JsonFields::parse(&text) else {
        return Reply::default();
    };
    let choice = body.first("choices").unwrap_or_default();
    let message = choice.value("message");
    let text = |of: &JsonFields<'_>, name| of.text(name).map(Cow::into_owned);
    Reply {
        id: text(&body, "id"),
        model: text(&body, "model"),
        message: message.and_then(|message| Message::try_from(message).ok()),
        finish_reason: choice.text("finish_reason").map(|it| finish_reason(&it)),
        usage: body.value("usage").as_ref().and_then(Usage::read),
        error: body.value("error"),
        ..Reply::default()
    }
}

#[cfg(test)]
mod tests;
