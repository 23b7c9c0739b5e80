//! Tests of when learning that costs something may run, asked of the running process and of what it left.

use crate::harness::{TestHome, Upstream, until};

#[tokio::test]
async fn the_window_is_told_with_and_without_a_running_proxy() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let refusal = home.refusal(&["scheduler", "status"]).await.unwrap();
    assert!(refusal.contains("nothing is known yet"), "{refusal}");

    let proxy = home.start().await.unwrap();
    proxy.chat("s1", &["Hello"]).await.unwrap();
    let chatting = async || {
        let status = home.json(&["scheduler", "status", "--json"]).await?;
        let why = &status["window"]["why"]["is"];
        assert_eq!(status["running"], true);
        // A machine on battery is closed for another reason.
        Ok(why == "on_battery" || !status["known"]["facts"]["last_main_ms"].is_null())
    };
    until(chatting).await.unwrap();
    let shown = home.ask(&["scheduler", "status"]).await.unwrap();
    assert!(shown.starts_with("window:    closed"), "{shown}");
    let status = home.ask(&["status"]).await.unwrap();
    assert!(status.contains("window:  closed"), "{status}");
    home.ask(&["stop"]).await.unwrap();
    proxy.ended().await.unwrap();

    let left = home
        .json(&["scheduler", "next-window", "--json"])
        .await
        .unwrap();
    assert_eq!(left["running"], false);
    assert_eq!(left["known"]["state"], "idle_wait");
    assert_eq!(left["known"]["sleep_window"], "23:00–07:00");
    assert!(left["known"]["facts"]["last_main_ms"].is_u64());
    let shown = home.ask(&["scheduler", "next-window"]).await.unwrap();
    assert!(shown.contains("metaclaw does not run"), "{shown}");
}

#[tokio::test]
async fn minutes_with_a_unit_are_refused_by_name() {
    let home = TestHome::new("scheduler: {idle_minutes: 30m}\n").unwrap();
    let refusal = home.refusal(&["start"]).await.unwrap();
    assert!(
        refusal.contains("scheduler.idle_minutes") && refusal.contains("minutes: a whole number"),
        "{refusal}"
    );
}
