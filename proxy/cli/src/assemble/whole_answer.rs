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

#[cfg(test)]
mod tests {
    use metaclaw_llm::{LlmConfig, loopback_client};
    use metaclaw_test_kit::{Reply, Request, Server};
    use serde_json::json;

    use super::*;

    fn answer(text: &str, reason: &str) -> Reply {
        let message = json!({ "role": "assistant", "content": text });
        let choice = json!({ "message": message, "finish_reason": reason });
        Reply::json(json!({ "choices": [choice] }).to_string())
    }

    #[tokio::test]
    async fn a_cut_answer_is_asked_for_once_more_with_more_room() {
        let (yes, no, thought) = ("verdict: 1", "verdict: -1", "<think>verdict: 1");
        for (first, second, expected, n_asked) in [
            ((yes, "stop"), ("", "stop"), yes, 1),
            ((no, "length"), (yes, "stop"), yes, 2),
            ((no, "MAX_TOKENS"), (yes, "end_turn"), yes, 2),
            ((no, "length"), (yes, "model_length"), "", 2),
            ((no, "abort"), (yes, "error"), "", 2),
            ((thought, "stop"), (thought, "length"), "", 2),
        ] {
            let server = Server::scripted([answer(first.0, first.1), answer(second.0, second.1)]);
            let config = LlmConfig {
                url: format!("{}/v1", server.url()),
                model: "judge".to_owned(),
                ..LlmConfig::default()
            };
            let client = ChatClient::new(config, loopback_client().unwrap()).unwrap();
            let params = AskParams {
                max_tokens: Some(64),
                ..AskParams::default()
            };
            let asked = ask(&client, &[Message::user("?")], &params).await;
            let (answers, said) = asked.unwrap();
            assert_eq!(
                (said.as_str(), answers.len()),
                (expected, n_asked),
                "{first:?}"
            );
            let asked: Vec<String> = server.asked().iter().map(Request::text).collect();
            let rooms = ["\"max_tokens\":64", "\"max_tokens\":256"];
            assert_eq!(asked.len(), n_asked, "{first:?}");
            assert!(
                asked.iter().zip(rooms).all(|(it, room)| it.contains(room)),
                "{asked:?}"
            );
        }
    }
}
