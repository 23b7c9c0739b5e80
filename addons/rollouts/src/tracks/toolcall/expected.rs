//! The calls and the answer that a task expects, and the score of what the model did.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::schema::is_same;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Expectation {
    /// The calls; an empty list if the model has to call nothing. If none, calls are not checked.
    calls: Option<Vec<ExpectedCall>>,
    order: CallOrder,
    /// Whether other calls are allowed too. The calls of the tool `python` always are.
    extra: bool,
    /// A number that is the last one of the final reply, or a text that it contains.
    answer: Option<Value>,
    /// Whether a part of the expected calls earns a part of the score.
    partial: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedCall {
    name: String,
    /// A value, or `{"one_of": [..]}`. An argument that is `null` here may be missing. Arguments that do not stand here
    /// are not allowed.
    #[serde(default)]
    arguments: Map<String, Value>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CallOrder {
    #[default]
    Any,
    Strict,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct MadeCall {
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
}

// === impl Expectation ===

impl Expectation {
    /// Checks that something is expected.
    ///
    /// # Errors
    /// Says in words what is missing or wrong.
    pub(super) fn validate(&self) -> Result<(), String> {
        match &self.answer {
            None if self.calls.is_none() => {
                Err("expect needs calls, an answer, or both".to_owned())
            }
            None | Some(Value::Number(_)) => Ok(()),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(()),
            Some(other) => Err(format!(
                "expect.answer {other} is not allowed: a number or a text"
            )),
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().flatten().map(|it| &*it.name)
    }

    /// Returns the score from 0 to 1. `n_invalid` calls had no known tool or no valid arguments.
    pub(super) fn score(&self, made: &[MadeCall], n_invalid: usize, answer: &str) -> f64 {
        let calls = self.calls.as_deref();
        let score = calls.map_or(1.0, |calls| self.fraction(calls, made, n_invalid));
        let counts = self.answers(answer) && (self.partial || score >= 1.0);
        if counts { score } else { 0.0 }
    }

    /// Returns the expected calls that were made, as a part of all expected, or of all that were made if those are more.
    fn fraction(&self, calls: &[ExpectedCall], made: &[MadeCall], n_invalid: usize) -> f64 {
        let matched = match self.order {
            CallOrder::Any => matched_in_any_order(calls, made),
            CallOrder::Strict => matched_in_order(calls, made),
        };
        let n_others = if self.extra {
            0
        } else {
            made.len() + n_invalid
        };
        match calls.len().max(n_others) {
            0 => 1.0,
            n => matched as f64 / n as f64,
        }
    }

    fn answers(&self, answer: &str) -> bool {
        match &self.answer {
            Some(Value::Number(number)) => {
                let numbers = last_number(answer).zip(number.as_f64());
                numbers.is_some_and(|(given, expected)| {
                    (given - expected).abs() <= 1e-6 * expected.abs().max(1.0)
                })
            }
            Some(Value::String(text)) => contains_words(answer, text),
            _ => true,
        }
    }
}

// === impl ExpectedCall ===

impl ExpectedCall {
    fn is(&self, made: &MadeCall) -> bool {
        let accepts = |(name, value): (&String, &Value)| match self.arguments.get(name) {
            Some(expected) => alternatives(expected).iter().any(|it| is_same(it, value)),
            None => false,
        };
        let may_miss = |(name, expected): (&String, &Value)| {
            made.arguments.contains_key(name) || alternatives(expected).contains(&Value::Null)
        };
        self.name == made.name
            && made.arguments.iter().all(accepts)
            && self.arguments.iter().all(may_miss)
    }
}

// === functions ===

fn alternatives(expected: &Value) -> &[Value] {
    match expected.get("one_of").and_then(Value::as_array) {
        Some(list) => list,
        None => std::slice::from_ref(expected),
    }
}

/// Pairs calls greedily: the most particular of several that fit should stand first.
fn matched_in_any_order(calls: &[ExpectedCall], made: &[MadeCall]) -> usize {
    let mut rest: Vec<&MadeCall> = made.iter().collect();
    let mut matched = 0;
    for call in calls {
        if let Some(place) = rest.iter().position(|it| call.is(it)) {
            rest.remove(place);
            matched += 1;
        }
    }
    matched
}

/// Counts the expected calls that follow each other in what was made. Other calls may stand between them.
fn matched_in_order(calls: &[ExpectedCall], made: &[MadeCall]) -> usize {
    let mut rest = made.iter();
    let is_made = |call: &&ExpectedCall| rest.any(|made| call.is(made));
    calls.iter().take_while(is_made).count()
}

/// Returns the last number of a text. Commas between digits are passed over: 1,250 is 1250.
fn last_number(text: &str) -> Option<f64> {
    let mut last = None;
    let is_part = |it: char| it.is_ascii_digit() || matches!(it, '.' | ',' | '-');
    for piece in text.split(|it| !is_part(it)) {
        let piece = piece.trim_matches([',', '.']).replace(',', "");
        let piece = piece.trim_end_matches('-');
        let start = piece.rfind('-').unwrap_or_default();
        last = piece[start..].parse().ok().or(last);
    }
    last
}

/// Returns whether words stand in a text, whatever their case, and not as a part of longer words.
fn contains_words(text: &str, words: &str) -> bool {
    let (text, words) = (text.to_lowercase(), words.trim().to_lowercase());
    let is_edge = |it: Option<char>| !it.is_some_and(char::is_alphanumeric);
    text.match_indices(&words).any(|(place, found)| {
        is_edge(text[..place].chars().next_back())
            && is_edge(text[place + found.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Expectation, MadeCall, contains_words, last_number};

    fn expectation(json: Value) -> Expectation {
        let read: Expectation = serde_json::from_value(json).unwrap();
        read.validate().unwrap();
        read
    }

    fn made(calls: &[(&str, Value)]) -> Vec<MadeCall> {
        let made = calls.iter().map(|(name, arguments)| MadeCall {
            name: (*name).to_owned(),
            arguments: arguments.as_object().unwrap().clone(),
        });
        made.collect()
    }

    #[track_caller]
    fn assert_score(expected: f64, json: Value, calls: &[(&str, Value)], answer: &str) {
        let score = expectation(json).score(&made(calls), 0, answer);
        assert!((score - expected).abs() < 1e-9, "{score}");
    }

    #[test]
    fn arguments_are_compared_as_json_with_alternatives_and_optional_ones() {
        let expect = || {
            let call =
                json!({ "name": "a", "arguments": { "n": 5, "u": { "one_of": ["C", null] } } });
            json!({ "calls": [call] })
        };
        assert_score(1.0, expect(), &[("a", json!({ "n": 5.0, "u": "C" }))], "");
        assert_score(1.0, expect(), &[("a", json!({ "n": 5 }))], "");
        for wrong in [
            json!({ "n": 5, "u": "F" }),
            json!({ "u": "C" }),
            json!({ "n": 5, "x": 1 }),
        ] {
            assert_score(0.0, expect(), &[("a", wrong)], "");
        }
        assert_score(0.0, expect(), &[("b", json!({ "n": 5 }))], "");
        assert_score(0.0, expect(), &[], "");
    }

    #[test]
    fn order_and_other_calls_count_where_the_task_says_so() {
        let calls = || json!([{ "name": "a" }, { "name": "b" }]);
        let (a, b, c) = (("a", json!({})), ("b", json!({})), ("c", json!({})));
        let turned = [b.clone(), a.clone()];
        assert_score(1.0, json!({ "calls": calls() }), &turned, "");
        assert_score(
            0.0,
            json!({ "calls": calls(), "order": "strict" }),
            &turned,
            "",
        );
        assert_score(
            0.5,
            json!({ "calls": calls(), "order": "strict", "partial": true }),
            &turned,
            "",
        );
        let more = [a, c, b];
        assert_score(0.0, json!({ "calls": calls() }), &more, "");
        assert_score(
            2.0 / 3.0,
            json!({ "calls": calls(), "partial": true }),
            &more,
            "",
        );
        assert_score(
            1.0,
            json!({ "calls": calls(), "extra": true, "order": "strict" }),
            &more,
            "",
        );
        assert_score(1.0, json!({ "calls": [] }), &[], "");
        assert_score(0.0, json!({ "calls": [] }), &more, "");
    }

    #[test]
    fn a_call_that_no_schema_allows_counts_as_one_too_many() {
        let expect = expectation(json!({ "calls": [{ "name": "a" }] }));
        assert!(expect.score(&made(&[("a", json!({}))]), 1, "") < 1.0);
    }

    #[test]
    fn an_answer_is_a_last_number_or_words() {
        assert_score(
            1.0,
            json!({ "answer": 1250 }),
            &[],
            "First 3, then \\boxed{1,250}.",
        );
        assert_score(0.0, json!({ "answer": 1250 }), &[], "1250 or 7");
        assert_score(1.0, json!({ "answer": "Rome" }), &[], "It is ROME.");
        assert_score(0.0, json!({ "answer": "Rome" }), &[], "Jerome");
        for (text, number) in [
            ("-4", Some(-4.0)),
            ("2026-11-26", Some(-26.0)),
            ("3.50 Euro.", Some(3.5)),
            ("none", None),
        ] {
            assert_eq!(last_number(text), number, "{text}");
        }
        assert!(contains_words("naïve Über uns", "über"));
    }

    #[test]
    fn an_expectation_of_nothing_is_refused() {
        for wrong in [json!({}), json!({ "answer": [] }), json!({ "answer": " " })] {
            let read: Expectation = serde_json::from_value(wrong).unwrap();
            assert!(read.validate().is_err());
        }
    }
}
