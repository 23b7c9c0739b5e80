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
        "No, that is wrong.",
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
