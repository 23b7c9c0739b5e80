//! Tests of several proxies in one home, which are distinguished by their ports.

use tokio::net::TcpListener;

use crate::{
    harness::{Home, Upstream, has, n_of},
    output::at_terminal,
};

async fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port().to_string()
}

#[tokio::test]
async fn a_second_proxy_shares_settings_and_wishes_and_nothing_else() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let first = home.start().await;
    let port = free_port().await;
    let said = home.ask(&["start", "-d", "--port", &port]).await;
    has(&said, [format!("http://127.0.0.1:{port}/v1")]);
    let again = home.refusal(&["start", "--port", &port]).await;
    let stop = format!("`metaclaw stop --port {port}` ends it");
    assert!(again.contains(&stop), "{again}");

    first.chat("s", &["Hello"]).await;
    home.ask(&["wishes", "add", "Be brief.", "--port", &port])
        .await;
    home.json_until(&["wishes", "list", "--json"], |it| {
        it["wishes"][0] == "Be brief."
    })
    .await;
    home.json_until(&["turns", "list", "--json"], |it| n_of(it) == 1)
        .await;
    let others = ["turns", "list", "--json", "--port", &port];
    assert_eq!(home.json(&others).await, serde_json::json!([]));

    // Without a port, the command means the home's own proxy, and if that does not run, the only one that does.
    let pid = async |arguments: &[&str]| home.json(arguments).await["pid"].clone();
    let own = pid(&["status", "--json"]).await;
    let second = pid(&["status", "--json", "--port", &port]).await;
    assert_ne!(own, second);
    home.stop(first).await;
    assert_eq!(pid(&["status", "--json"]).await, second);
    home.ask(&["stop", "--port", &port]).await;
    let after = home.run(&["status", "--port", &port]).await;
    assert_eq!(after.status.code(), Some(3));
}

/// The record of the agent must be in the home of the proxy that it is wired to.
#[tokio::test]
async fn an_agent_is_wired_to_the_proxy_of_the_port_that_is_given() {
    const CODEX: &str = ".codex/config.toml";
    let upstream = Upstream::new();
    let codex = format!("openai_base_url = \"{}\"\n", upstream.url);
    for command in [["wire", "codex"], ["start", "-d"]] {
        let port = free_port().await;
        let home = Home::bare().with_variable("METACLAW__UI__PORT", "0");
        home.write(CODEX, &codex);
        let arguments = [command[0], command[1], "--port", &port];
        let answers = [("[Y/n]", "")];
        let answers = if command[0] == "start" {
            &answers[..]
        } else {
            &[]
        };
        let (seen, is_done) = at_terminal(&home, &arguments, answers).await;
        assert!(is_done, "{seen}");
        let base_url = format!("http://127.0.0.1:{port}/v1");
        has(&seen, [base_url.as_str(), "Codex asks MetaClaw; "]);
        has(home.read(CODEX), [base_url]);
        home.ask(&["stop", "--port", &port]).await;
        assert_eq!(home.read(CODEX), codex);
    }
}

#[tokio::test]
async fn the_port_of_the_settings_is_the_homes_own() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let port = free_port().await;
    home.ask(&["config", "proxy.port", &port]).await;
    home.ask(&["start", "-d", "--port", &port]).await;
    assert!(home.path().join("run.json").exists());
    let refused = home.refusal(&["status", "--port", "many"]).await;
    insta::assert_snapshot!(refused, @r#"metaclaw: --port "many" is not allowed: a whole number from 0 to 65535: invalid digit found in string"#);
    home.ask(&["stop", "--port", &port]).await;
    assert!(!home.path().join("instances").exists());
}
