//! The figures of one home, as `status`, `report`, `wishes list` and the page show them.

use serde_json::{Value, json};

use crate::harness::{Home, Reply, Request, Server, exchange, has, says, until};

/// A model without training: it judges every reply as bad that it is asked about.
fn answer(request: &Request) -> Reply {
    let body = request.json();
    let system = body["messages"][0]["content"].as_str().unwrap_or_default();
    let words = if system.starts_with("You judge") {
        "The user objects.\nhint: NONE\nverdict: -1"
    } else if system.starts_with("You read one message") {
        "none"
    } else {
        "An answer."
    };
    says(&body, words)
}

async fn page(home: &Home, path: &str) -> String {
    let run: Value = serde_json::from_str(&home.read("run.json")).unwrap();
    let (address, token) = (
        run["control"].as_str().unwrap(),
        run["token"].as_str().unwrap(),
    );
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    exchange(address, &head).await.unwrap()
}

#[tokio::test]
async fn status_report_and_page_show_the_same_numbers() {
    let server = Server::new(answer);
    let home = Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}/v1', model_id: scripted, api_key: sk-0123456789abcd}}\n\
         scheduler: {{idle_minutes: 0, on_battery: true}}\n",
        server.url()
    ));
    let proxy = home.start().await;
    let (old, new) = ("Please answer in German.", "Please answer in French.");
    for wish in [old, new] {
        home.ask(&["wishes", "add", "--agent", "_default", wish])
            .await;
    }
    let mut talk = vec!["What is rain?".to_owned()];
    for said in [
        "Thanks!",
        "No, you booked four.",
        "And snow?",
        "谢谢",
        "And hail?",
    ] {
        let words: Vec<&str> = talk.iter().map(String::as_str).collect();
        let reply = proxy.chat("a", &words).await;
        talk.extend([reply, said.to_owned()]);
    }
    let words: Vec<&str> = talk.iter().map(String::as_str).collect();
    proxy.chat("a", &words).await;

    // The judge was asked about one reply of five. So there is no share of good ones.
    let line = "1 complaint and 2 thanks in your answers to 5 replies";
    let status = async || home.ask(&["status"]).await;
    let is_told = |status: &String| status.contains(&format!("replies: today {line}\n"));
    let status = until("three verdicts", status, is_told).await;
    let report = home.ask(&["report"]).await;
    let today = page(&home, "/ui").await;
    has(&report, [format!("{line}; 1 with a hint")]);
    has(&today, [line]);
    for (place, shown) in [("status", &status), ("report", &report), ("page", &today)] {
        assert!(
            !shown.contains("% good") && !shown.contains("good ("),
            "{place}: {shown}"
        );
    }
    let seen = json!(
        server
            .asked()
            .iter()
            .filter(|it| it.text().contains("You judge"))
            .count()
    );
    assert_eq!(seen, 1);

    let wishes = home.ask(&["wishes", "list", "--agent", "_default"]).await;
    let lessons = page(&home, "/ui/lessons?agent=_default").await;
    has(&wishes, ["2 good, 1 bad"]);
    has(&lessons, ["2 good, 1 bad"]);

    // What became of a lesson is the same everywhere too, and its undo changes nothing.
    has(&report, [format!("{old} (1, replaced by: {new})")]);
    has(&lessons, [format!("replaced by: {new}")]);
    assert_eq!(
        lessons.matches("aria-label=\"Undo: ").count(),
        2,
        "{lessons}"
    );
    let refused = home.refusal(&["undo", "1"]).await;
    has(&refused, ["lesson 1 was replaced by lesson 2"]);
    assert_eq!(
        home.ask(&["wishes", "list", "--agent", "_default"]).await,
        wishes
    );
    has(
        &page(&home, "/ui/curves").await,
        ["Complaints in 20 replies", "Words of first replies"],
    );
    home.stop(proxy).await;
}

/// An agent keeps its own login, and no model has a key: rules alone judge, and no figure claims more.
#[tokio::test]
async fn without_a_model_plain_complaints_are_counted_and_the_others_are_said() {
    let server = Server::new(answer);
    let home = Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nupstreams: {{own: {{url: '{}/v1'}}}}\nrouting: {{order: [own]}}\n",
        server.url()
    ));
    let proxy = home.start().await;
    let others = "no model judges other complaints";
    for (said, line) in [
        (
            "No, you booked four.",
            "no plain complaint and 0 thanks in your answers to 1 reply",
        ),
        (
            "Thanks!",
            "no plain complaint and 1 thanks in your answers to 2 replies",
        ),
        (
            "That is wrong.",
            "1 plain complaint and 1 thanks in your answers to 3 replies",
        ),
    ] {
        let reply = proxy.chat(line, &["What is rain?"]).await;
        proxy.chat(line, &["What is rain?", &reply, said]).await;
        let line = format!("{line}; {others}");
        let status = async || home.ask(&["status"]).await;
        let is_told = |status: &String| status.contains(&format!("replies: today {line}\n"));
        until(&line, status, is_told).await;
        has(&home.ask(&["report"]).await, [&line]);
        has(&page(&home, "/ui").await, [&line]);
    }
    has(&page(&home, "/ui/privacy").await, ["this machine (own)"]);
    has(
        &page(&home, "/ui/curves").await,
        ["Plain complaints in 20 replies"],
    );
    home.stop(proxy).await;
    has(&home.ask(&["report"]).await, [others]);
}
