//! Tests of a reward function in memory.

use std::collections::VecDeque;

use futures_util::future::{join_all, poll_immediate};
use metaclaw_chat::Score;
use serde_json::json;

use super::*;

/// Answers from a list; then gives each turn the number in it. It yields first, so that other tasks run.
#[derive(Debug)]
struct Function {
    answers: Mutex<VecDeque<Result<&'static str, PostFailed>>>,
    asked: Mutex<Vec<usize>>,
}

impl Function {
    fn new(answers: impl IntoIterator<Item = Result<&'static str, PostFailed>>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            asked: Mutex::default(),
        })
    }

    fn asked(&self) -> Vec<usize> {
        self.asked.lock().unwrap().clone()
    }
}

impl Post for Function {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        let turns = body["turns"].as_array().unwrap().clone();
        self.asked.lock().unwrap().push(turns.len());
        Box::pin(async move {
            tokio::task::yield_now().await;
            let scripted = self.answers.lock().unwrap().pop_front();
            match scripted {
                Some(answer) => answer.map(str::to_owned),
                None if turns.contains(&json!("poison")) => Err(PostFailed {
                    why: "it answered 500".to_owned(),
                    was_asked: true,
                }),
                None => Ok(json!({"scores": turns}).to_string()),
            }
        })
    }
}

async fn graded(function: &Arc<Function>, turns: &[Value]) -> Vec<Graded> {
    let judge = RewardFunction::new(Arc::clone(function) as Arc<dyn Post>);
    let all = turns.iter().map(|turn| judge.grade(turn.clone()));
    join_all(all).await
}

fn scores(graded: &[Graded]) -> Vec<Option<Score>> {
    let score = |graded: &Graded| graded.clone().ok().flatten().map(|grade| grade.score);
    graded.iter().map(score).collect()
}

fn why(graded: &Graded) -> &str {
    graded.as_ref().map_or_else(|failed| &*failed.why, |_| "")
}

#[tokio::test]
async fn what_comes_while_it_is_asked_goes_together() {
    let function = Function::new([]);
    let turns: Vec<Value> = (0..70)
        .map(|n| json!(if n % 2 == 0 { 1 } else { -1 }))
        .collect();
    let graded = graded(&function, &turns).await;
    assert_eq!(function.asked(), [1, 32, 32, 5]);
    let each = [Some(Score::Good), Some(Score::Bad)];
    let expected: Vec<_> = each.into_iter().cycle().take(70).collect();
    assert_eq!(scores(&graded), expected, "each has its own");
}

#[tokio::test]
async fn one_that_it_fails_at_does_not_spoil_the_others() {
    let function = Function::new([]);
    let turns = [json!(1), json!(1), json!("poison"), json!(null), json!(7)];
    let graded = graded(&function, &turns).await;
    // The first turn is sent alone, the others together, then each alone.
    assert_eq!(function.asked(), [1, 4, 1, 1, 1, 1]);
    let good = Some(Score::Good);
    assert_eq!(scores(&graded), [good, good, None, None, None]);
    assert_eq!(why(&graded[2]), "it answered 500");
    assert_eq!(graded[3], Ok(None), "it has no opinion");
    assert!(why(&graded[4]).contains("is 7: a number from -1 to 1, or null"));
}

#[tokio::test]
async fn a_function_that_is_away_is_asked_once_and_gives_no_score() {
    let away = || PostFailed {
        why: "nobody there".to_owned(),
        was_asked: false,
    };
    let function = Function::new([Err(away()), Err(away())]);
    let graded = graded(&function, &[json!(1), json!(1), json!(1)]).await;
    assert_eq!(function.asked(), [1, 2]);
    let is_so = graded.iter().all(|grade| why(grade) == "nobody there");
    assert!(is_so, "{graded:?}");
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_in_words() {
    for (answer, said) in [
        (r#"{"scores": []}"#, "0 entries for 1 turns"),
        (r#"{"scores": [NaN]}"#, "null for NaN"),
        (r#"{"score": 1}"#, "has no list `scores`"),
    ] {
        let function = Function::new([Ok(answer)]);
        let graded = graded(&function, &[json!(1)]).await;
        assert!(why(&graded[0]).contains(said), "{graded:?}");
    }
}

#[tokio::test]
async fn who_gives_up_leaves_nothing_behind() {
    let function = Function::new([]);
    let judge = RewardFunction::new(Arc::clone(&function) as Arc<dyn Post>);
    {
        let mut given_up = Box::pin(judge.grade(json!(1)));
        assert_eq!(poll_immediate(&mut given_up).await, None);
        let mut behind = Box::pin(judge.grade(json!(-1)));
        assert_eq!(poll_immediate(&mut behind).await, None);
        drop(given_up);
        let score = behind.await.unwrap().map(|grade| grade.score);
        assert_eq!(score, Some(Score::Bad));
    }
    assert!(judge.waiting().is_empty());
    assert_eq!(function.asked(), [1, 1]);
}
