use std::fmt::Write as _;

use metaclaw_trainer_api::wire::TokenizeRequest;
use serde_json::{Map, json};

use super::*;
use crate::{
    chat::ChatBody,
    json::{self as body, ReadBody},
};

fn chat() -> &'static [Field] {
    of_route("POST /v1/chat/completions")
}

/// Returns values of every type. At least one of them is wrong for any field.
fn wrong() -> [Value; 5] {
    [
        json!(-7.5),
        json!("wrong"),
        json!([{"no": 1}]),
        json!({"no": 1}),
        json!(true),
    ]
}

/// Checks that each supported field is read: a wrong value is refused with its name.
fn all_are_read<T: ReadBody>(
    rest: &Value,
    check: impl Fn(T) -> Result<(), ApiError>,
    any: &[&str],
) {
    let done = of_route(T::ROUTE).iter().filter(|field| field.is_done());
    for field in done.filter(|field| !any.contains(&field.name)) {
        let refused = wrong().into_iter().any(|value| {
            let mut fields: Map<String, Value> = rest.as_object().unwrap().clone();
            fields.insert(field.name.to_owned(), value);
            let json = Value::Object(fields).to_string();
            let read = body::read::<T>(json.as_bytes()).and_then(&check);
            let param = read.err().and_then(|error| error.body().error.param);
            param.is_some_and(|param| param.starts_with(field.name))
        });
        assert!(refused, "{} is not read", field.name);
    }
}

#[test]
fn every_field_that_is_said_to_be_done_is_read() {
    let hi = json!({"messages": [{"role": "user", "content": "hi"}]});
    all_are_read::<ChatBody>(&hi, |body| body.check().map(|_| ()), &[]);
    all_are_read::<TokenizeRequest>(&json!({}), |_| Ok(()), &["tools"]);
}

#[test]
fn every_refused_field_is_refused_by_its_name_and_passes_where_it_says_nothing() {
    let mut lines = String::new();
    for field in chat() {
        let FieldRule::Refused(neutral) = &field.rule else {
            continue;
        };
        let body = |value: &str| format!("{{\"{}\": {value}}}", field.name);
        for value in neutral.iter().chain(&["null"]) {
            assert_eq!(check(body(value).as_bytes(), chat()), Ok(()), "{value}");
        }
        let refused = check(body("[17]").as_bytes(), chat()).unwrap_err();
        let error = refused.body().error;
        assert_eq!(error.param.as_deref(), Some(field.name));
        assert_eq!(error.code, Some(ErrorCode::UnsupportedParameter));
        writeln!(lines, "{}", error.message).unwrap();
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn one_and_one_point_nought_are_the_same() {
    for (body, is_same) in [
        (r#"{"length_penalty": 1.0, "best_of": 1.0}"#, true),
        (r#"{"modalities": [ "text" ]}"#, true),
        (r#"{"length_penalty": 1.01}"#, false),
    ] {
        assert_eq!(check(body.as_bytes(), chat()).is_ok(), is_same, "{body}");
    }
}
