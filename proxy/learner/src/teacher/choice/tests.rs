use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use metaclaw_chat::Message;
use metaclaw_reward::{Policy, Rules};
use serde_json::json;

use super::*;
use crate::judge::Ask;

fn candidate(text: &str, relevance: f64) -> TeacherReply {
    TeacherReply {
        ids: text.bytes().map(u32::from).collect(),
        text: text.to_owned(),
        is_call: false,
        relevance,
        is_teachers: true,
    }
}

fn answers(candidates: Vec<TeacherReply>) -> TeacherAnswers {
    TeacherAnswers {
        prompt: vec![1],
        told: vec![1, 2],
        asked: "Be brief.".to_owned(),
        candidates,
    }
}

fn rules(rules: serde_json::Value) -> Rules {
    Rules::compile(&serde_json::from_value::<Vec<_>>(rules).unwrap()).unwrap()
}

fn brief() -> Judge {
    Judge::Rules(rules(json!([{"on": "reply", "max_words": 4, "score": 1}])))
}

async fn chosen(judge: &Judge, of: &TeacherAnswers, least: f64) -> Result<Vec<String>, NoChoice> {
    let asked = Message::user("Where?");
    let turn = crate::testing::judged_turn(vec![asked]);
    let chosen = choose(judge, &turn, of, least).await.unwrap();
    chosen.map(|all| all.iter().map(|reply| reply.text.clone()).collect())
}

#[tokio::test]
async fn those_that_are_relevant_and_obey_are_taught() {
    let of = answers(vec![
        candidate("It is a city.", 0.3),
        candidate("It is of course the city of Paris.", 1.5),
        candidate("It is Paris.", 0.5),
        candidate("Paris it is.", 0.9),
    ]);
    let obedient = ["It is Paris.", "Paris it is."];
    assert_eq!(chosen(&brief(), &of, 0.4).await.unwrap(), obedient);
    let nobody = Judge::nobody();
    let relevant = chosen(&nobody, &of, 0.4).await.unwrap();
    assert_eq!(relevant[0], "It is of course the city of Paris.");
    assert_eq!(relevant[1..], obedient);
}

#[tokio::test]
async fn what_was_drawn_twice_is_taught_once() {
    let mut of = answers(vec![candidate("It is Paris.", 0.5); 3]);
    of.candidates[2].ids = vec![2];
    assert_eq!(chosen(&brief(), &of, 0.4).await.unwrap().len(), 2);
}

#[tokio::test]
async fn obeying_alone_is_not_enough() {
    let of = answers(vec![
        candidate("I am a chatbot.", 0.05),
        candidate("Paris is where it is, in the north of France.", 1.5),
    ]);
    assert_eq!(chosen(&brief(), &of, 0.8).await, Err(NoChoice::Irrelevant));
    let none = f64::NEG_INFINITY;
    let chosen = chosen(&brief(), &of, none).await.unwrap();
    assert_eq!(chosen, ["I am a chatbot."]);
}

/// Before this test, a client that allowed few tokens was told that no reply did what was wished.
#[tokio::test]
async fn what_could_not_be_taught_anyhow_does_not_disobey() {
    let none = answers(Vec::new());
    let not_usable = Err(NoChoice::Unusable);
    assert_eq!(chosen(&brief(), &none, 0.4).await, not_usable);
    let long = "It is of course the city of Paris.";
    let mut of = answers(vec![candidate(long, 1.5)]);
    assert_eq!(chosen(&brief(), &of, 0.4).await, Err(NoChoice::Disobeyed));
    of.candidates[0].is_teachers = false;
    assert_eq!(
        chosen(&brief(), &of, 0.4).await,
        not_usable,
        "the session's own"
    );
}

/// A judge that accepts replies with this word.
#[derive(Debug)]
struct Model(&'static str, Mutex<Vec<String>>);

impl Ask for Model {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        let asked = messages[1].text().into_owned();
        let vote = if asked.contains(self.0) { "+1" } else { "-1" };
        self.1.lock().unwrap().push(asked);
        Box::pin(async move { Ok(format!("verdict: {vote}")) })
    }
}

#[tokio::test]
async fn where_no_rule_decides_the_judge_model_is_asked_about_relevant_ones() {
    let model = Arc::new(Model("Lyon", Mutex::default()));
    let judge = Judge::Model {
        rules: rules(json!([{"on": "reply", "pattern": "rome", "score": -1}])),
        model: Arc::<Model>::clone(&model),
        others: Vec::new(),
        votes: 3,
        consensus: 0.0,
        policy: Policy::default(),
        is_base: false,
    };
    let of = answers(vec![
        candidate("It is Rome.", 2.0),
        candidate("It is Paris.", 1.5),
        candidate("It is Lyon.", 1.0),
        candidate("Lyon, or not.", 0.1),
    ]);
    assert_eq!(chosen(&judge, &of, 0.5).await.unwrap(), ["It is Lyon."]);
    let asked = model.1.lock().unwrap();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[0].contains("Be brief.") && asked[0].contains("Where?"));
}

/// Rules that praise short replies, and a mean of relevance that only text reaches, say nothing about calls.
#[tokio::test]
async fn a_call_is_not_held_to_what_is_asked_of_words() {
    let call = |relevance| TeacherReply {
        is_call: true,
        ..candidate(
            r#"<tool_call>{"name": "ls", "arguments": {}}</tool_call>"#,
            relevance,
        )
    };
    let praised = Judge::Rules(rules(json!([
        {"on": "reply", "pattern": "^It is", "score": 1},
    ])));
    let of = answers(vec![call(0.05), candidate("It is Paris.", 0.2)]);
    let found = chosen(&praised, &of, 0.4).await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("<tool_call>"), "{found:?}");
    let of = answers(vec![call(-0.05)]);
    assert_eq!(chosen(&praised, &of, 0.4).await, Err(NoChoice::Irrelevant));
}
