//! Pictures of the page, for docs/using/page.md and for those who change the page.

use metaclaw_tests::{browser::BrowserWindow, external};

use super::PageWorld;

/// A picture: its file, the view, and the window.
struct Picture {
    file: &'static str,
    view: &'static str,
    window: BrowserWindow,
}

/// The largest picture, in bytes: readers of docs/ load all of them.
const MAX_BYTES: u64 = 100_000;

fn pictures() -> [Picture; 9] {
    let picture = |file, view, window| Picture { file, view, window };
    [
        picture("today", "/ui", BrowserWindow::WIDE),
        picture("today-dark", "/ui", BrowserWindow::WIDE.dark()),
        picture("today-phone", "/ui", BrowserWindow::PHONE),
        picture("conversations", "/ui/sessions", BrowserWindow::WIDE),
        picture("lessons", "/ui/lessons?agent=main", BrowserWindow::WIDE),
        picture("turn-phone-dark", TURN, BrowserWindow::PHONE.dark()),
        picture("curves", "/ui/curves", BrowserWindow::WIDE),
        picture("privacy-dark", "/ui/privacy", BrowserWindow::WIDE.dark()),
        picture("cost-phone", "/ui/cost", BrowserWindow::PHONE),
    ]
}

/// Stands for the newest turn with a bad verdict.
const TURN: &str = "(turn)";

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn each_view_has_its_picture() {
    let Some(mut world) = PageWorld::signed_in().await else {
        return;
    };
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let kept = external::screenshots();
    let folder = kept.unwrap_or_else(|| temporary.path().to_owned());
    for wish in [
        "Please always answer in one or two sentences.",
        "From now on use metric units.",
    ] {
        world.wish(wish).await;
    }
    let turn = bad_turn(&world).await;
    for Picture { file, view, window } in pictures() {
        world.browser.open(window).await;
        world.sign_in().await;
        world.goto(if view == TURN { &turn } else { view }).await;
        world.browser.wait_for("MetaClaw").await;
        let path = folder.join(format!("{file}.png"));
        world.browser.screenshot(&path, false).await;
        let bytes = std::fs::metadata(&path).expect("a picture").len();
        assert!(bytes > 5_000, "{file} is empty: {bytes} bytes");
        // The optimiser of `cargo xtask screenshots` has not been at it yet.
        assert!(bytes < 2 * MAX_BYTES, "{file}: {bytes} bytes");
        world.assert_is_quiet().await;
    }
    world.end().await;
}

async fn bad_turn(world: &PageWorld) -> String {
    let turns = world
        .ask("/turns", &serde_json::json!({"limit": 100}))
        .await;
    let mut turns = turns.as_array().expect("turns").iter();
    let turn = turns.find(|it| it["score"] == -1).expect("a bad verdict");
    format!("/ui/turns/{}", turn["id"].as_str().expect("an id"))
}
