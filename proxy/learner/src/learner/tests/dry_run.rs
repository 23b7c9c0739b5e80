//! Looking at the next step changes nothing, and the step is what was shown.

use metaclaw_chat::TurnId;

use super::*;

/// A learner whose turns are judged and wait for a batch that is never full.
async fn waiting(dir: &Path, world: &World, rl: serde_json::Value) -> Rig {
    let config = config(&serde_json::json!({"rl": rl}));
    let rig = Rig::start(dir, world, config).await;
    for n in 0..2 {
        append(&rig.log, world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    let judged = async {
        while !is_ready(&rig).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let judged = tokio::time::timeout(Duration::from_secs(60), judged).await;
    judged.expect("both corrections are judged and have their ids");
    rig
}

async fn is_ready(rig: &Rig) -> bool {
    let next = rig.learner.dry_run(None).await.unwrap();
    next.first().is_some_and(|step| step.n_turns == 4)
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

    assert_eq!((shown.n, shown.step, shown.lineage), (1, 1, None));
    assert_eq!((shown.parent, shown.begins_anew), (None, None));
    // The first of three warm-up steps.
    let rate = shown.learning_rate.unwrap();
    assert!((rate - 1e-4).abs() < 1e-9, "{rate}");
    let redo: Vec<_> = shown
        .samples
        .iter()
        .filter(|it| it.method == "redo")
        .collect();
    assert_eq!((redo.len(), redo[0].turns.len()), (2, 2));
    assert_eq!(redo[0].loss, "cross_entropy");
    // Each of two corrections has half of w_redo.
    assert!((redo[0].weight - 0.5).abs() < 1e-6);
    assert_eq!((redo[0].n_tokens, redo[0].n_trained), (4, 2));
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
    let rl = serde_json::json!({"batch_size": 50});
    let rig = waiting(dir.path(), &world, rl).await;
    // By the model's size, which a run tells.
    let first = rig.learner.dry_run(None).await.unwrap().remove(0);
    assert_eq!(first.learning_rate, None);
    let made = rig.learner.train_now(None).await.unwrap().remove(0);
    append(&rig.log, &world, "next", &corrected_talk(7)).await;
    let shown = async {
        loop {
            match rig.learner.dry_run(None).await.unwrap().pop() {
                Some(shown) => return shown,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let shown = tokio::time::timeout(Duration::from_secs(60), shown).await;
    let shown = shown.unwrap();
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
    let failed = rig.learner.turn_preview(failed).await.unwrap().unwrap();
    let methods: Vec<&str> = failed.samples.iter().map(|it| it.method).collect();
    assert_eq!(methods, ["redo", "binary_rl"]);
    let [redo, pushed] = &failed.samples[..] else {
        panic!("{failed:?}")
    };
    let masks = |sample: &crate::SamplePreview| -> Vec<u8> {
        sample.tokens.iter().map(|it| it.mask).collect()
    };
    // Three ids of the prompt, two of the reply: the first four are read, the last four predicted.
    assert_eq!(masks(redo), [0, 0, 1, 1]);
    assert!(redo.tokens.iter().all(|it| it.logprob.is_none()));
    assert_eq!(masks(pushed), [0, 0, 1, 1]);
    let last = &pushed.tokens[3];
    assert_eq!((last.ids.as_slice(), last.logprob), (&[4][..], Some(-0.6)));
    assert!(last.advantage[0] < 0.0, "it failed: {last:?}");
    let sum: f32 = pushed.tokens.iter().flat_map(|it| &it.advantage).sum();
    assert!((sum - pushed.weight).abs() < 1e-6);
    // The last turn of a session has no verdict yet.
    let last = TurnId { session: 1, seq: 2 };
    let last = rig.learner.turn_preview(last).await.unwrap().unwrap();
    assert!(last.samples.is_empty() && last.spent.is_none() && !last.waits);
    let nobody = TurnId {
        session: 99,
        seq: 0,
    };
    assert!(rig.learner.turn_preview(nobody).await.unwrap().is_none());
    rig.stop().await;
}
