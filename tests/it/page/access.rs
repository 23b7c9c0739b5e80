//! Who is admitted, and that no view complains, is too wide for a phone, or asks another machine for something.

use std::collections::BTreeSet;

use metaclaw_tests::{browser::BrowserWindow, client::Client};

use super::PageWorld;

/// What everybody may have: the page that asks people to sign in uses them.
const OPEN: [&str; 3] = ["/ui/login", "/ui/style.css", "/ui/icon.svg"];
/// Views that the crawl must have come across, so that it cannot pass by finding nothing.
const VIEWS: [&str; 8] = [
    "/ui",
    "/ui/sessions",
    "/ui/lessons",
    "/ui/training",
    "/ui/cost",
    "/ui/privacy",
    "/ui/health",
    "/ui/curves",
];
/// The most views of one kind, such as turns, that are opened.
const OF_A_KIND: usize = 3;

#[tokio::test]
#[ignore = "needs the binaries and Chromium, cargo xtask test --all runs it"]
async fn no_view_complains_or_is_wider_than_a_phone_and_none_opens_without_the_token() {
    let Some(mut world) = PageWorld::start().await else {
        return;
    };
    world.browser.open(BrowserWindow::PHONE).await;
    world.sign_in().await;
    let paths = crawl(&mut world).await;
    for view in VIEWS {
        assert!(paths.contains(view), "{view} is not among {paths:?}");
    }
    let stranger = Client::new(&world.base_url);
    for path in paths.iter().filter(|it| !OPEN.contains(&it.as_str())) {
        let reply = stranger.get(path).send().await.expect("a reply");
        assert_eq!(reply.status(), 401, "{path}");
        let text = reply.text().await.expect("a text");
        assert!(!text.contains("Okafor"), "{path} shows what was said");
    }
    for form in ["wish", "skill", "rate", "forget", "switch"] {
        let path = format!("/ui/do/{form}");
        let reply = stranger.post(&path, &serde_json::json!({})).send().await;
        assert_eq!(reply.expect("a reply").status(), 401, "{path}");
    }
    for path in ["/ui/events", "/ui/live.js", "/ui/no-such-view"] {
        let reply = stranger.get(path).send().await.expect("a reply");
        assert_eq!(reply.status(), 401, "{path}");
    }
    world.end().await;
}

/// Opens every view that a link leads to, a few of each kind; the paths.
async fn crawl(world: &mut PageWorld) -> BTreeSet<String> {
    let mut opened: BTreeSet<String> = BTreeSet::new();
    let mut waiting = vec!["/ui".to_owned()];
    while let Some(path) = waiting.pop() {
        let kind = kind_of(&path);
        let n = opened.iter().filter(|it| kind_of(it) == kind).count();
        if n >= OF_A_KIND || !opened.insert(path.clone()) {
            continue;
        }
        world.goto(&path).await;
        let overflow = world.browser.overflow().await;
        assert!(overflow <= 0, "{path} is {overflow} pixels too wide");
        for link in world.browser.links().await {
            let link = link.split('#').next().unwrap_or_default();
            if link.starts_with("/ui") {
                waiting.push(link.to_owned());
            } else {
                assert!(link.is_empty(), "{path} leads to {link}");
            }
        }
    }
    opened
}

/// The first two parts of a path: `/ui/turns/12-3?x` and `/ui/turns/9-1` are of one kind.
fn kind_of(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or_default();
    let third = path.match_indices('/').nth(2);
    third.map_or(path, |(at, _)| &path[..at])
}
