//! What providers say, and the class that it is; `testdata/failures` has a file of each provider.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

use super::{Failure::*, *};
use crate::translate::{self, Direction};

/// One answer of a provider.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    #[serde(default)]
    about: String,
    status: u16,
    body: Value,
    class: Option<Failure>,
}

#[test]
fn what_each_provider_says_has_its_class() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/failures");
    let mut n_answers = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let answers: Vec<Answer> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for answer in answers {
            let told = format!("{} {}: {}", path.display(), answer.about, answer.body);
            let body = match &answer.body {
                Value::String(text) => text.clone(),
                body => body.to_string(),
            };
            let class = Failure::classify(answer.status, body.as_bytes());
            assert_eq!(class, answer.class, "{told}");
            // Agents know it by the words, or by the code, of the API that they speak.
            let is_too_long = answer.class == Some(ContextLength);
            for (direction, mark) in [
                (
                    Direction::MessagesToChat,
                    "\"message\":\"prompt is too long",
                ),
                (
                    Direction::ChatToMessages,
                    "\"code\":\"context_length_exceeded\"",
                ),
            ] {
                let said = translate::error(direction, answer.status, body.as_bytes());
                let said = String::from_utf8(said).unwrap().to_lowercase();
                assert_eq!(said.contains(mark), is_too_long, "{told}: {said}");
            }
            n_answers += 1;
        }
    }
    assert!(n_answers > 60, "{n_answers} answers");
}

const CASES: &[(u16, &str, Option<Failure>)] = &[
    (200, "", None),
    (429, "", Some(RateLimit)),
    (
        429,
        r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#,
        Some(RateLimit),
    ),
    (
        429,
        r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        Some(Billing),
    ),
    (
        429,
        r#"{"error":{"code":"1113","message":"Insufficient balance or no resource package"}}"#,
        Some(Billing),
    ),
    (
        429,
        r#"[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]"#,
        Some(RateLimit),
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}"#,
        Some(Billing),
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 1 tokens > 0 maximum"}}"#,
        Some(ContextLength),
    ),
    (
        400,
        r#"{"error":{"message":"x","code":"context_length_exceeded"}}"#,
        Some(ContextLength),
    ),
    (400, r#"{"error":{"message":"messages is empty"}}"#, None),
    (
        401,
        r#"{"error":{"code":"invalid_api_key","message":"Incorrect API key"}}"#,
        Some(Auth),
    ),
    (
        401,
        r#"{"error":"this key was revoked"}"#,
        Some(AuthPermanent),
    ),
    (402, "Payment Required", Some(Billing)),
    (403, r#"{"error":{"type":"forbidden"}}"#, Some(Auth)),
    (403, "<html>", Some(Auth)),
    (
        403,
        r#"{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}"#,
        Some(Auth),
    ),
    (
        403,
        r#"{"error":{"message":"The API key was disabled."}}"#,
        Some(AuthPermanent),
    ),
    (
        403,
        r#"{"error":{"code":"account_deactivated","message":"x"}}"#,
        Some(AuthPermanent),
    ),
    (
        403,
        r#"{"error":{"message":"Project `p` does not have access to model `m`","code":"model_not_found"}}"#,
        Some(ModelNotFound),
    ),
    (
        403,
        r#"{"error":"This model is not available in your region."}"#,
        Some(ModelNotFound),
    ),
    (
        403,
        r#"{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported"}}"#,
        Some(ModelNotFound),
    ),
    (
        403,
        r#"{"error":{"code":403,"message":"Permission denied on resource model x","status":"PERMISSION_DENIED"}}"#,
        Some(ModelNotFound),
    ),
    (
        403,
        r#"{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged"}}"#,
        None,
    ),
    (
        400,
        r#"{"error":{"code":"content_filter","message":"The response was filtered"}}"#,
        None,
    ),
    (
        403,
        r#"{"error":{"message":"Insufficient balance for this model"}}"#,
        Some(Billing),
    ),
    (
        404,
        r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
        Some(ModelNotFound),
    ),
    (
        404,
        r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","code":404}"#,
        Some(ModelNotFound),
    ),
    (
        404,
        r#"{"error":{"code":"DeploymentNotFound","message":"x"}}"#,
        Some(ModelNotFound),
    ),
    (404, r#"{"detail":"file does not exist"}"#, None),
    (
        500,
        r#"{"error":{"message":"model file does not exist"}}"#,
        Some(Server),
    ),
    (
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        Some(Overloaded),
    ),
    (503, "", Some(Overloaded)),
    (504, "<html>", Some(Timeout)),
    (502, "<html>", Some(Server)),
    (422, "", None),
];

#[test]
fn status_and_body_tell_the_class() {
    for (status, body, class) in CASES {
        assert_eq!(
            Failure::classify(*status, body.as_bytes()),
            *class,
            "{status} {body}"
        );
    }
}

#[test]
fn an_error_with_status_200_has_a_status_of_its_own() {
    for (body, status) in [
        (r#"{"error":{"code":429,"message":"slow"}}"#, Some(429)),
        (
            r#"{"error":{"code":"rate_limit_exceeded","message":"slow"}}"#,
            Some(429),
        ),
        (r#"{"error":{"code":1302,"message":"no"}}"#, Some(502)),
        (r#"{"error":"out of memory"}"#, Some(502)),
        (
            r#"{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}"#,
            Some(400),
        ),
        (r#"{"object":"error","message":"no","code":404}"#, Some(404)),
        (r#"[{"error":{"code":503,"message":"no"}}]"#, Some(503)),
        (
            r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#,
            Some(402),
        ),
        (
            r#"{"choices":[{"error":{"code":502,"message":"gone"}}]}"#,
            Some(502),
        ),
        (r#"{"choices":[{"message":{}}],"error":null}"#, None),
        (
            r#"{"choices":[{"message":{}}],"base_resp":{"status_code":0,"status_msg":""}}"#,
            None,
        ),
        (r#"{"type":"message","content":[],"error":{}}"#, None),
        ("no", None),
    ] {
        assert_eq!(error_status(body.as_bytes()), status, "{body}");
    }
}
