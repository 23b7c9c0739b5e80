//! Tests of `rl.support_query`: complaints become a wish, and the verdicts that they gave are not trained on beside it.

use serde_json::json;

use super::*;

/// Returns the marks of the turns that two asked-for steps train on, before and after another complaint, and the turns
/// that were excluded, by reason.
async fn trained(rule: &str) -> ([Vec<u32>; 2], Vec<(String, u64)>) {
    let (dir, world) = (folder(), World::default());
    let (library, _) = Library::open(
        dir.path().join("skills"),
        SkillsConfig::default(),
        WishesConfig::default(),
    );
    let binary = json!({"rl": {"method": "binary_rl", "batch_size": 64, "support_query": rule}});
    let heard = Some(library.clone());
    let rig = Rig::start_with(dir.path(), &world, config(&binary), heard).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    rig.judged(4).await;
    let agent = AgentId::default_agent();
    let is_heard = async || !library.wishes(&agent).is_empty();
    rig.until("the second complaint is a wish", is_heard).await;
    let mut marks = Vec::new();
    for talk in [None, Some(corrected_talk(3))] {
        if let Some(talk) = talk {
            append(&rig.log, &world, "c", &talk).await;
            rig.judged(6).await;
        }
        let n_passes = world.passes().len();
        rig.learner.train_now(None).await.unwrap();
        let mut of_step: Vec<u32> = world.passes()[n_passes..].concat();
        of_step.sort_unstable();
        marks.push(of_step);
    }
    let spent = rig.log.funnel(None).await.unwrap().spent;
    rig.stop().await;
    let marks = <[Vec<u32>; 2]>::try_from(marks).unwrap();
    (marks, spent.into_iter().collect())
}

#[tokio::test]
async fn the_verdicts_that_led_to_a_wish_are_not_trained_on_beside_it() {
    let (marks, spent) = trained("own").await;
    assert_eq!(marks, [vec![], vec![30, 31]], "{spent:?}");
    let why = "support: a lesson in force came from it (rl.support_query)";
    assert!(spent.contains(&(why.to_owned(), 4)), "{spent:?}");
}

#[tokio::test]
async fn without_separation_every_verdict_is_trained_on() {
    let (marks, spent) = trained("off").await;
    assert_eq!(marks, [vec![10, 11, 20, 21], vec![30, 31]], "{spent:?}");
}
