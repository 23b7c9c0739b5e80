//! A larger model that is asked what it makes of the samples of a step.

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::*;
use crate::judge::{Post, PostFailed};

/// A server whose answers a test can change.
#[derive(Debug, Default)]
struct Server {
    n_asked: Mutex<usize>,
    is_away: Mutex<bool>,
    /// The first id of a prompt at which it fails.
    fails_at: Mutex<Option<u64>>,
}

impl Post for Server {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        *self.n_asked.lock().unwrap() += 1;
        let ids = body["prompt"].as_array().unwrap();
        let fails = *self.fails_at.lock().unwrap();
        let fails = ids.len() > 4 && fails.is_some() && ids[0].as_u64() == fails;
        let was_asked = !*self.is_away.lock().unwrap();
        let answer = if fails || !was_asked {
            let why = "no".to_owned();
            Err(PostFailed { why, was_asked })
        } else {
            let logprobs = vec![-1.0; ids.len()];
            let logprobs = json!({"token_logprobs": logprobs});
            Ok(json!({"choices": [{"logprobs": logprobs}]}).to_string())
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Two talks of a failed and an accepted turn each, and a learner that trains when it is asked to.
async fn rig(dir: &Path, world: &World, server: &Arc<Server>, method: &str) -> Rig {
    let method = json!({"mode": "auto", "rl": {"method": method, "batch_size": 4}});
    let config = config(&method);
    let judge = Judge::Rules(Rules::compile(&config.judge.rules).unwrap());
    let post: Arc<dyn Post> = Arc::clone(server) as _;
    let teacher = ExternalTeacher::new(post, "large".to_owned(), 1.0);
    let rig = Rig::start_scored(dir, world, config, None, judge, Some(teacher)).await;
    append(&rig.log, world, "a", &corrected_talk(1)).await;
    append(&rig.log, world, "b", &corrected_talk(2)).await;
    rig.judged(4).await;
    rig
}

#[tokio::test]
async fn turns_wait_while_it_is_away_and_are_asked_about_once() {
    let (dir, world, server) = (folder(), World::default(), Arc::new(Server::default()));
    *server.is_away.lock().unwrap() = true;
    let rig = rig(dir.path(), &world, &server, "binary_rl").await;
    let asked = rig.learner.train_now(None).await;
    let Err(TrainError::NoTeacher { why }) = &asked else {
        panic!("{asked:?}")
    };
    assert_eq!(why, "no");
    assert_eq!(rig.n(StateKind::Trained).await, 0);
    assert_eq!(rig.spent(0).await, [], "no turn is lost");
    *server.is_away.lock().unwrap() = false;
    *server.n_asked.lock().unwrap() = 0;
    let reports = rig.learner.train_now(None).await.unwrap();
    assert_eq!(reports.len(), 1);
    assert_eq!(world.passes()[0].len(), 4);
    assert_eq!(*server.n_asked.lock().unwrap(), 4);
    rig.stop().await;
}

#[tokio::test]
async fn a_turn_that_it_cannot_score_is_set_aside_alone() {
    let (dir, world, server) = (folder(), World::default(), Arc::new(Server::default()));
    *server.fails_at.lock().unwrap() = Some(10);
    let rig = rig(dir.path(), &world, &server, "binary_rl").await;
    rig.learner.train_now(None).await.unwrap();
    let mut marks = world.passes()[0].clone();
    marks.sort_unstable();
    assert_eq!(marks, [11, 20, 21]);
    let why = "the external teacher (opd.teacher_url) cannot score it".to_owned();
    assert_eq!(rig.spent(1).await, [(why, 1)]);
    rig.stop().await;
}

/// As in a replay with other settings.
#[tokio::test]
async fn a_method_without_advantages_asks_nobody() {
    for method in ["redo", "opd", "hybrid"] {
        let (dir, world, server) = (folder(), World::default(), Arc::new(Server::default()));
        let rig = rig(dir.path(), &world, &server, method).await;
        let reports = rig.learner.train_now(None).await.unwrap();
        assert_eq!(reports.len(), 1, "{method}");
        assert_eq!(*server.n_asked.lock().unwrap(), 0, "{method}");
        rig.stop().await;
    }
}
