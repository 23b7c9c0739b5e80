//! Error messages that tell an owner what to do about a server's refusal.

use metaclaw_trainer_terms::ErrorCode;
use serde_json::Value;

use crate::BackendError;

const SHOWN: usize = 600;

#[derive(Debug, Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) call: &'static str,
    pub(super) url: &'a str,
}

// === impl Whose ===

impl Whose<'_> {
    pub(super) fn refusal(self, status: u16, body: &[u8]) -> BackendError {
        let (text, code) = read_refusal(body);
        self.status(status, code, in_words(status, &text))
    }

    pub(super) fn status(
        self,
        status: u16,
        code: Option<ErrorCode>,
        message: String,
    ) -> BackendError {
        BackendError::Status {
            call: self.call,
            url: self.url.to_owned(),
            status,
            code,
            param: None,
            message,
        }
    }

    /// The server does not know the run (any more), or what it holds is in doubt: it begins again at its checkpoint.
    pub(super) fn run_not_found(self, why: &str) -> BackendError {
        self.status(404, Some(ErrorCode::RunNotFound), why.to_owned())
    }

    pub(super) fn unreadable(self, why: impl Into<String>) -> BackendError {
        BackendError::Unreadable {
            call: self.call,
            url: self.url.to_owned(),
            why: why.into(),
        }
    }

    pub(super) fn not_supported(self, what: impl Into<String>) -> BackendError {
        BackendError::NotSupported {
            call: self.call,
            url: self.url.to_owned(),
            what: what.into(),
        }
    }

    /// The server no longer knows the request's object. The work may have been done.
    pub(super) fn lost(self, why: impl Into<String>) -> BackendError {
        BackendError::Lost {
            call: self.call,
            url: self.url.to_owned(),
            why: why.into(),
        }
    }
}

fn in_words(status: u16, text: &str) -> String {
    let known = match status {
        401 => {
            "the key is refused: set rl.tinker_api_key, or the variable of the environment, to a key of this server"
        }
        402 => {
            "the account has no credit, or its payment is paused: nothing is trained or sampled until that is settled with the provider"
        }
        403 => "the key may not do this",
        408 => "the server was not ready in time",
        410 => "the server has dropped what was asked about",
        429 => "too many requests for now",
        503 => "the server has no room for now",
        _ => return text.to_owned(),
    };
    if text.is_empty() {
        known.to_owned()
    } else {
        format!("{known} (it says: {text})")
    }
}

pub(super) fn read_refusal(body: &[u8]) -> (String, Option<ErrorCode>) {
    let Ok(read) = serde_json::from_slice::<Value>(body) else {
        return (cut(&String::from_utf8_lossy(body)), None);
    };
    let error = &read["error"];
    let code = [&error["code"], &read["code"]];
    let code = code.iter().find_map(|code| code.as_str());
    let text = [&error["message"], error, &read["detail"], &read["message"]];
    let text = text.iter().find_map(|text| text.as_str());
    let text = text.map_or_else(
        || match &read["detail"] {
            Value::Null => read.to_string(),
            detail => detail.to_string(),
        },
        str::to_owned,
    );
    (cut(&text), code.map(ErrorCode::from))
}

fn cut(text: &str) -> String {
    text.trim().chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_of_error_gives_its_message() {
        let of = |body: &str| read_refusal(body.as_bytes());
        assert_eq!(of(r#"{"detail":"no such model"}"#).0, "no such model");
        assert_eq!(of(r#"{"error":"bad key"}"#).0, "bad key");
        let ours = of(r#"{"error":{"message":"gone","code":"run_not_found"}}"#);
        assert_eq!(ours, ("gone".to_owned(), Some(ErrorCode::RunNotFound)));
        let fastapi = of(r#"{"detail":[{"loc":["body","model_id"],"msg":"Field required"}]}"#);
        assert!(fastapi.0.contains("Field required"), "{fastapi:?}");
        assert_eq!(of("upstream connect error").0, "upstream connect error");
    }

    #[test]
    fn what_an_owner_can_do_is_said() {
        let whose = Whose {
            call: "optim_step",
            url: "https://t.example",
        };
        let body = br#"{"detail":"insufficient credit"}"#;
        insta::assert_snapshot!(
            whose.refusal(402, body),
            @"optim_step: 402 from https://t.example: the account has no credit, or its payment is paused: nothing is trained or sampled until that is settled with the provider (it says: insufficient credit)"
        );
        insta::assert_snapshot!(
            whose.refusal(503, b""),
            @"optim_step: 503 from https://t.example: the server has no room for now"
        );
    }
}
