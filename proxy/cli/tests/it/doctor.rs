//! Tests of what `doctor` finds: what would make each chat fail, or keep the proxy from starting.

use std::net::TcpListener;

use crate::harness::{Home, Upstream, has};

const KEY: &str = "sk-0123456789abcd";

/// The lines of one check, and whether all is well.
async fn checked(home: &Home, name: &str) -> (bool, String) {
    let output = home.run(&["doctor"]).await;
    let said = home.neutral(&String::from_utf8_lossy(&output.stdout));
    let mut lines = said
        .lines()
        .skip_while(|line| line.split_whitespace().nth(1) != Some(name));
    let first = lines.next().unwrap_or_default();
    let remedy = lines
        .next()
        .filter(|line| line.starts_with(' '))
        .unwrap_or_default();
    (output.status.success(), format!("{first}{remedy}"))
}

#[tokio::test]
async fn what_would_fail_each_chat_is_found_with_its_remedy() {
    let upstream = Upstream::new();
    let url = &upstream.url;
    let plain = url.replace("http://", "https://");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = format!("http://{}/v1", silent.local_addr().unwrap());
    std::thread::spawn(move || silent.incoming().for_each(drop));
    for (llm, others, name, expected) in [
        (
            format!("api_base: '{url}', model_id: scripted"),
            "",
            "upstream",
            None,
        ),
        (
            format!("api_base: '{url}', model_id: scripte"),
            "",
            "upstream",
            Some([
                "BAD   upstream",
                "answers, and \"scripte\" is not there; nearest: scripted",
                "-> `metaclaw config llm.model_id NAME`",
            ]),
        ),
        (
            format!("api_base: '{plain}', model_id: scripted"),
            "",
            "upstream",
            Some([
                "BAD   upstream",
                "the server does not speak TLS: is its address http://",
                "-> check llm.api_base",
            ]),
        ),
        (
            format!("api_base: '{tls}', model_id: scripted"),
            "",
            "upstream",
            Some([
                "BAD   upstream",
                "If the server speaks TLS, its address is https://",
                "-> check llm.api_base",
            ]),
        ),
        (
            format!("api_base: '{url}', model_id: scripted"),
            "skills: {dir: mine}\n",
            "skills",
            Some([
                "BAD   skills",
                "there is nothing in HOME/mine",
                "-> put skills there",
            ]),
        ),
    ] {
        let home = Home::new(&format!(
            "proxy: {{port: 0}}\nllm: {{{llm}, api_key: {KEY}}}\n{others}"
        ));
        // A start makes the folder of skills, and its lock file there.
        home.write("mine/.lock", "");
        let (is_well, said) = checked(&home, name).await;
        assert_eq!(is_well, expected.is_none(), "{said}");
        has(&said, expected.unwrap_or(["ok    upstream", "answers", ""]));
        if let Some([_, fault, remedy]) = expected.filter(|_| name == "upstream") {
            let started = home.ask(&["start", "-d"]).await;
            has(
                &started,
                ["  warning   ", fault, remedy.trim_start_matches("-> ")],
            );
            home.ask(&["stop"]).await;
        }
    }
}

#[tokio::test]
async fn a_settings_file_that_is_no_text_can_be_put_out_of_the_way() {
    let home = Home::new("\u{1}\u{2}: [\u{3}\n");
    let (is_well, said) = checked(&home, "settings").await;
    assert!(!is_well);
    has(
        &said,
        [
            "BAD   settings",
            "correct the file, or move it away and run `metaclaw setup`",
        ],
    );
}

#[tokio::test]
async fn every_upstream_of_the_settings_is_tried() {
    let upstream = Upstream::new();
    let url = &upstream.url;
    let keys = format!("keys: [{KEY}]");
    let home = Home::new(&format!(
        "proxy: {{port: 0}}\nupstreams:\n  good: {{url: '{url}', {keys}, model: another}}\n  bad: {{url: '{url}', {keys}, model: nobody}}\n"
    ));
    let output = home.run(&["doctor"]).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let tried = said.lines().filter(|line| line.contains("  upstream "));
    let marks: Vec<&str> = tried
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(marks, ["BAD", "ok"], "{said}");
    has(&said, ["-> `metaclaw config upstreams.bad.model NAME`"]);
}

#[tokio::test]
async fn a_turn_log_that_a_start_refuses_is_found_in_the_words_of_the_start() {
    for format in ["1", "99"] {
        let upstream = Upstream::new();
        let home = Home::before(&upstream.url);
        let proxy = home.start().await;
        home.stop(proxy).await;
        let (_, said) = checked(&home, "turns").await;
        assert_eq!(said, "", "a log that opens is no news");
        home.write("turns/FORMAT", format);
        let refused = home.refusal(&["start"]).await;
        let words = refused
            .lines()
            .find_map(|line| line.strip_prefix("metaclaw: "));
        let (is_well, said) = checked(&home, "turns").await;
        let words = words.unwrap();
        assert!(!is_well && said.contains(words), "{said}\n{refused}");
    }
}

#[tokio::test]
async fn a_home_that_is_a_file_is_told_with_what_to_do() {
    let home = Home::bare();
    home.write("file", "");
    let file = home.path().join("file");
    for command in ["status", "doctor", "start"] {
        let refused = home
            .refusal(&["--home", &file.display().to_string(), command])
            .await;
        has(
            &refused,
            ["cannot be the home folder (--home or METACLAW_HOME names another one)"],
        );
    }
}

#[tokio::test]
async fn an_empty_home_is_told_how_an_agent_is_connected() {
    let (is_well, said) = checked(&Home::bare(), "settings").await;
    assert!(
        !is_well && said.contains("-> `metaclaw wire` lists"),
        "{said}"
    );
}

/// The demo starts with a settings file that is not in its home.
#[tokio::test]
async fn the_settings_file_of_the_running_process_is_looked_at() {
    let upstream = Upstream::new();
    let home = Home::bare();
    let llm = format!(
        "{{api_base: '{}', model_id: scripted, api_key: {KEY}}}",
        upstream.url
    );
    home.write(
        "mine.yaml",
        format!("mode: skills_only\nproxy: {{port: 0}}\nllm: {llm}\n"),
    );
    let file = home.path().join("mine.yaml").display().to_string();
    home.ask(&["start", "-d", "--no-wire", "-c", &file]).await;
    let (is_well, said) = checked(&home, "settings").await;
    assert!(is_well, "{said}");
    has(
        &said,
        ["ok    settings", "HOME/mine.yaml (mode skills_only)"],
    );
    let (_, said) = checked(&home, "upstream").await;
    has(&said, ["ok    upstream", "answers"]);
    home.ask(&["stop"]).await;
    let (is_well, said) = checked(&home, "settings").await;
    assert!(!is_well, "{said}");
    has(&said, ["HOME/config.yaml is not there"]);
}
