//! What providers say, and the class that it is; `testdata/failures` has a file of each provider.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::{
    testing,
    translate::{self, Direction},
};

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
            let is_too_long = answer.class == Some(Failure::ContextLength);
            #[rustfmt::skip]
            let cases = [
                (Direction::MessagesToChat, "\"message\":\"prompt is too long"),
                (Direction::ChatToMessages, "\"code\":\"context_length_exceeded\""),
            ];
            for (direction, mark) in cases {
                let said = translate::error(direction, answer.status, body.as_bytes());
                let said = String::from_utf8(said).unwrap().to_lowercase();
                assert_eq!(said.contains(mark), is_too_long, "{told}: {said}");
            }
            n_answers += 1;
        }
    }
    assert!(n_answers > 100, "{n_answers} answers");
}

#[test]
fn an_error_with_status_200_has_a_status_of_its_own() {
    for (body, status) in testing::rows::<(String, Option<u16>)>("errors_with_status_200") {
        assert_eq!(error_status(body.as_bytes()), status, "{body}");
    }
}
