//! The first minute, and the way back: OpenClaw's file as its owner wrote it, before and after.

use std::{
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    harness::{TestHome, Upstream, exchange, until},
    output::terminal,
};

/// A person with OpenClaw, and nothing of ours yet.
struct Person {
    _folder: tempfile::TempDir,
    file: PathBuf,
    before: String,
    home: TestHome,
}

impl Person {
    fn new(upstream: &Upstream) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("openclaw.json");
        let before = format!(
            "// mine\n{{models: {{providers: {{cloud: {{baseUrl: '{}', apiKey: '${{CLOUD_KEY}}', api: 'openai-completions',\n  models: [{{id: 'm', name: 'M', contextWindow: 64000,}}]}}}}}},\n agents: {{defaults: {{model: 'cloud/m', sandbox: {{mode: 'all'}}}}}}}}\n",
            upstream.url
        );
        std::fs::write(&file, &before)?;
        std::fs::write(folder.path().join(".env"), "CLOUD_KEY=sk-0123456789abcd\n")?;
        let home = TestHome::bare()?.with_variable("OPENCLAW_STATE_DIR", folder.path());
        Ok(Self {
            _folder: folder,
            file,
            before,
            home,
        })
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap_or_default()
    }

    fn asks_us(&self) -> bool {
        self.text().contains("\"primary\": \"metaclaw/m\"")
    }

    /// One turn, as OpenClaw would send it by what stands in its file.
    async fn turn(&self) -> Result<String> {
        let text = self.text();
        let address = text
            .split("\"baseUrl\": \"")
            .nth(1)
            .and_then(|it| it.split('"').next());
        let origin = address
            .and_then(|it| it.strip_suffix("/v1"))
            .context("no address of ours")?;
        let body =
            json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}]}).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer metaclaw\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        exchange(origin, &(head + &body)).await
    }

    async fn doctor(&self, arguments: &[&str]) -> Result<(bool, Value)> {
        let arguments: Vec<&str> = ["doctor", "--json"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        let output = self.home.run(&arguments).await?;
        let checks = serde_json::from_slice(&output.stdout)?;
        Ok((output.status.success(), checks))
    }

    /// Kills the proxy, and before it the parent that would start it again. Returns when it has released its home.
    async fn kill(&self) -> Result<()> {
        let run: Value =
            serde_json::from_slice(&std::fs::read(self.home.path().join("run.json"))?)?;
        let proxy = i32::try_from(run["pid"].as_i64().context("no pid")?)?;
        let status = std::fs::read_to_string(format!("/proc/{proxy}/status"))?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let parent = parent.context("no parent")?.trim().parse()?;
        for pid in [parent, proxy] {
            kill_process(Pid::from_raw(pid).context("no pid")?, Signal::KILL)?;
        }
        let has_ended = || {
            let status = std::fs::read_to_string(format!("/proc/{proxy}/status"));
            status.map_or(true, |it| it.contains("State:\tZ"))
        };
        until(async || Ok(has_ended())).await
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
    let upstream = Upstream::new().await.unwrap();
    let person = Person::new(&upstream).unwrap();
    let home = &person.home;
    let said = home
        .ask(&["start", "-d", "--port", "0", "--yes"])
        .await
        .unwrap();
    assert!(said.starts_with("Found OpenClaw: "), "{said}");
    assert!(
        said.contains("CLOUD_KEY in OpenClaw's .env") && !said.contains("0123456789"),
        "{said}"
    );
    assert!(
        said.contains("agent     OpenClaw asks metaclaw/m, and cloud/m where that fails"),
        "{said}"
    );
    assert!(said.contains("try       openclaw agent"), "{said}");
    assert!(
        person.text().starts_with("// mine\n") && person.asks_us(),
        "{}",
        person.text()
    );
    assert!(
        person.text().contains("sandbox: {mode: 'all'}"),
        "{}",
        person.text()
    );
    let reply = person.turn().await.unwrap();
    assert!(reply.contains("answer to 1"), "{reply}");
    assert_eq!(upstream.n_asked(), 1);
    let (is_well, checks) = person.doctor(&[]).await.unwrap();
    assert!(is_well, "{checks}");
    assert_eq!(
        (verdict(&checks, "agent"), verdict(&checks, "proxy")),
        ("fine", "fine"),
        "{checks}"
    );
    home.ask(&["stop"]).await.unwrap();
    assert_eq!(person.text(), person.before);

    // The yes is remembered.
    home.ask(&START).await.unwrap();
    assert!(person.asks_us());
    let said = home.ask(&["uninstall", "--yes"]).await.unwrap();
    assert!(
        said.contains("OpenClaw: ") || person.text() == person.before,
        "{said}"
    );
    assert_eq!(person.text(), person.before);
    assert!(!home.path().exists(), "{said}");
}

#[tokio::test]
async fn what_a_crash_leaves_is_named_and_put_back() {
    let upstream = Upstream::new().await.unwrap();
    let person = Person::new(&upstream).unwrap();
    let home = &person.home;
    home.ask(&["start", "-d", "--port", "0", "--yes"])
        .await
        .unwrap();
    person.kill().await.unwrap();
    assert!(person.asks_us());
    let (is_well, checks) = person.doctor(&[]).await.unwrap();
    assert!(!is_well && verdict(&checks, "agent") == "bad", "{checks}");
    let (is_well, checks) = person.doctor(&["--fix"]).await.unwrap();
    assert!(is_well && verdict(&checks, "agent") == "mended", "{checks}");
    assert_eq!(person.text(), person.before);

    home.ask(&START).await.unwrap();
    person.kill().await.unwrap();
    // The next start goes on from there, at another port, and keeps what was there at the beginning.
    home.ask(&START).await.unwrap();
    assert!(person.turn().await.unwrap().contains("answer to 1"));
    person.kill().await.unwrap();
    let said = home.ask(&["stop"]).await.unwrap();
    assert!(said.contains("byte for byte"), "{said}");
    assert_eq!(person.text(), person.before);

    // Another model of its owner's choice is not relayed unasked.
    let other = person
        .before
        .replace("'m'", "'next'")
        .replace("cloud/m", "cloud/next");
    std::fs::write(&person.file, &other).unwrap();
    let said = home.ask(&START).await.unwrap();
    assert!(
        said.contains("OpenClaw asks cloud/next now, and is left alone"),
        "{said}"
    );
    home.ask(&["stop"]).await.unwrap();
    assert_eq!(person.text(), other);
    home.ask(&["start", "-d", "--port", "0", "--yes"])
        .await
        .unwrap();
    assert!(person.text().contains("metaclaw/next"));
    assert_eq!(home.ask(&["config", "llm.model_id"]).await.unwrap(), "next");
    std::fs::write(home.path().join("mine.txt"), "not theirs").unwrap();
    let said = home.ask(&["uninstall", "--yes"]).await.unwrap();
    assert!(said.contains("as it is not ours: mine.txt"), "{said}");
    assert_eq!(person.text(), other);
}

#[tokio::test]
async fn nothing_is_done_unasked() {
    let upstream = Upstream::new().await.unwrap();
    let person = Person::new(&upstream).unwrap();
    let refusal = person.home.refusal(&["start"]).await.unwrap();
    assert!(
        refusal.contains("`metaclaw start --yes` relays what OpenClaw asks (cloud/m)"),
        "{refusal}"
    );
    let refusal = person.home.refusal(&["uninstall"]).await.unwrap();
    assert!(refusal.contains("nothing was changed"), "{refusal}");
    let alone = TestHome::bare().unwrap();
    let refusal = alone.refusal(&["start"]).await.unwrap();
    assert!(
        refusal.contains("no OpenClaw is configured here: `metaclaw setup`"),
        "{refusal}"
    );
    // Relayed, and its file left alone.
    let home = &person.home;
    let said = home
        .ask(&["start", "-d", "--port", "0", "--no-wire"])
        .await
        .unwrap();
    assert!(!said.contains("  agent  "), "{said}");
    home.ask(&["stop"]).await.unwrap();
    // A configuration that is there is not asked about again.
    home.ask(&START).await.unwrap();
    home.ask(&["stop"]).await.unwrap();
    assert_eq!(person.text(), person.before);
}

/// What `start -d` says on a terminal where somebody types `answer`, and whether it worked.
async fn at_a_terminal(home: &TestHome, answer: &str) -> Result<(String, bool)> {
    let (mut terminal, side) = terminal()?;
    let mut command = home.command(&START);
    command
        .stdin(side.try_clone()?)
        .stderr(side.try_clone()?)
        .stdout(side);
    let mut child = command.spawn()?;
    drop(command);
    terminal.write_all(answer.as_bytes())?;
    let status = child.wait().await?;
    let mut shown = Vec::new();
    // Ends with an error when nobody has the other side any more.
    terminal.read_to_end(&mut shown).ok();
    Ok((
        String::from_utf8_lossy(&shown).into_owned(),
        status.success(),
    ))
}

#[tokio::test]
async fn a_person_is_asked_once() {
    let upstream = Upstream::new().await.unwrap();
    let person = Person::new(&upstream).unwrap();
    let (shown, worked) = at_a_terminal(&person.home, "n\n").await.unwrap();
    assert!(
        shown.contains("Relay it through MetaClaw? [Y/n]") && !worked,
        "{shown}"
    );
    assert!(shown.contains("nothing was changed"), "{shown}");
    assert!(is_bare(person.home.path()));
    assert_eq!(person.text(), person.before);
    let (shown, worked) = at_a_terminal(&person.home, "\n").await.unwrap();
    assert!(worked && person.asks_us(), "{shown}");
    person.home.ask(&["stop"]).await.unwrap();
    let (shown, worked) = at_a_terminal(&person.home, "").await.unwrap();
    assert!(
        worked && person.asks_us() && !shown.contains("[Y/n]"),
        "{shown}"
    );
    person.home.ask(&["uninstall", "--yes"]).await.unwrap();
    assert_eq!(person.text(), person.before);
}

fn is_bare(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

#[tokio::test]
async fn a_service_unit_comes_and_goes() {
    let home = TestHome::new("mode: skills_only\n").unwrap();
    let said = home.ask(&["service", "install"]).await.unwrap();
    let unit = home.path().join(".config/systemd/user/metaclaw.service");
    let text = std::fs::read_to_string(&unit).unwrap();
    assert!(
        text.contains("ExecStart=\"") && text.contains("Restart=on-failure"),
        "{text}"
    );
    assert!(
        text.contains(&format!("--home \"{}\"", home.path().display())),
        "{text}"
    );
    let socket = unit.with_file_name("metaclaw.socket");
    let text = std::fs::read_to_string(&socket).unwrap();
    assert!(text.contains("ListenStream=127.0.0.1:30000\n"), "{text}");
    assert!(
        said.contains("wrote ") && said.contains("systemctl --user"),
        "{said}"
    );
    assert!(
        home.ask(&["service", "remove"])
            .await
            .unwrap()
            .starts_with("removed ")
    );
    assert!(!unit.exists() && !socket.exists());
    std::fs::write(&unit, "[Service]\n").unwrap();
    let refusal = home.refusal(&["service", "remove"]).await.unwrap();
    assert!(refusal.contains("it stays") && unit.exists(), "{refusal}");
}
