use std::sync::Mutex;

use futures_util::future::BoxFuture;

use super::*;
use crate::testing::turn_with;

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
        others: Vec::new(),
        votes: 3,
        consensus: 0.0,
        policy: Policy::NextState,
        is_base: false,
    };
    let (turn, following) = (turn_with("q", "a"), turn_with("Thanks.", "b"));
    let case = Case::followed(&turn, following.evidence()).unwrap();
    let verdict = judge.verdict(&case, price).await;
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
    let found = judged(&[good, bad, bad], "[]").await;
    assert_eq!(found, (Ok(Ok(Score::Bad)), 3));
    let found = judged(&[none, none, none], "[]").await;
    assert_eq!(found, (Ok(Err(NoVerdict::NoVote)), 3));
}

#[tokio::test]
async fn where_a_share_of_the_votes_must_agree_all_are_asked_for() {
    let answers = ["verdict: +1", "verdict: +1", "verdict: -1"];
    for (consensus, expected) in [(0.6, (Score::Good, 2)), (0.7, (Score::Unclear, 3))] {
        let model = Arc::new(Scripted {
            answers: Mutex::new(answers.to_vec()),
            ..Scripted::default()
        });
        let judge = Judge::Model {
            rules: Rules::default(),
            model: model.clone(),
            others: Vec::new(),
            votes: 3,
            consensus,
            policy: Policy::NextState,
            is_base: false,
        };
        let (turn, following) = (turn_with("q", "a"), turn_with("Thanks.", "b"));
        let case = Case::followed(&turn, following.evidence()).unwrap();
        let verdict = judge
            .verdict(&case, Price::Majority)
            .await
            .unwrap()
            .unwrap();
        let n_asked = *model.n_asked.lock().unwrap();
        assert_eq!((verdict.score, n_asked), expected, "{consensus}");
    }
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
    let found = judged(Price::Nothing).await;
    assert_eq!(found, (Ok(Err(NoVerdict::NotAsked)), 0));
    assert_eq!(judged(Price::OneVote).await, (Ok(Ok(Score::Bad)), 1));
    assert_eq!(judged(Price::Majority).await, (Ok(Ok(Score::Bad)), 2));
}

/// Records what it was asked, and gives no vote.
#[derive(Debug, Default)]
struct Listening(Mutex<Vec<String>>);

impl Ask for Listening {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        self.0.lock().unwrap().push(messages[1].text().into_owned());
        let answer = r"[HINT_START]Answer in one word.[HINT_END] \boxed{1}";
        Box::pin(async move { Ok(answer.to_owned()) })
    }
}

fn asked_by(policy: Policy, is_base: bool) -> (Judge, Arc<Listening>) {
    let model = Arc::new(Listening::default());
    let judge = Judge::Model {
        rules: Rules::default(),
        model: model.clone(),
        others: Vec::new(),
        votes: 3,
        consensus: 0.0,
        policy,
        is_base,
    };
    (judge, model)
}

#[tokio::test]
async fn openclaw_rl_asks_for_hints_apart_and_the_base_signs_its_verdicts() {
    let (judge, model) = asked_by(Policy::OpenclawRl, true);
    let (turn, following) = (turn_with("q", "a"), turn_with("Shorter!", "b"));
    let case = Case::followed(&turn, following.evidence()).unwrap();
    let verdict = judge
        .verdict(&case, Price::Majority)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((verdict.score, verdict.by), (Score::Good, JudgedBy::Base));
    assert_eq!(verdict.judge_hints, ["Answer in one word."]);
    // Two of three votes decide, and the hints are asked for in full number.
    assert_eq!(model.0.lock().unwrap().len(), 2 + 3);
    assert!(judge.listener().is_none());
    assert!(asked_by(Policy::NextState, false).0.listener().is_some());
}

#[tokio::test]
async fn a_reply_that_is_only_proposed_is_judged_by_rules_then_by_the_wishes() {
    let (judge, model) = asked_by(Policy::NextState, false);
    let turn = turn_with("Why is the sky blue?", "It was a long reply.");
    let wishes = ["Answer in one sentence.".to_owned()];
    let reply = Message::assistant("Light scatters.");
    let score = judge.of_reply(&turn, &reply, &wishes).await;
    assert_eq!(score, Ok(Some(Score::Good)));
    let asked = model.0.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    for shown in ["Why is the sky blue?", "Light scatters.", &wishes[0]] {
        assert!(asked[0].contains(shown), "{}", asked[0]);
    }
    assert!(!asked[0].contains("long reply"));
    let rules =
        r#"[{"on":"next","max_words":9,"score":1},{"on":"reply","max_words":1,"score":-1}]"#;
    let rules: Vec<metaclaw_reward::Rule> = serde_json::from_str(rules).unwrap();
    let rules = Judge::Rules(Rules::compile(&rules).unwrap());
    let of = async |reply| {
        rules
            .of_reply(&turn, &Message::assistant(reply), &wishes)
            .await
    };
    assert_eq!(of("Scattering").await, Ok(Some(Score::Bad)));
    assert_eq!(of("Light scatters.").await, Ok(None));
}

