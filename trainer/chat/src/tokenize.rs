//! `POST /tokenize` in vLLM's format.

use axum::{Json, extract::State};
use metaclaw_trainer_api::wire::{TokenizeReply, TokenizeRequest};

use crate::{chat, error::ApiError, front::Front, json::JsonBody, model::Conversation};

pub(crate) async fn tokenize(
    State(front): State<Front>,
    JsonBody(request): JsonBody<TokenizeRequest>,
) -> Result<Json<TokenizeReply>, ApiError> {
    let model = front.model()?;
    let mut reply_start = None;
    let tokens = match (request.prompt, request.messages) {
        (Some(_), None) if request.split_reply => {
            let text = "split_reply is given with a prompt: it needs messages";
            return Err(ApiError::field("split_reply", text));
        }
        (Some(text), None) => model.encode(text).await?,
        (None, Some(messages)) => {
            chat::check_messages(&messages)?;
            let conversation = Conversation {
                messages,
                tools: request.tools,
                variables: request.chat_template_kwargs,
                system_append: None,
            };
            if request.split_reply {
                let split = model.split_reply(conversation).await?;
                reply_start = u32::try_from(split.start).ok();
                split.ids
            } else {
                let open = request.add_generation_prompt;
                model.render(front.served(), conversation, open).await?.ids
            }
        }
        (Some(_), Some(_)) => {
            let text = "prompt and messages are both given: one of them";
            return Err(ApiError::field("prompt", text));
        }
        (None, None) => {
            let text = "neither prompt nor messages is given: one of them";
            return Err(ApiError::field("messages", text));
        }
    };
    Ok(Json(TokenizeReply {
        count: u32::try_from(tokens.len()).unwrap_or(u32::MAX),
        max_model_len: u32::try_from(model.context()).unwrap_or(u32::MAX),
        tokens,
        reply_start,
    }))
}
