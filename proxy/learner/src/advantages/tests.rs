use futures_util::future::{BoxFuture, ready};
use serde_json::json;

use super::*;
use crate::{judge::PostFailed, sample::testing::rollout_group};

type Answer = fn(&Value) -> String;

#[derive(Debug)]
struct Answers(Answer);

impl Post for Answers {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        Box::pin(ready(Ok(self.0(body))))
    }
}

fn groups() -> Vec<RolloutGroup> {
    vec![rollout_group(
        "g",
        &[(1.0, &[0.25], &[2]), (-1.0, &[], &[1])],
    )]
}

async fn given(answer: fn(&Value) -> String) -> Result<StepAdvantages, AdvantagesError> {
    let function = AdvantageFunction::new(Arc::new(Answers(answer)));
    function.compute(&groups()).await
}

fn ids(body: &Value) -> Vec<String> {
    let samples = body["samples"].as_array().unwrap();
    samples
        .iter()
        .map(|sample| sample["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_function_is_shown_the_turns_and_gives_a_number_or_one_for_each_id() {
    let found = given(|body| {
        let first = &body["samples"][0];
        let expected = [
            ("task", json!("task of g")),
            ("step", json!(0)),
            ("outcome", json!(1.0)),
            ("reward", json!(1.25)),
            ("ids", json!(2)),
            ("logprobs", json!([-1.0, -1.0])),
            ("attempt", json!(0)),
            ("reply", json!("x")),
        ];
        for (field, value) in expected {
            assert_eq!(first[field], value, "{field}");
        }
        let ids = ids(body);
        json!({"advantages": {&ids[0]: [0.5, -0.5], &ids[1]: -1}}).to_string()
    });
    let found: Vec<StepAdvantage> = found.await.unwrap().into_values().collect();
    let by_id = StepAdvantage::ById(Arc::from([0.5, -0.5]));
    assert_eq!(found, [by_id, StepAdvantage::One(-1.0)]);
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_is_refused_in_words() {
    let cases: [(Answer, &str); 6] = [
        (|_| "no".to_owned(), "the answer is not {\"advantages\""),
        (
            |_| "{\"advantages\": {}}".to_owned(),
            "has no advantage for sample 10300-0",
        ),
        (
            |body| json!({"advantages": {&ids(body)[0]: 5.5, &ids(body)[1]: 0}}).to_string(),
            "the advantage 5.5 of sample 10300-0 is not allowed: -5 to 5",
        ),
        (
            |body| json!({"advantages": {&ids(body)[0]: [1.0], &ids(body)[1]: 0}}).to_string(),
            "sample 10300-0 has 2 ids, and its list has 1 advantages",
        ),
        (
            |body| {
                json!({"advantages": {&ids(body)[0]: 0, &ids(body)[1]: 0, "9.9": 1}}).to_string()
            },
            "has an advantage for \"9.9\", which is no sample",
        ),
        (
            // Python writes what is no number so.
            |body| format!("{{\"advantages\": {{\"{}\": NaN}}}}", ids(body)[0]),
            "the answer is not",
        ),
    ];
    for (answer, said) in cases {
        let error = given(answer).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
