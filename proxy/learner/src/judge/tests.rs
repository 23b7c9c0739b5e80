use std::sync::Mutex;

use metaclaw_chat::Score;

use super::*;

/// Answers from a list, then fails.
#[derive(Debug, Default)]
struct Scripted {
    answers: Mutex<Vec<&'static str>>,
    n_asked: Mutex<usize>,
}

impl Ask for Scripted {
    fn ask<'a>(&'a self, _: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        Box::pin(async {
            *self.n_asked.lock().unwrap() += 1;
            let mut answers = self.answers.lock().unwrap();
            if answers.is_empty() {
                return Err(AskFailed {
                    why: "down".to_owned(),
                });
            }
            Ok(answers.remove(0).to_owned())
        })
    }
}

/// The judgement after these answers, and how many were asked for.
async fn judged(
    answers: &[&'static str],
    rules: &str,
) -> (Result<Result<Score, NoVerdict>, AskFailed>, usize) {
    judged_for(Price::Majority, answers, rules).await
}

async fn judged_for(
    price: Price,
    answers: &[&'static str],
    rules: &str,
) -> (Result<Result<Score, NoVerdict>, AskFailed>, usize) {
    let model = Arc::new(Scripted {
        answers: Mutex::new(answers.to_vec()),
        ..Scripted::default()
    });
    let rules: Vec<metaclaw_reward::Rule> = serde_json::from_str(rules).unwrap();
    let judge = Judge::Model {
        rules: Rules::compile(&rules).unwrap(),
        model: model.clone(),
        votes: 3,
    };
    let evidence = Evidence::new(
        &[Message::user("q")],
        Message::assistant("a"),
        &[Message::user("Thanks.")],
    );
    let verdict = judge.verdict(&evidence, price).await;
    let n_asked = *model.n_asked.lock().unwrap();
    (
        verdict.map(|verdict| verdict.map(|verdict| verdict.score)),
        n_asked,
    )
}

#[tokio::test]
async fn asking_stops_when_the_votes_have_decided() {
    let (good, bad, none) = ("verdict: +1", "verdict: -1", "no idea");
    assert_eq!(judged(&[good, good], "[]").await, (Ok(Ok(Score::Good)), 2));
    assert_eq!(
        judged(&[good, bad, bad], "[]").await,
        (Ok(Ok(Score::Bad)), 3)
    );
    assert_eq!(
        judged(&[none, none, none], "[]").await,
        (Ok(Err(NoVerdict::NoVote)), 3)
    );
}

#[tokio::test]
async fn a_rule_that_fits_asks_nobody() {
    let rules = r#"[{"on":"next","pattern":"thanks","score":1}]"#;
    assert_eq!(judged(&[], rules).await, (Ok(Ok(Score::Good)), 0));
}

#[tokio::test]
async fn a_judge_that_is_down_is_no_verdict() {
    let (result, _) = judged(&["verdict: +1"], "[]").await;
    assert_eq!(result.unwrap_err().why, "down");
}

#[tokio::test]
async fn no_more_is_asked_than_the_verdict_is_worth() {
    let judged = async |price| judged_for(price, &["verdict: -1"; 3], "[]").await;
    assert_eq!(
        judged(Price::Nothing).await,
        (Ok(Err(NoVerdict::NotAsked)), 0)
    );
    assert_eq!(judged(Price::OneVote).await, (Ok(Ok(Score::Bad)), 1));
    assert_eq!(judged(Price::Majority).await, (Ok(Ok(Score::Bad)), 2));
}
