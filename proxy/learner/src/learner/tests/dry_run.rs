//! Looking at the next step changes nothing, and the step is what was shown.

use metaclaw_chat::TurnId;

use super::*;
use crate::testing::END;

/// What a talk begins with, and what the teacher says to it.
const QUESTION: &str = "question 0";
const REPLY: &str = "question 0 is answered.";

/// A learner whose turns are judged and wait for a batch that is never full.
async fn waiting(dir: &Path, world: &World, rl: serde_json::Value) -> Rig {
    let config = config(&serde_json::json!({"rl": rl}));
    let rig = Rig::start(dir, world, config).await;
    for n in 0..2 {
        append(&rig.log, world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    let what = "two turns of each talk are judged and have their ids";
    rig.until(what, async || are_ready(&rig, 4).await).await;
    rig
}

/// Whether `n` turns are judged, wait for a step and have their ids.
async fn are_ready(rig: &Rig, n: usize) -> bool {
    let agent = AgentId::default_agent();
    let judged = rig.log.in_state(&agent, StateKind::Judged).await.unwrap();
    for id in &judged {
        let turn = rig.log.get(*id).await.unwrap();
        if turn.is_none_or(|turn| turn.tokens.is_none()) {
            return false;
        }
    }
    let funnel = rig.log.funnel(None).await.unwrap();
    judged.len() == n && funnel.with_ids == funnel.turns
}

/// Has the teacher answer what waits, in a step that the trainer refuses.
async fn answered(rig: &Rig, world: &World) {
    world.set_max_rank(2);
    let refused = rig.learner.train_now(None).await;
    assert!(
        matches!(refused, Err(TrainError::Refused { .. })),
        "{refused:?}"
    );
    world.set_max_rank(u32::MAX);
}

#[tokio::test]
async fn a_dry_run_touches_nothing_and_the_step_is_what_it_said() {
    let (dir, world) = (folder(), World::default());
    let rl =
        serde_json::json!({"method": "redo+binary_rl", "batch_size": 50, "learning_rate": 3e-4});
    let rig = waiting(dir.path(), &world, rl).await;
    let before = rig.log.funnel(None).await.unwrap();
    let shown = rig.learner.dry_run(None).await.unwrap().remove(0);
    assert_eq!(rig.log.funnel(None).await.unwrap(), before);
    assert!(rig.log.steps(&shown.agent).await.unwrap().is_empty());
    assert_eq!((world.n_runs(), world.passes().len()), (0, 0));
    assert!(world.checkpoints().is_empty());
    // What failed waits for the teacher, who is not asked.
    assert_eq!((shown.unanswered.len(), shown.n_turns), (2, 2));
    assert!(shown.samples.iter().all(|it| it.method == "binary_rl"));
    assert!(world.told().is_empty());

    answered(&rig, &world).await;
    let shown = rig.learner.dry_run(None).await.unwrap().remove(0);
    assert_eq!((shown.unanswered.len(), shown.n_turns), (0, 4));
    assert_eq!((shown.n, shown.step, shown.lineage), (1, 1, None));
    assert_eq!((shown.parent, shown.begins_anew), (None, None));
    // The first of three warm-up steps.
    let rate = shown.learning_rate.unwrap();
    assert!((rate - 1e-4).abs() < 1e-9, "{rate}");
    let redo: Vec<_> = shown
        .samples
        .iter()
        .filter(|it| it.method == "context_distillation")
        .collect();
    assert_eq!((redo.len(), redo[0].turns.len()), (2, 1));
    assert_eq!(redo[0].loss, "cross_entropy");
    // Each of two has half of w_redo.
    assert!((redo[0].weight - 0.5).abs() < 1e-6);
    // A mark and the question; the reply and its end.
    let (prompt, reply) = (1 + QUESTION.len(), REPLY.len() + 1);
    assert_eq!(
        (redo[0].n_tokens, redo[0].n_trained),
        (prompt + reply - 1, reply)
    );
    assert!(
        shown
            .samples
            .iter()
            .any(|it| it.method == "binary_rl" && it.weight < 0.0)
    );

    let made = rig.learner.train_now(None).await.unwrap().remove(0);
    assert_eq!((made.n_turns, made.step), (shown.n_turns, shown.step));
    assert_eq!(made.numbers.n_tokens, shown.n_tokens);
    assert!((made.numbers.learning_rate - rate).abs() < 1e-12);
    assert_eq!(made.batch, shown.batch);
    assert!(rig.learner.dry_run(None).await.unwrap().is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn a_dry_run_says_where_it_goes_on() {
    let (dir, world) = (folder(), World::default());
    let rl = serde_json::json!({"method": "redo+binary_rl", "batch_size": 50});
    let rig = waiting(dir.path(), &world, rl).await;
    // By the model's size, which a run tells.
    let first = rig.learner.dry_run(None).await.unwrap().remove(0);
    assert_eq!(first.learning_rate, None);
    let made = rig.learner.train_now(None).await.unwrap().remove(0);
    append(&rig.log, &world, "next", &corrected_talk(7)).await;
    let what = "the new turns are judged and have their ids";
    rig.until(what, async || are_ready(&rig, 2).await).await;
    let shown = rig.learner.dry_run(None).await.unwrap().remove(0);
    assert_eq!(shown.lineage, Some(made.lineage));
    assert_eq!(shown.parent, Some(made.adapter));
    assert_eq!((shown.n, shown.step), (2, 2));
    assert!(shown.learning_rate.is_some());
    rig.stop().await;
}

#[tokio::test]
async fn a_turn_shows_what_a_step_would_use_of_it() {
    let (dir, world) = (folder(), World::default());
    let rl = serde_json::json!({"method": "redo+binary_rl", "batch_size": 50});
    let rig = waiting(dir.path(), &world, rl).await;
    let failed = TurnId { session: 1, seq: 0 };
    let waits = rig.learner.turn_preview(failed).await.unwrap().unwrap();
    assert!(waits.is_unanswered && waits.waits && waits.samples.is_empty());
    answered(&rig, &world).await;
    let failed = rig.learner.turn_preview(failed).await.unwrap().unwrap();
    let methods: Vec<&str> = failed.samples.iter().map(|it| it.method.as_str()).collect();
    assert_eq!(methods, ["context_distillation", "binary_rl"]);
    let [redo, pushed] = &failed.samples[..] else {
        panic!("{failed:?}")
    };
    // What is predicted from the last of the prompt on.
    let masks = |sample: &crate::SamplePreview| -> Vec<u8> {
        sample.tokens.iter().map(|it| it.mask).collect()
    };
    let expected = |reply: usize| [vec![0; QUESTION.len()], vec![1; reply + 1]].concat();
    assert_eq!(masks(redo), expected(REPLY.len()));
    assert!(redo.tokens.iter().all(|it| it.logprob.is_none()));
    assert_eq!(masks(pushed), expected("word ".len() * 60));
    let last = pushed.tokens.last().unwrap();
    assert_eq!(
        (last.ids.as_slice(), last.logprob),
        (&[END][..], Some(-0.5))
    );
    assert!(last.advantage[0] < 0.0, "it failed: {last:?}");
    let sum: f32 = pushed.tokens.iter().flat_map(|it| &it.advantage).sum();
    assert!((sum - pushed.weight).abs() < 1e-6);
    // The last turn of a session has no verdict yet.
    let last = TurnId { session: 1, seq: 2 };
    let last = rig.learner.turn_preview(last).await.unwrap().unwrap();
    assert!(last.samples.is_empty() && last.spent.is_none() && !last.waits);
    assert!(!last.is_unanswered);
    let nobody = TurnId {
        session: 99,
        seq: 0,
    };
    assert!(rig.learner.turn_preview(nobody).await.unwrap().is_none());
    rig.stop().await;
}
