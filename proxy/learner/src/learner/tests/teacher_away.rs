//! Tests with a teacher that cannot be reached: which turns wait, and which are left out.

use serde_json::json;

use super::*;

#[tokio::test]
async fn while_the_teacher_is_away_turns_wait() {
    let (dir, world) = (folder(), World::default());
    world.fail_text(Some(Failure::Unreachable));
    let rig = Rig::start(dir.path(), &world, again(1)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    let waits = async || {
        let status = rig.learner.status().await.unwrap();
        let phase = matches!(status.phase, Phase::WaitingForTrainer { .. });
        (phase, status.agents.first().map(|it| it.n_unanswered))
    };
    let is_waiting = async || waits().await == (true, Some(2));
    rig.until("two turns wait for the teacher", is_waiting)
        .await;
    assert_eq!(rig.spent(0).await, []);
    world.fail_text(None);
    assert!(rig.trained(2).await);
    rig.stop().await;
}

/// Creates two failed turns, and a learner that lets the teacher answer them when a step is asked for.
async fn two_failed(dir: &Path, world: &World) -> Rig {
    let auto = config(&json!({"mode": "auto"}));
    let rig = Rig::start(dir, world, auto).await;
    append(&rig.log, world, "a", &corrected_talk(1)).await;
    append(&rig.log, world, "b", &corrected_talk(2)).await;
    rig.judged(4).await;
    rig
}

/// Before this test, a wrong key, an unknown route or three failures in a row excluded one turn after another from
/// redo.
#[tokio::test]
async fn a_server_that_has_no_turn_answered_spends_none() {
    let failures = [
        (401, Some("invalid_api_key")),
        (403, None),
        (404, None),
        (404, Some("model_not_found")),
        // The server reports for each prompt that it has no chat template.
        (400, None),
        (429, Some("queue_full")),
        (500, None),
        (500, Some("weights_not_finite")),
        (503, Some("no_model")),
    ];
    let failures = failures.map(|(status, code)| Failure::Answers(status, code));
    for failure in failures.into_iter().chain([Failure::LostBefore]) {
        println!("{failure:?}");
        let (dir, world) = (folder(), World::default());
        world.fail_text(Some(failure));
        let rig = two_failed(dir.path(), &world).await;
        for _ in 0..5 {
            let asked = rig.learner.train_now(None).await;
            assert!(
                matches!(asked, Err(TrainError::NoTeacher { .. })),
                "{asked:?}"
            );
        }
        assert_eq!(rig.spent(0).await, []);
        let status = rig.learner.status().await.unwrap();
        assert!(status.agents[0].not_taught.is_empty(), "{status:#?}");
        world.fail_text(None);
        let reports = rig.learner.train_now(None).await.unwrap();
        assert_eq!(reports[0].n_redo, 2);
        rig.stop().await;
    }
}

#[tokio::test]
async fn that_the_teacher_cannot_be_asked_is_shown() {
    let (dir, world) = (folder(), World::default());
    world.fail_text(Some(Failure::Answers(401, None)));
    let rig = Rig::start(dir.path(), &world, again(1)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    let is_shown = async || {
        let phase = rig.learner.status().await.unwrap().phase;
        matches!(phase, Phase::WaitingForTrainer { why } if why.starts_with("the teacher cannot be asked: tokenize: 401"))
    };
    rig.until("the phase", is_shown).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_turn_that_alone_cannot_be_asked_is_left_out() {
    let refused = "the teacher cannot be asked it";
    let fails = "the training server fails at asking the teacher";
    let cases = [
        (Failure::Refused, refused),
        (Failure::Answers(422, None), refused),
        (Failure::Answers(503, Some("kv_budget_exceeded")), refused),
        (Failure::Answers(401, None), fails),
        (Failure::Answers(500, None), fails),
        (Failure::LostBefore, fails),
    ];
    for (failure, why) in cases {
        println!("{failure:?}");
        let (dir, world) = (folder(), World::default());
        world.fail_text_with("question 1", failure);
        let rig = two_failed(dir.path(), &world).await;
        let mut reports = rig.learner.train_now(None).await;
        while reports.is_err() {
            reports = rig.learner.train_now(None).await;
        }
        assert_eq!(rig.spent(1).await, [(why.to_owned(), 1)]);
        let reports = reports.unwrap();
        assert_eq!(reports.iter().map(|it| it.n_redo).sum::<usize>(), 1);
        assert!(world.taught()[0].0.ends_with("question 2"));
        rig.stop().await;
    }
}

/// The prompt is too large whatever the server's state, so it would be too large the next time.
#[tokio::test]
async fn a_prompt_that_is_too_large_is_left_out_at_once() {
    for code in ["context_length_exceeded", "body_too_large"] {
        let (dir, world) = (folder(), World::default());
        world.fail_text(Some(Failure::Answers(400, Some(code))));
        let rig = two_failed(dir.path(), &world).await;
        assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
        let why = "the teacher cannot be asked it".to_owned();
        assert_eq!(rig.spent(2).await, [(why, 2)]);
        rig.stop().await;
    }
}

/// The remaining turns are trained on.
#[tokio::test]
async fn without_a_teacher_steps_of_verdicts_go_on() {
    let (dir, world) = (folder(), World::default());
    world.fail_text(Some(Failure::Answers(404, None)));
    let both = config(&json!({"rl": {"method": "redo+binary_rl"}, "gate": {"enabled": false}}));
    let rig = Rig::start(dir.path(), &world, both).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    assert!(rig.trained(2).await);
    let status = rig.learner.status().await.unwrap();
    assert_eq!(status.agents[0].n_unanswered, 2, "{status:#?}");
    rig.stop().await;
}
