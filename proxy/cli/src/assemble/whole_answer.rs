//! Asks a model until it has room for its answer, because a model that thinks may use all of it for that.

use http::StatusCode;
use metaclaw_chat::{Message, without_thinking};
use metaclaw_llm::{Answer, AskError, AskParams, ChatClient};

/// The room for an answer in tokens. It is only a bound: a model that does not think ends before it.
pub(super) const ROOM: u32 = 4_096;
/// How much more room the second request has.
const MORE: u32 = 4;

/// The answers to a question, each of which is paid, and the text of the last one without its thinking. The text is
/// empty if both were cut: such an answer is no vote, and nothing is heard in it.
pub(super) async fn ask(
    client: &ChatClient,
    messages: &[Message],
    params: &AskParams,
) -> Result<(Vec<Answer>, String), AskError> {
    let mut answers = vec![client.ask(messages, params.clone()).await?];
    if let Some(said) = answers.iter().find_map(whole) {
        return Ok((answers, said));
    }
    let room = params.max_tokens.map(|room| room.saturating_mul(MORE));
    let more = AskParams {
        max_tokens: room,
        ..params.clone()
    };
    match client.ask(messages, more).await {
        Ok(answer) => answers.push(answer),
        // The model's context has no more room.
        Err(AskError::Status {
            status: StatusCode::BAD_REQUEST,
            ..
        }) => {}
        Err(error) => return Err(error),
    }
    let said = answers.iter().find_map(whole);
    if said.is_none() {
        tracing::warn!(
            model = client.model(),
            room,
            "a model's answer was cut, and is not used"
        );
    }
    Ok((answers, said.unwrap_or_default()))
}

fn whole(answer: &Answer) -> Option<String> {
    if answer.is_cut() {
        return None;
    }
    without_thinking(&answer.text)
}
