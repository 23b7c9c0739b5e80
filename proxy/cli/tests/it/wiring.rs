//! The first minute, and the way back: OpenClaw's file as its owner wrote it, before and after.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    harness::{Home, Upstream, has, until},
    output::at_terminal,
};

struct Person {
    _folder: tempfile::TempDir,
    file: PathBuf,
    before: String,
    home: Home,
}

impl Person {
    fn new(upstream: &Upstream) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("openclaw.json");
        let before = format!(
            "// mine\n{{models: {{providers: {{cloud: {{baseUrl: '{}', apiKey: '${{CLOUD_KEY}}', api: 'openai-completions',\n  models: [{{id: 'm', name: 'M', contextWindow: 64000,}}]}}}}}},\n agents: {{defaults: {{model: 'cloud/m', sandbox: {{mode: 'all'}}}}}}}}\n",
            upstream.url
        );
        std::fs::write(&file, &before).unwrap();
        std::fs::write(folder.path().join(".env"), "CLOUD_KEY=sk-0123456789abcd\n").unwrap();
        let home = Home::bare().with_variable("OPENCLAW_STATE_DIR", folder.path());
        Self {
            _folder: folder,
            file,
            before,
            home,
        }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap_or_default()
    }

    fn asks_us(&self) -> bool {
        self.text().contains("\"primary\": \"metaclaw/m\"")
    }

    /// One turn, as OpenClaw would send it by what stands in its file.
    async fn turn(&self) -> String {
        let text = self.text();
        let address = text
            .split("\"baseUrl\": \"")
            .nth(1)
            .and_then(|it| it.split('"').next());
        let origin = address
            .and_then(|it| it.strip_suffix("/v1"))
            .expect("no address of ours");
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}]});
        let key = "authorization: Bearer metaclaw\r\n";
        metaclaw_test_kit::post(origin, "/v1/chat/completions", key, &body)
            .await
            .unwrap()
    }

    async fn doctor(&self, arguments: &[&str]) -> (bool, Value) {
        let arguments: Vec<&str> = ["doctor", "--json"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        let output = self.home.run(&arguments).await;
        let checks = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.success(), checks)
    }

    /// Kills the proxy, and before it the parent that would start it again. Returns when it has released its home.
    async fn kill(&self) {
        let run: Value = serde_json::from_str(&self.home.read("run.json")).unwrap();
        let proxy = i32::try_from(run["pid"].as_i64().expect("no pid")).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{proxy}/status")).unwrap();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let parent = parent.expect("no parent").trim().parse().unwrap();
        for pid in [parent, proxy] {
            kill_process(Pid::from_raw(pid).expect("no pid"), Signal::KILL).unwrap();
        }
        let status = async || std::fs::read_to_string(format!("/proc/{proxy}/status"));
        let has_ended =
            |it: &io::Result<String>| it.as_ref().map_or(true, |it| it.contains("State:\tZ"));
        until("its end", status, has_ended).await.ok();
    }
}

fn verdict<'a>(checks: &'a Value, name: &str) -> &'a str {
    let checks = checks.as_array().into_iter().flatten();
    let mut ours = checks.filter(|it| it["name"] == name);
    ours.next()
        .and_then(|it| it["is"].as_str())
        .unwrap_or("not looked at")
}

const START: [&str; 4] = ["start", "-d", "--port", "0"];

#[tokio::test]
async fn one_yes_and_everything_back_in_one_command() {
    let upstream = Upstream::new();
    let person = Person::new(&upstream);
    let home = &person.home;
    let said = home.ask(&["start", "-d", "--port", "0", "--yes"]).await;
    assert!(said.starts_with("Found OpenClaw: "), "{said}");
    assert!(
        said.contains("CLOUD_KEY in OpenClaw's .env") && !said.contains("0123456789"),
        "{said}"
    );
    has(
        &said,
        ["agent     OpenClaw asks metaclaw/m, and cloud/m where that fails"],
    );
    assert!(said.contains("try       openclaw agent"), "{said}");
    assert!(
        person.text().starts_with("// mine\n") && person.asks_us(),
        "{}",
        person.text()
    );
    has(person.text(), ["sandbox: {mode: 'all'}"]);
    let reply = person.turn().await;
    assert!(reply.contains("answer to 1"), "{reply}");
    assert_eq!(upstream.n_asked(), 1);
    let (is_well, checks) = person.doctor(&[]).await;
    assert!(is_well, "{checks}");
    assert_eq!(
        (verdict(&checks, "openclaw"), verdict(&checks, "proxy")),
        ("fine", "fine"),
        "{checks}"
    );
    home.ask(&["stop"]).await;
    assert_eq!(person.text(), person.before);

    // The yes is remembered.
    home.ask(&START).await;
    assert!(person.asks_us());
    let said = home.ask(&["uninstall", "--yes"]).await;
    assert!(
        said.contains("OpenClaw: ") || person.text() == person.before,
        "{said}"
    );
    assert_eq!(person.text(), person.before);
    assert!(!home.path().exists(), "{said}");
}

