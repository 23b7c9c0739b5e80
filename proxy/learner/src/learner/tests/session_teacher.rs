//! Tests of `rl.teacher: session`: the session's own accepted reply is the target, for comparison.

use serde_json::json;

use super::{teaching::with_wish, *};

const RUIN: &str = "Hello there, friend.";

fn by_session() -> LearnerConfig {
    config(&json!({"rl": {"teacher": "session"}, "gate": {"enabled": false}}))
}

/// The session has a long answer, a greeting, and thanks.
fn greeted(number: u32) -> Vec<Said> {
    let mut talk = corrected_talk(number);
    RUIN.clone_into(&mut talk[1].reply);
    talk
}

impl Rig {
    async fn not_taught(&self) -> Vec<(String, u64)> {
        let spent = self.log.funnel(None).await.unwrap().spent.into_iter();
        spent
            .filter(|(why, _)| !why.starts_with("accepted"))
            .collect()
    }
}

#[tokio::test]
async fn what_was_accepted_is_taught_though_it_says_nothing_and_wishes_stay_in_the_prompt() {
    let (dir, world) = (folder(), World::default());
    let library = Some(with_wish(dir.path()));
    let log = dir.path().join("log");
    let rig = Rig::start_with(&log, &world, by_session(), library).await;
    for number in [1, 2] {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &greeted(number)).await;
    }
    assert!(rig.trained(2).await);
    let taught: Vec<String> = world.taught().into_iter().map(|it| it.1).collect();
    assert_eq!(taught, [RUIN, RUIN]);
    assert_eq!(
        world.passes(),
        [[10, 20]],
        "what was accepted is left alone"
    );
    assert!(world.events().iter().all(|it| !it.starts_with("draws")));
    rig.stop().await;
}

#[tokio::test]
async fn it_waits_for_what_its_session_comes_to() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, by_session()).await;
    for number in [1, 2] {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &greeted(number)[..2]).await;
    }
    let wait = async || {
        let status = rig.learner.status().await.unwrap();
        status.agents.first().is_some_and(|it| it.n_unanswered == 2)
    };
    rig.until("two turns wait", wait).await;
    assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
    assert_eq!(rig.not_taught().await, []);
    for number in [1, 2] {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &greeted(number)).await;
    }
    assert!(rig.trained(2).await);
    rig.stop().await;
}

#[tokio::test]
async fn a_session_that_comes_to_nothing_teaches_nothing() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, by_session()).await;
    let long = "word ".repeat(60);
    for number in [1, 2] {
        let talk = [
            said(&format!("question {number}"), &long, 10 * number),
            said("Too long.", &long, 10 * number + 1),
            said("Hm.", "Yes.", 10 * number + 2),
        ];
        append(&rig.log, &world, &format!("s{number}"), &talk).await;
    }
    let expected = [
        (
            "failed, and its session came to no reply that was accepted".to_owned(),
            2,
        ),
        ("no rule fits".to_owned(), 2),
    ];
    let are_spent = async || rig.not_taught().await == expected;
    rig.until("both turns are set aside", are_spent).await;
    assert!(world.passes().is_empty());
    rig.stop().await;
}
