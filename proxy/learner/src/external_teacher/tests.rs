use std::sync::Mutex;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::*;

#[derive(Debug)]
struct Fixed {
    asked: Mutex<Vec<Value>>,
    answer: fn(&Value) -> Result<String, PostFailed>,
}

impl Post for Fixed {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        self.asked.lock().unwrap().push(body.clone());
        Box::pin(async move { (self.answer)(body) })
    }
}

fn teacher(
    coef: f32,
    answer: fn(&Value) -> Result<String, PostFailed>,
) -> (ExternalTeacher, Arc<Fixed>) {
    let asked = Mutex::default();
    let fixed = Arc::new(Fixed { asked, answer });
    let post: Arc<dyn Post> = Arc::clone(&fixed) as _;
    (ExternalTeacher::new(post, "large".into(), coef), fixed)
}

fn tokens() -> Tokens {
    Tokens {
        prompt_ids: vec![1, 2, 3],
        ids: vec![7, 8],
        logprobs: vec![-0.5, -2.0],
        sampling_logprobs: vec![-0.1, -0.9],
        ..Tokens::default()
    }
}

fn completion(logprobs: &Value, tokens: &Value) -> String {
    let logprobs = json!({"token_logprobs": logprobs, "tokens": tokens});
    json!({"choices": [{"text": "", "logprobs": logprobs}]}).to_string()
}

fn refused(why: &str, was_asked: bool) -> Result<String, PostFailed> {
    let why = why.to_owned();
    Err(PostFailed { why, was_asked })
}

/// As in MetaClaw's Python original, each id's advantage is how much more probable the teacher finds it than the policy
/// did, at T = 1.
#[tokio::test]
async fn what_the_teacher_finds_likelier_is_pushed_up() {
    let (teacher, asked) = teacher(0.5, |_| {
        let logprobs = json!([null, -1.0, -1.0, -1.5, -1.0]);
        let tokens = json!(["<s>", "Say", " it", "Ġgood", "Ċday."]);
        Ok(completion(&logprobs, &tokens))
    });
    let pulls = teacher.pulls(&tokens(), "good\nday.").await.unwrap();
    assert_eq!(*pulls, [-0.5, 0.5]);
    let asked = asked.asked.lock().unwrap();
    let [body] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!(body["prompt"], json!([1, 2, 3, 7, 8]));
    assert_eq!(
        (&body["echo"], &body["max_tokens"], &body["logprobs"]),
        (&json!(true), &json!(0), &json!(1))
    );
}

#[tokio::test]
async fn a_teacher_of_another_tokenizer_is_not_believed() {
    let (teacher, _) = teacher(1.0, |_| {
        let logprobs = json!([null, -1.0, -1.0, -1.0, -1.0]);
        let tokens = json!(["the", " an", "x", " quux", "zyg"]);
        Ok(completion(&logprobs, &tokens))
    });
    let failed = teacher.pulls(&tokens(), "Good day.").await.unwrap_err();
    let NotScored::Away(why) = failed else {
        panic!("{failed:?}")
    };
    assert!(why.contains("opd.teacher_model"), "{why}");
}

#[tokio::test]
async fn a_failure_at_one_turn_is_told_from_one_at_all() {
    let (one, _) = teacher(1.0, |body| match body["prompt"].as_array().unwrap().len() {
        5 => refused("too long", true),
        n => Ok(completion(&json!(vec![-1.0; n]), &json!([]))),
    });
    let failed = one.pulls(&tokens(), "Good day.").await.unwrap_err();
    assert_eq!(failed, NotScored::Turn("too long".into()));
    let (all, asked) = teacher(1.0, |_| refused("no such model", true));
    let failed = all.pulls(&tokens(), "Good day.").await.unwrap_err();
    assert_eq!(failed, NotScored::Away("no such model".into()));
    assert_eq!(asked.asked.lock().unwrap().len(), 2);
    let (away, asked) = teacher(1.0, |_| refused("no route", false));
    let failed = away.pulls(&tokens(), "Good day.").await.unwrap_err();
    assert_eq!(failed, NotScored::Away("no route".into()));
    assert_eq!(asked.asked.lock().unwrap().len(), 1, "nobody is there");
}

#[test]
fn an_answer_that_lacks_something_says_what() {
    let of = |answer: &str| scored(answer, 3, 2).unwrap_err();
    assert!(of("<html>").contains("no completion"));
    assert!(of(r#"{"choices": []}"#).contains("logprobs"));
    let short = completion(&json!([null, -1.0]), &json!([]));
    assert!(of(&short).contains("2 log-probabilities of 5 ids"));
    let hole = completion(&json!([null, -1.0, -1.0, null, -1.0]), &json!([]));
    assert!(of(&hole).contains("no number"));
    let more = completion(&json!([null, -1.0, -1.0, -2.0, -3.0, -4.0]), &json!([]));
    let found = scored(&more, 3, 2).unwrap();
    assert_eq!((found.logprobs, found.text), (vec![-2.0, -3.0], None));
}