#[tokio::test]
async fn what_a_crash_leaves_is_named_and_put_back() {
    let upstream = Upstream::new();
    let person = Person::new(&upstream);
    let home = &person.home;
    home.ask(&["start", "-d", "--port", "0", "--yes"]).await;
    person.kill().await;
    assert!(person.asks_us());
    let (is_well, checks) = person.doctor(&[]).await;
    assert!(
        !is_well && verdict(&checks, "openclaw") == "bad",
        "{checks}"
    );
    let status = home.run(&["status"]).await;
    assert_eq!(status.status.code(), Some(3));
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    has(
        &said,
        [
            "still pointed at it: OpenClaw. `metaclaw start`",
            "`metaclaw doctor --fix`",
        ],
    );
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let left = format!(".openclaw.json.metaclaw-{}", ended.id());
    let left = person.file.with_file_name(left);
    std::fs::write(&left, "").unwrap();
    let (is_well, checks) = person.doctor(&["--fix"]).await;
    assert!(
        is_well && verdict(&checks, "openclaw") == "mended",
        "{checks}"
    );
    assert!(!left.exists());
    assert_eq!(person.text(), person.before);
    let status = home.run(&["status"]).await;
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(!said.contains("pointed"), "{said}");

    home.ask(&START).await;
    person.kill().await;
    // The next start goes on from there, at another port, and keeps what was there at the beginning.
    home.ask(&START).await;
    assert!(person.turn().await.contains("answer to 1"));
    person.kill().await;
    let said = home.ask(&["stop"]).await;
    assert!(said.contains("byte for byte"), "{said}");
    assert_eq!(person.text(), person.before);

    // Another model of its owner's choice is not relayed unasked.
    let other = person
        .before
        .replace("'m'", "'next'")
        .replace("cloud/m", "cloud/next");
    std::fs::write(&person.file, &other).unwrap();
    let said = home.ask(&START).await;
    has(
        &said,
        [
            "OpenClaw does not ask MetaClaw: its model has changed to cloud/next, so its files stay unchanged",
        ],
    );
    home.ask(&["stop"]).await;
    assert_eq!(person.text(), other);
    home.ask(&["start", "-d", "--port", "0", "--yes"]).await;
    assert!(person.text().contains("metaclaw/next"));
    assert_eq!(home.ask(&["config", "llm.model_id"]).await, "next");
    home.write("mine.txt", "not theirs");
    let said = home.ask(&["uninstall", "--yes"]).await;
    assert!(said.contains("as it is not ours: mine.txt"), "{said}");
    assert_eq!(person.text(), other);
}

/// OpenClaw must not point at a proxy whose settings name no upstream for it.
#[tokio::test]
async fn what_openclaw_asks_answers_it_though_another_agent_was_first() {
    let (upstream, other) = (Upstream::new(), Upstream::new());
    let person = Person::new(&upstream);
    let home = &person.home;
    let codex = format!("openai_base_url = \"{}\"\n", other.url);
    home.write(".codex/config.toml", codex);
    home.ask(&["wire", "codex", "--no-start"]).await;
    let said = home.ask(&START).await;
    has(
        &said,
        [
            "found and not connected: OpenClaw (`metaclaw wire openclaw`)",
            "try       say something to Codex",
        ],
    );
    home.ask(&["stop"]).await;
    let said = home.ask(&["start", "-d", "--port", "0", "--yes"]).await;
    has(&said, ["copied to", "OpenClaw asks metaclaw/m"]);
    assert!(person.turn().await.contains("answer to 1"));
    assert_eq!((upstream.n_asked(), other.n_asked()), (1, 0));
    let said = home.ask(&["stop"]).await;
    has(&said, ["files put back: Codex, OpenClaw"]);
    home.ask(&["config", "unset", "llm.api_base"]).await;
    let output = home.run(&["doctor"]).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    has(
        &said,
        [
            "BAD   openclaw",
            "the settings name no upstream that answers OpenClaw",
        ],
    );
    assert!(!output.status.success());
    // The next yes mends it.
    home.ask(&["start", "-d", "--port", "0", "--yes"]).await;
    assert!(person.turn().await.contains("answer to 1"));
    home.ask(&["uninstall", "--yes"]).await;
}

