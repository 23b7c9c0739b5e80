use std::path::Path;

use metaclaw_trainer_api::wire::{
    CheckpointLoadRequest, CreateRequest, ForwardBackwardRequest, ForwardRequest, OptimStepRequest,
    SaveWeightsRequest,
};
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    error::ApiError,
    json::{self as body, ReadApiJson},
    sample::SampleBody,
    train::SaveCheckpointBody,
};

/// Values of every JSON type, so that one of them is wrong for any field.
fn wrong() -> [Value; 5] {
    [
        json!(-7.5),
        json!("wrong"),
        json!([{"no": 1}]),
        json!({"no": 1}),
        json!(true),
    ]
}

/// Each field that is said to be done is looked at: a wrong value of it is refused by its name.
fn all_are_read<T: ReadApiJson>(
    rest: &Value,
    check: impl Fn(T) -> Result<(), ApiError>,
    any: &[&str],
) {
    let done = of_route(T::ROUTE).iter().filter(|field| field.is_done());
    for field in done.filter(|field| !any.contains(&field.name())) {
        let refused = wrong().into_iter().any(|value| {
            let mut fields: Map<String, Value> = rest.as_object().unwrap().clone();
            fields.insert(field.name().to_owned(), value);
            let json = Value::Object(fields).to_string();
            let read = body::read::<T>(json.as_bytes()).and_then(&check);
            let param = read.err().and_then(|error| error.body().error.param);
            param.is_some_and(|param| param.starts_with(field.name()))
        });
        assert!(refused, "{} is not read", field.name());
    }
}

#[test]
fn every_field_that_is_said_to_be_done_is_read() {
    all_are_read::<SampleBody>(&json!({"tokens": [1]}), |_| Ok(()), &[]);
    let run = json!({"session_id": "0123abcd", "datums": [], "path": "x"});
    let of = |names: &[&str]| {
        let fields = names
            .iter()
            .map(|name| ((*name).to_owned(), run[*name].clone()));
        Value::Object(fields.collect())
    };
    all_are_read::<CreateRequest>(&json!({}), |_| Ok(()), &[]);
    all_are_read::<ForwardRequest>(&of(&["session_id", "datums"]), |_| Ok(()), &[]);
    all_are_read::<ForwardBackwardRequest>(&of(&["session_id", "datums"]), |_| Ok(()), &[]);
    all_are_read::<OptimStepRequest>(&of(&["session_id"]), |_| Ok(()), &[]);
    all_are_read::<SaveWeightsRequest>(&of(&["session_id"]), |_| Ok(()), &[]);
    all_are_read::<SaveCheckpointBody>(&of(&["session_id"]), |_| Ok(()), &["manifest"]);
    all_are_read::<CheckpointLoadRequest>(&of(&["session_id", "path"]), |_| Ok(()), &[]);
}

#[test]
fn a_field_that_nobody_knows_is_refused() {
    let refused = |body: &str| check(body.as_bytes(), of_route("POST /v1/sample")).unwrap_err();
    insta::assert_snapshot!(refused(r#"{"tokens": [1], "temprature": 1}"#));
    let long = format!("{{\"{}\": 1}}", "x".repeat(10_000));
    assert!(refused(&long).to_string().len() < 1_000);
}

/// The documentation repeats the tables; `METACLAW_WRITE_EXAMPLE=1` writes them there.
#[test]
#[expect(clippy::disallowed_methods, reason = "how a person asks for it")]
fn the_documentation_says_what_the_tables_say() {
    const MARK: &str =
        "<!-- made from trainer/chat/data/fields.md and trainer/server/data/fields.md -->\n";
    const TABLES: &str = concat!(
        include_str!("../../../chat/data/fields.md"),
        include_str!("../../data/fields.md")
    );
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/extending/trainer-api.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (head, made) = text.split_once(MARK).unwrap();
    if std::env::var("METACLAW_WRITE_EXAMPLE").is_ok() {
        std::fs::write(&file, format!("{head}{MARK}{TABLES}")).unwrap();
    } else {
        assert!(made == TABLES, "{} says something else", file.display());
    }
}
