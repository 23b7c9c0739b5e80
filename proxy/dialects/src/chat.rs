//! OpenAI chat completions: a reply read whole or put together from its stream.

mod stream;
mod thinking;
mod usage;

use std::borrow::Cow;

use metaclaw_chat::Message;

use self::usage::usage;
pub(crate) use self::{stream::Accumulator, thinking::thought, usage::cached_tokens};
use crate::{
    fields::Fields,
    reply::{Reply, ends_reply},
};

/// Reads an unstreamed reply. What is no JSON, or no completion, gives an empty one.
pub(crate) fn read_json(bytes: &[u8]) -> Reply {
    // The quick way first.
    let text = str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    let Some(body) = Fields::parse(&text) else {
        return Reply::default();
    };
    let choice = body.first("choices").unwrap_or_default();
    let message = choice.value("message");
    let text = |of: &Fields<'_>, name| of.text(name).map(Cow::into_owned);
    Reply {
        id: text(&body, "id"),
        model: text(&body, "model"),
        message: message.and_then(|message| Message::try_from(message).ok()),
        finish_reason: text(&choice, "finish_reason"),
        usage: usage(&body),
        ended: false,
        error: body.value("error"),
        n_skipped: 0,
    }
}

/// The stream's `[DONE]` has come.
pub(crate) fn is_done(tail: &[u8]) -> bool {
    says_done(tail) && ends_reply::<Accumulator>(tail)
}

/// The last line of `tail` is `data: [DONE]`: a cheap look before the event is read.
pub(crate) fn says_done(tail: &[u8]) -> bool {
    let text = tail.trim_ascii_end();
    if !text.ends_with(b"[DONE]") {
        // A long line that comes in pieces is not looked through again with each.
        return false;
    }
    let line = text.rsplit(|b| matches!(b, b'\n' | b'\r')).next();
    let data = line.and_then(|line| line.strip_prefix(b"data:"));
    data.is_some_and(|data| data.trim_ascii_start() == b"[DONE]")
}

#[cfg(test)]
mod tests;