#[tokio::test]
async fn nothing_is_done_unasked() {
    let upstream = Upstream::new();
    let person = Person::new(&upstream);
    let refusal = person.home.refusal(&["start"]).await;
    has(
        &refusal,
        ["`metaclaw start --yes` relays what OpenClaw asks (cloud/m)"],
    );
    let refusal = person.home.refusal(&["uninstall"]).await;
    assert!(refusal.contains("nothing was changed"), "{refusal}");
    let alone = Home::bare();
    let refusal = alone.refusal(&["start"]).await;
    has(
        &refusal,
        ["no agent that MetaClaw knows was found here: `metaclaw setup`"],
    );
    // Relayed, and its file left alone.
    let home = &person.home;
    let said = home.ask(&["start", "-d", "--port", "0", "--no-wire"]).await;
    assert!(!said.contains("  agent  "), "{said}");
    home.ask(&["stop"]).await;
    // A configuration that is there is not asked about again.
    home.ask(&START).await;
    home.ask(&["stop"]).await;
    assert_eq!(person.text(), person.before);
}

#[tokio::test]
async fn an_agent_that_is_not_supported_is_told_what_to_set() {
    let home = Home::new("mode: skills_only\nproxy: {port: 30000}\n");
    let refusal = home.refusal(&["wire", "ironclaw"]).await;
    has(
        &refusal,
        [
            "\"ironclaw\" is not supported (`metaclaw wire` lists the agents that are); by hand:\n",
            "http://127.0.0.1:30000/v1",
            "X-Agent-Id: ironclaw",
        ],
    );
    let refusal = home.refusal(&["unwire", "ironclaw"]).await;
    has(
        &refusal,
        ["\"ironclaw\" is no agent that MetaClaw knows or has wired"],
    );
    // A release that supported the agent wired it, and restored its file when it ended.
    let record =
        r#"{"version": 1, "agent": "ironclaw", "origin": "http://127.0.0.1:30000", "files": []}"#;
    std::fs::create_dir_all(home.path().join("wiring")).unwrap();
    home.write("wiring/ironclaw.wired.json", record);
    let said = home.ask(&["unwire", "ironclaw"]).await;
    has(&said, ["ironclaw: its files are as they were, and stay so"]);
}

#[tokio::test]
async fn a_person_is_asked_once() {
    let upstream = Upstream::new();
    let person = Person::new(&upstream);
    let (shown, worked) = at_terminal(&person.home, &START, &[("[Y/n]", "n")]).await;
    assert!(
        shown.contains("Relay it through MetaClaw? [Y/n]") && !worked,
        "{shown}"
    );
    assert!(shown.contains("nothing was changed"), "{shown}");
    assert!(is_bare(person.home.path()));
    assert_eq!(person.text(), person.before);
    let (shown, worked) = at_terminal(&person.home, &START, &[("[Y/n]", "")]).await;
    assert!(worked && person.asks_us(), "{shown}");
    person.home.ask(&["stop"]).await;
    let (shown, worked) = at_terminal(&person.home, &START, &[]).await;
    assert!(
        worked && person.asks_us() && !shown.contains("[Y/n]"),
        "{shown}"
    );
    person.home.ask(&["uninstall", "--yes"]).await;
    assert_eq!(person.text(), person.before);
}

fn is_bare(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

#[tokio::test]
async fn a_service_unit_comes_and_goes() {
    let home = Home::new("mode: skills_only\n");
    let said = home.ask(&["service", "install"]).await;
    let unit = home.path().join(".config/systemd/user/metaclaw.service");
    let text = std::fs::read_to_string(&unit).unwrap();
    has(&text, ["ExecStart=\"", "Restart=on-failure"]);
    has(&text, [format!("--home \"{}\"", home.path().display())]);
    let socket = unit.with_file_name("metaclaw.socket");
    let text = std::fs::read_to_string(&socket).unwrap();
    assert!(text.contains("ListenStream=127.0.0.1:30000\n"), "{text}");
    has(&said, ["wrote ", "systemctl --user"]);
    assert!(
        home.ask(&["service", "remove"])
            .await
            .starts_with("removed ")
    );
    assert!(!unit.exists() && !socket.exists());
    std::fs::write(&unit, "[Service]\n").unwrap();
    let refusal = home.refusal(&["service", "remove"]).await;
    assert!(refusal.contains("it stays") && unit.exists(), "{refusal}");
}
