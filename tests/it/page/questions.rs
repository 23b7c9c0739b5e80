//! The four questions that bring people to the page: each is answered after at most three clicks from the front.

use super::PageWorld;

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn why_did_it_say_that_takes_three_clicks() {
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    world.browser.follow("Conversations").await;
    world
        .browser
        .follow("Is the certificate of the shop still valid?")
        .await;
    // The conversation has the verdict already.
    world
        .browser
        .wait_for("Look it up before you answer.")
        .await;
    world.browser.follow("Why this reply?").await;
    for answer in [
        "The verdict",
        "Look it up before you answer.",
        "What MetaClaw added to the prompt",
        "Who answered",
    ] {
        world.browser.wait_for(answer).await;
    }
    world.end().await;
}

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn take_it_back_takes_two_clicks() {
    const WISH: &str = "Please always answer in English.";
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    let wish = world.wish(WISH).await;
    world.browser.follow("Lessons").await;
    world.browser.push(&format!("Undo: {wish}")).await;
    world.browser.wait_for("undone").await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn what_did_this_cost_takes_one_click() {
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    world.browser.follow("Cost").await;
    world.browser.wait_at("/ui/cost").await;
    world.browser.wait_for("tokens").await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn what_left_takes_one_click() {
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    world.browser.follow("Privacy").await;
    world.browser.wait_at("/ui/privacy").await;
    // The upstream of this home, to which the chats went.
    world.browser.wait_for("scripted").await;
    world.end().await;
}
