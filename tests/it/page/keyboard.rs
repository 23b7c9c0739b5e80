//! The page by keyboard alone.

use metaclaw_tests::browser::Focused;

use super::PageWorld;

const WISH: &str = "Please always be brief.";
/// The most steps to an element of a view.
const TABS: usize = 80;

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn a_lesson_is_found_and_undone_by_keyboard_alone() {
    let Some(mut world) = PageWorld::start().await else {
        return;
    };
    let wish = world.wish(WISH).await;
    let link = world.login_link().await;
    world.browser.goto(&link).await;
    world.browser.wait_at("/ui").await;

    // The first element skips what is the same in every view.
    world.browser.press("Tab").await;
    let skip = world.browser.focused().await;
    assert_eq!(skip.href, "#main", "{skip:?}");
    let is_lessons = |it: &Focused| it.tag == "a" && it.name == "Lessons";
    world.browser.tab_to(TABS, is_lessons).await;
    world.browser.press("Enter").await;
    world.browser.wait_at("/ui/lessons").await;
    let is_undo =
        |it: &Focused| it.tag == "button" && it.name.starts_with("Undo") && it.name.contains(&wish);
    world.browser.tab_to(TABS, is_undo).await;
    world.browser.press("Enter").await;
    world.browser.wait_for("taken back").await;
    let lesson = world.lesson(&wish).await;
    assert_eq!(lesson["state"], "undone", "{lesson}");
    world.end().await;
}

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn a_wish_is_written_by_keyboard_alone() {
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    world.goto("/ui/lessons?agent=main").await;
    world.browser.tab_to(TABS, |it| it.tag == "input").await;
    world.browser.type_text("Use metric units.").await;
    world.browser.press("Enter").await;
    world.browser.wait_for("Use metric units.").await;
    world.wait_for_lesson("Use metric units.").await;
    world.end().await;
}
