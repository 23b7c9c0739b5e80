//! Tests of when learning that costs something may run, asked of the running process and of what it left.

use serde_json::Value;

use crate::harness::{Home, Upstream, has};

#[tokio::test]
async fn the_window_is_told_with_and_without_a_running_proxy() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let refusal = home.refusal(&["scheduler", "status"]).await;
    assert!(refusal.contains("nothing is known yet"), "{refusal}");

    let proxy = home.start().await;
    proxy.chat("s1", &["Hello"]).await;
    // A machine on battery is closed for another reason.
    let is_closed = |status: &Value| {
        let is_on_battery = status["window"]["why"]["is"] == "on_battery";
        is_on_battery || !status["known"]["facts"]["last_main_ms"].is_null()
    };
    let status = home
        .json_until(&["scheduler", "status", "--json"], is_closed)
        .await;
    assert_eq!(status["running"], true);
    let shown = home.ask(&["scheduler", "status"]).await;
    assert!(
        shown.starts_with("window:    costly learning waits"),
        "{shown}"
    );
    let status = home.ask(&["status"]).await;
    assert!(
        status.contains("window:  costly learning waits"),
        "{status}"
    );
    home.stop(proxy).await;

    let left = home.json(&["scheduler", "next-window", "--json"]).await;
    assert_eq!(left["running"], false);
    assert_eq!(left["known"]["state"], "idle_wait");
    assert_eq!(left["known"]["sleep_window"], "23:00–07:00");
    assert!(left["known"]["facts"]["last_main_ms"].is_u64());
    let shown = home.ask(&["scheduler", "next-window"]).await;
    assert!(shown.contains("metaclaw does not run"), "{shown}");
}

#[tokio::test]
async fn minutes_with_a_unit_are_refused_by_name() {
    let home = Home::new("scheduler: {idle_minutes: 30m}\n");
    let refusal = home.refusal(&["start"]).await;
    has(
        &refusal,
        ["scheduler.idle_minutes", "minutes: a whole number"],
    );
}
