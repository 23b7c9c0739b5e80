//! Tests of several proxies in one home, which are distinguished by their ports.

use tokio::net::TcpListener;

use crate::harness::{TestHome, Upstream, until};

/// Returns a port that was free a moment ago.
async fn free_port() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    Ok(listener.local_addr()?.port().to_string())
}

#[tokio::test]
async fn a_second_proxy_shares_settings_and_wishes_and_nothing_else() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let first = home.start().await.unwrap();
    let port = free_port().await.unwrap();
    let said = home.ask(&["start", "-d", "--port", &port]).await.unwrap();
    assert!(
        said.contains(&format!("http://127.0.0.1:{port}/v1")),
        "{said}"
    );
    let again = home.refusal(&["start", "--port", &port]).await.unwrap();
    let stop = format!("`metaclaw stop --port {port}` ends it");
    assert!(again.contains(&stop), "{again}");

    first.chat("s", &["Hello"]).await.unwrap();
    home.ask(&["wishes", "add", "Be brief.", "--port", &port])
        .await
        .unwrap();
    let is_heard = async || {
        let wishes = home.json(&["wishes", "list", "--json"]).await?;
        Ok(wishes["wishes"][0] == "Be brief.")
    };
    until(is_heard).await.unwrap();
    let is_kept = async || {
        let turns = home.json(&["turns", "list", "--json"]).await?;
        Ok(turns.as_array().is_some_and(|it| it.len() == 1))
    };
    until(is_kept).await.unwrap();
    let others = ["turns", "list", "--json", "--port", &port];
    assert_eq!(home.json(&others).await.unwrap(), serde_json::json!([]));

    // Without a port, the command means the home's own proxy, and if that does not run, the only one that does.
    let pid = async |arguments: &[&str]| home.json(arguments).await.unwrap()["pid"].clone();
    let own = pid(&["status", "--json"]).await;
    let second = pid(&["status", "--json", "--port", &port]).await;
    assert_ne!(own, second);
    home.ask(&["stop"]).await.unwrap();
    assert!(first.ended().await.unwrap().success());
    assert_eq!(pid(&["status", "--json"]).await, second);
    home.ask(&["stop", "--port", &port]).await.unwrap();
    let after = home.run(&["status", "--port", &port]).await.unwrap();
    assert_eq!(after.status.code(), Some(3));
}

#[tokio::test]
async fn the_port_of_the_settings_is_the_homes_own() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let port = free_port().await.unwrap();
    home.ask(&["config", "proxy.port", &port]).await.unwrap();
    home.ask(&["start", "-d", "--port", &port]).await.unwrap();
    assert!(home.path().join("run.json").exists());
    let refused = home.refusal(&["status", "--port", "many"]).await.unwrap();
    insta::assert_snapshot!(refused, @r#"metaclaw: --port "many" is not allowed: a whole number from 0 to 65535: invalid digit found in string"#);
    home.ask(&["stop", "--port", &port]).await.unwrap();
    assert!(!home.path().join("instances").exists());
}
