//! What happens appears by itself, and can be taken back.

use std::time::{Duration, Instant};

use metaclaw_tests::wait::found;
use serde_json::{Value, json};

use super::{NOTED_WITHIN, PageWorld};

/// How long after it happened something is on an open page.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
const WISH: &str = "From now on answer in one sentence.";

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn a_verdict_appears_on_the_open_page_within_two_seconds() {
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    world.goto("/ui/sessions").await;
    world.browser.wait_for("Updates live").await;
    let mut talk = Vec::new();
    world.say(&mut talk, "Which city is the capital?").await;
    world.say(&mut talk, "Thank you!").await;
    judged(&world, "Which city is the capital?").await;
    world
        .browser
        .wait_for_element("tbody tr:first-child .mark.good", SHOWN_WITHIN)
        .await;
    world.end().await;
}

/// Waits until the turn with this question has a verdict.
async fn judged(world: &PageWorld, asked: &str) {
    let turn = found(NOTED_WITHIN, async || {
        let turns = world.ask("/turns", &json!({"limit": 5})).await;
        let mut turns = turns.as_array().expect("turns").iter();
        let is_it = |it: &&Value| it["asked"] == asked && !it["score"].is_null();
        Ok(turns.find(is_it).cloned())
    });
    turn.await.expect("the turn is judged");
}

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn a_lesson_appears_within_two_seconds_and_its_undo_takes_it_back() {
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    world.browser.wait_for("Live").await;
    let wish = world.wish(WISH).await;
    let heard = Instant::now();
    world.browser.wait_for(&wish).await;
    let took = heard.elapsed();
    assert!(took <= SHOWN_WITHIN, "it took {took:?}");

    world.browser.push(&format!("Undo: {wish}")).await;
    world.browser.wait_for("taken back").await;
    let lesson = world.lesson(&wish).await;
    assert_eq!(lesson["state"], "undone", "{lesson}");
    let in_force = world.ask("/lessons", &json!("main")).await;
    assert!(
        !in_force["wishes"].to_string().contains(&wish),
        "{in_force}"
    );
    world.end().await;
}

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn markup_in_a_lesson_is_shown_as_text() {
    const MARKUP: &str =
        "Please always end with <img src=x onerror=alert(1)><b id=injected>bold</b>.";
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    let add = ["wishes", "add", "--agent", "main", MARKUP];
    let added = world.home.command(&add).output().await;
    let added = added.expect("metaclaw runs");
    assert!(added.status.success(), "{added:?}");
    for view in ["/ui", "/ui/lessons?agent=main"] {
        world.goto(view).await;
        world.browser.wait_for("<img src=x onerror=alert(1)>").await;
        assert_eq!(world.browser.count("#injected").await, 0, "{view}");
        assert_eq!(world.browser.count("img[src=x]").await, 0, "{view}");
    }
    world.end().await;
}