/// Always answers alike, or never.
#[derive(Debug)]
struct Voter {
    name: &'static str,
    answer: Option<&'static str>,
    n_asked: Mutex<usize>,
}

impl Ask for Voter {
    fn ask<'a>(&'a self, _: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        *self.n_asked.lock().unwrap() += 1;
        let answer = self.answer.map(str::to_owned).ok_or_else(|| AskFailed {
            why: format!("{} is down", self.name),
        });
        Box::pin(async move { answer })
    }

    fn name(&self) -> Option<&str> {
        Some(self.name)
    }
}

const GOOD: Option<&str> = Some("verdict: +1");
const BAD: Option<&str> = Some("verdict: -1");

/// The verdict of three models a, b and c, with the names of those who voted, and how often each was asked.
async fn voted(
    price: Price,
    votes: usize,
    answers: [Option<&'static str>; 3],
) -> (Result<(i8, String), String>, Vec<usize>) {
    let voters: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .zip(answers)
        .map(|(name, answer)| {
            Arc::new(Voter {
                name,
                answer,
                n_asked: Mutex::new(0),
            })
        })
        .collect();
    let judge = Judge::Model {
        rules: Rules::default(),
        model: voters[0].clone(),
        others: vec![voters[1].clone(), voters[2].clone()],
        votes,
        consensus: 0.0,
        policy: Policy::NextState,
        is_base: false,
    };
    let (turn, following) = (turn_with("q", "a"), turn_with("No.", "b"));
    let case = Case::followed(&turn, following.evidence()).unwrap();
    let verdict = judge.verdict(&case, price).await;
    let told = verdict.map_err(|failed| failed.why).map(|verdict| {
        let verdict = verdict.unwrap();
        let names = verdict.votes.iter().filter_map(|v| v.model.as_deref());
        (verdict.score.into(), names.collect())
    });
    let asked = voters.iter().map(|voter| *voter.n_asked.lock().unwrap());
    (told, asked.collect())
}

#[tokio::test]
async fn several_models_vote_in_turn_and_the_majority_of_all_decides() {
    let all = Price::Majority;
    let told = |score, names: &str| Ok((score, names.to_owned()));
    // Two agree: the third one could change nothing.
    let verdict = voted(all, 1, [GOOD, GOOD, BAD]).await;
    assert_eq!(verdict, (told(1, "ab"), vec![1, 1, 0]));
    let verdict = voted(all, 3, [GOOD, BAD, BAD]).await;
    assert_eq!(verdict, (told(-1, "abc"), vec![1, 1, 1]));
    let verdict = voted(all, 5, [GOOD, BAD, BAD]).await;
    assert_eq!(verdict, (told(-1, "abcab"), vec![2, 2, 1]));
    let verdict = voted(Price::OneVote, 3, [BAD, GOOD, GOOD]).await;
    assert_eq!(verdict, (told(-1, "a"), vec![1, 0, 0]));
}

#[tokio::test]
async fn a_model_that_does_not_answer_has_no_vote() {
    let told = |score, names: &str| Ok((score, names.to_owned()));
    let all = Price::Majority;
    let verdict = voted(all, 3, [None, BAD, BAD]).await;
    assert_eq!(verdict, (told(-1, "bc"), vec![1, 1, 1]));
    let verdict = voted(all, 6, [None, BAD, GOOD]).await;
    assert_eq!(verdict, (told(0, "bcbc"), vec![2, 2, 2]));
    let verdict = voted(Price::OneVote, 3, [None, None, GOOD]).await;
    assert_eq!(verdict, (told(1, "c"), vec![1, 1, 1]));
    let (verdict, asked) = voted(all, 3, [None, None, None]).await;
    assert!(verdict.unwrap_err().ends_with("is down"), "the turn waits");
    assert_eq!(asked, [1, 1, 1]);
}
