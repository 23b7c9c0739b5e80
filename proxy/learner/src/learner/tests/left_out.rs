//! Tests of turns that no step uses, and of the recorded reason.

use super::*;

#[tokio::test]
async fn what_is_of_no_use_is_spent_with_a_reason() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&serde_json::json!({}))).await;
    let accepted = [said("q", "Short.", 1), said("Thanks.", "Welcome.", 2)];
    let uncorrected = [
        said("q", &"w ".repeat(50), 3),
        said("Too long.", &"w ".repeat(50), 4),
        said("Hm.", "x", 5),
    ];
    append(&rig.log, &world, "a", &accepted).await;
    append(&rig.log, &world, "b", &uncorrected).await;
    let funnel = async || rig.log.funnel(None).await.unwrap();
    let are_spent = async || funnel().await.spent.values().sum::<u64>() >= 2;
    rig.until("two turns are spent", are_spent).await;
    let spent = funnel().await.spent;
    let expected = [
        ("accepted, and no wish stands that could be consolidated", 1),
        ("no rule fits", 1),
    ];
    assert_eq!(spent, expected.map(|(why, n)| (why.to_owned(), n)).into());
    rig.stop().await;
}

#[tokio::test]
async fn what_is_older_than_rl_max_age_is_left_out() {
    let (dir, world) = (folder(), World::default());
    let none = serde_json::json!({"rl": {"max_age": "0 s"}});
    let rig = Rig::start(dir.path(), &world, config(&none)).await;
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
    let left_out = async || {
        let spent = rig.log.funnel(None).await.unwrap().spent;
        spent.get("older than rl.max_age").copied().unwrap_or(0)
    };
    // No age is certain before the clock was read.
    rig.log
        .note_clock(Duration::ZERO, now_ms() + 1)
        .await
        .unwrap()
        .unwrap();
    rig.until("four turns are too old", async || left_out().await >= 4)
        .await;
    assert!(world.asked().is_none(), "no step was made");
    rig.stop().await;
}
