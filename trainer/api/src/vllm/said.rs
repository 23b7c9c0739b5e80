//! The server's error messages. Unlike OpenAI's, their code is a number.

use serde::Deserialize;

/// How much of an error's text a message contains.
const SHOWN: usize = 600;

#[derive(Debug, Deserialize)]
struct VllmErrorBody {
    error: Said,
}

#[derive(Debug, Deserialize)]
pub(super) struct Said {
    pub(super) message: String,
}

/// Returns the message of an error's body, or its text.
pub(super) fn said(body: &[u8]) -> String {
    let message = serde_json::from_slice::<VllmErrorBody>(body).map(|it| it.error.message);
    let text = message.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
    text.chars().take(SHOWN).collect()
}
