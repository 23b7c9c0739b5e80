//! Tests of `/metrics`: its content, and who may see it.

use std::collections::BTreeSet;

use super::harness::{CHAT, Harness, SetUp, get, json_reply, post, post_chat};

async fn metrics(harness: &Harness) -> String {
    let seen = harness.refused(&get("/metrics", "")).await;
    assert_eq!(seen.status(), 200);
    let kind = seen.header("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(seen.text().ends_with("# EOF\n"));
    seen.text().to_owned()
}

/// Returns the value of one series.
fn value<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str, series: &str) -> T {
    let line = text.lines().find_map(|line| {
        let rest = line.strip_prefix(series)?;
        rest.strip_prefix(' ')
    });
    let value = line.unwrap_or_else(|| panic!("no {series} in\n{text}"));
    value.parse().unwrap()
}

/// Returns name, type and labels of each metric in the exposition.
fn exposed(text: &str) -> BTreeSet<(String, String, String)> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let metric = |line: &str| {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffix = match kind {
            "counter" => "_total",
            "histogram" => "_count",
            _ => "",
        };
        let sample = format!("{name}{suffix}");
        let sample = text.lines().find(|line| line.starts_with(&sample)).unwrap();
        let labels = sample.split_once('{').map_or("", |(_, rest)| {
            rest.split_once('}').map_or("", |(labels, _)| labels)
        });
        let labels = labels.split(',').filter_map(|label| label.split_once('='));
        let mut labels: Vec<_> = labels.map(|(name, _)| name).collect();
        labels.sort_unstable();
        let name = if kind == "counter" {
            format!("{name}_total")
        } else {
            name.to_owned()
        };
        (name, kind.to_owned(), labels.join(", "))
    };
    types.map(metric).collect()
}

/// Returns the same from the documentation.
fn documented() -> BTreeSet<(String, String, String)> {
    // The counters of other crates come later in the page.
    let table = include_str!("../../../../docs/operating/metrics.md")
        .lines()
        .take_while(|line| !line.starts_with("## "));
    let rows = table.filter(|line| line.starts_with("| `metaclaw_"));
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let plain = |text: &str| text.replace('`', "");
        (plain(cells[1]), cells[2].to_owned(), plain(cells[3]))
    };
    rows.map(row).collect()
}

#[tokio::test]
async fn everything_that_is_documented_is_there_and_nothing_else() {
    let mut harness = Harness::start().await;
    harness.chat("", CHAT, "x").await;
    let embeddings = post("/v1/embeddings", "", "{}");
    harness.exchange(&embeddings, &json_reply("{}")).await;
    let text = metrics(&harness).await;
    assert_eq!(exposed(&text), documented());
}

#[tokio::test]
async fn requests_are_told_apart_by_who_asked_and_who_answered() {
    let mut harness = Harness::start().await;
    harness.chat("x-agent-id: main\r\n", CHAT, "x").await;
    harness.chat("x-agent-id: main\r\n", CHAT, "x").await;
    harness.refused(&post_chat("{}")).await;
    let models = &get("/v1/models", "");
    harness.exchange(models, &json_reply("{}")).await;
    harness.log.wait(2).await;
    let text = metrics(&harness).await;
    let main = r#"{agent="main",api="chat",status="200",upstream="llm"}"#;
    let bad = r#"{agent="",api="chat",status="400",upstream=""}"#;
    let models = r#"{agent="_default",api="other",status="200",upstream="llm"}"#;
    for (labels, n) in [(main, 2), (bad, 1), (models, 1)] {
        let series = format!("metaclaw_requests_total{labels}");
        assert_eq!(value::<u64>(&text, &series), n, "{labels}");
    }
    assert_eq!(value::<u64>(&text, "metaclaw_refused_requests_total"), 1);
    let chat = r#"{api="chat",upstream="llm"}"#;
    for name in ["time_to_first_byte", "added_latency"] {
        let n: u64 = value(&text, &format!("metaclaw_{name}_seconds_count{chat}"));
        assert_eq!(n, 2, "{name}");
    }
}

#[tokio::test]
async fn the_time_of_an_upstream_is_not_ours() {
    let mut harness = Harness::start().await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    assert!(client.is_silent().await, "for 100 ms");
    exchange.say("x").await;
    client.read().await;
    let text = metrics(&harness).await;
    let sum = |name: &str| {
        let series = format!(r#"metaclaw_{name}_seconds_sum{{api="chat",upstream="llm"}}"#);
        value::<f64>(&text, &series)
    };
    let (added, first_byte) = (sum("added_latency"), sum("time_to_first_byte"));
    assert!(first_byte >= 0.1, "{first_byte}");
    assert!(added <= first_byte - 0.1, "{added} of {first_byte}");
}

#[tokio::test]
async fn an_agent_that_hangs_up_early_is_counted_too() {
    let mut harness = Harness::start().await;
    let (client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    drop(client);
    assert!(exchange.is_closed().await);
    harness.until(|counts| counts.active_streams == 0).await;
    let text = metrics(&harness).await;
    let gone =
        r#"metaclaw_requests_total{agent="_default",api="chat",status="none",upstream="llm"}"#;
    assert_eq!(value::<u64>(&text, gone), 1);
}

#[tokio::test]
async fn names_that_clients_make_up_do_not_grow_without_end() {
    let mut harness = Harness::start().await;
    let models = |n: usize| get("/v1/models", &format!("x-agent-id: a{n}\r\n"));
    for n in 0..70 {
        harness.exchange(&models(n), &json_reply("{}")).await;
    }
    harness.exchange(&models(0), &json_reply("{}")).await;
    let text = metrics(&harness).await;
    let series = |agent: &str| {
        format!(
            r#"metaclaw_requests_total{{agent="{agent}",api="other",status="200",upstream="llm"}}"#
        )
    };
    assert_eq!(value::<u64>(&text, &series("a0")), 2);
    assert_eq!(value::<u64>(&text, &series("_other")), 6);
}

#[tokio::test]
async fn where_keys_are_set_only_a_key_for_all_agents_shows_it() {
    let mut set_up = SetUp::with_key("sk-all");
    let keys = r#"{"phone":{"key":"sk-phone","agents":["main"]}}"#;
    set_up.config.proxy.keys = serde_json::from_str(keys).unwrap();
    let harness = Harness::with(set_up).await;
    let status = async |headers: &str| harness.refused(&get("/metrics", headers)).await.status();
    assert_eq!(status("").await, 401);
    assert_eq!(status("authorization: Bearer sk-phone\r\n").await, 403);
    assert_eq!(status("authorization: Bearer sk-all\r\n").await, 200);
    let wrong_method = harness.refused(&post("/metrics", "", "")).await;
    assert_eq!(wrong_method.status(), 405);
}
