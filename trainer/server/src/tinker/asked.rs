//! A request to a model, read from a body.

use metaclaw_trainer_api::{
    LossConfig,
    tinker::{
        ModelId,
        proto::{ProtoForwardBackward, Setting, decoded_size},
    },
};
use prost::{DecodeError, Message as _};

use super::{
    body::{Sent, check_size},
    registry::{Data, Work},
};
use crate::{error::ApiError, fields::cut};

/// A request to a model.
pub(super) struct Asked {
    pub(super) work: Work,
    pub(super) sent: Sent,
}

/// A forward_backward that was read.
pub(super) struct ParsedPass {
    pub(super) id: ModelId,
    pub(super) seq: u32,
    pub(super) asked: Asked,
}

/// Reads a protobuf body. Errors in its data become part of the result.
///
/// # Errors
/// 400 for one that is none, or names no model or number. What is wrong with its data its result says.
pub(super) fn from_proto(bytes: &[u8]) -> Result<ParsedPass, ApiError> {
    let broken = |error: DecodeError| {
        let text = format!("the body is no ForwardBackwardRequest: {error}");
        ApiError::bad(text)
    };
    let n_bytes = decoded_size(bytes).map_err(broken)?;
    check_size(n_bytes)?;
    let request = ProtoForwardBackward::decode(bytes).map_err(broken)?;
    // A writer may order the entries of a map differently when it writes again, so they are sorted here.
    let hash = blake3::hash(&request.encode_to_vec());
    let id = request
        .model_id
        .parse()
        .map_err(|error| ApiError::field("model_id", format!("{error}")))?;
    let seq = u32::try_from(request.seq_id)
        .ok()
        .filter(|seq| *seq > 0)
        .ok_or_else(|| {
            let text = format!("seq_id is {}: 1 or more", request.seq_id);
            ApiError::field("seq_id", text)
        })?;
    let config = loss_config(&request);
    let work = Work::Train {
        data: Data::Proto(request.data),
        loss_fn: request.loss_fn,
        config,
        forward_only: request.forward_only,
    };
    let sent = Sent { hash, n_bytes };
    let asked = Asked { work, sent };
    Ok(ParsedPass { id, seq, asked })
}

/// The second map has all settings, if it is there.
fn loss_config(request: &ProtoForwardBackward) -> Result<LossConfig, String> {
    if request.loss_fn_config_v2.is_empty() {
        return Ok(request.loss_fn_config.clone());
    }
    let settings = request.loss_fn_config_v2.iter();
    let read = settings.map(|(name, value)| match &value.value {
        Some(Setting::Number(number)) => Ok((name.clone(), *number)),
        Some(Setting::Text(text)) => {
            let (name, text) = (cut(name), cut(text));
            Err(format!("loss_fn_config.{name} is {text:?}: a number"))
        }
        None => Err(format!("loss_fn_config.{} has no value", cut(name))),
    });
    read.collect()
}
