//! The page by keyboard alone.

use std::time::Duration;

use metaclaw_tests::browser::Focused;

use super::PageWorld;

const WISH: &str = "Please always be brief.";
/// Where a search for two words leads.
const FOUND: &str = "/ui/sessions?words=okafor+thursday&agent=&verdict=&model=&days=";
const WITHIN: Duration = Duration::from_secs(20);
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

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn a_reply_is_searched_and_opened_by_keys_and_no_key_is_taken_from_a_field() {
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    // From any view, a slash leads to the search.
    world.browser.press("/").await;
    world.browser.wait_at("/ui/sessions").await;
    world
        .browser
        .wait_for_element("#search:focus", WITHIN)
        .await;
    world.browser.type_text("jk?/").await;
    world.browser.press("Enter").await;
    let typed = FOUND.replace("okafor+thursday", "jk%3F%2F");
    world.browser.wait_at(&typed).await;
    world.browser.press("/").await;
    world.browser.type_text("okafor thursday").await;
    world.browser.press("Enter").await;
    world.browser.wait_at(FOUND).await;
    for (key, row) in [("j", 1), ("j", 2), ("k", 1), ("k", 1)] {
        world.browser.press(key).await;
        let focused = format!("tbody tr:nth-child({row}):focus-within");
        world.browser.wait_for_element(&focused, WITHIN).await;
    }
    world.browser.press("?").await;
    world.browser.wait_for("next row").await;
    world.browser.press("Escape").await;
    world.browser.wait_gone("next row").await;
    world.browser.press("Enter").await;
    world.browser.wait_for("Dear Mrs Okafor").await;
    // The search led to the turn that has the words, and the focus is there.
    world
        .browser
        .wait_for_element("article:focus-within", WITHIN)
        .await;
    world.browser.press("Enter").await;
    world.browser.wait_for("Your verdict").await;
    world.end().await;
}
