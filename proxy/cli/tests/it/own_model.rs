//! Agents that keep their own model and login: one command sets them up, and the settings of others do not reach them.

use metaclaw_test_kit::post;
use serde_json::{Value, json};

use crate::{
    harness::{Home, Upstream, has},
    output::at_terminal,
};

const KEY: &str = "authorization: Bearer sk-own\r\n";
const CODEX: &str = ".codex/config.toml";
const OPENCODE: &str = ".config/opencode/opencode.json";

/// A home with Codex, which asks this upstream, and nothing of MetaClaw's.
fn with_codex(upstream: &Upstream) -> (Home, String) {
    let home = Home::bare()
        .with_variable("METACLAW__PROXY__PORT", "0")
        .with_variable("METACLAW__UI__PORT", "0");
    let codex = format!(
        "# mine\nmodel = \"gpt-mine\"\nopenai_base_url = \"{}\" # paid by work\n",
        upstream.url
    );
    home.write(CODEX, &codex);
    (home, codex)
}

fn run_file(home: &Home) -> Value {
    serde_json::from_str(&home.read("run.json")).unwrap()
}

/// Sends a chat as this agent sends it to the proxy.
async fn chat(home: &Home, agent: &str) {
    let url = run_file(home)["base_url"].as_str().unwrap().to_owned();
    let origin = url.strip_suffix("/v1").unwrap();
    let body = json!({"model": "gpt-mine", "messages": [{"role": "user", "content": "Hello"}]});
    let headers = format!("{KEY}x-agent-id: {agent}\r\n");
    let reply = post(origin, "/v1/chat/completions", &headers, &body).await;
    has(reply.unwrap(), ["answer to 1"]);
}

/// Asks the control listener of the running process.
async fn control(home: &Home, path: &str, body: &Value) -> String {
    let run = run_file(home);
    let origin = format!("http://{}", run["control"].as_str().unwrap());
    let token = run["token"].as_str().unwrap();
    let headers = format!("authorization: Bearer {token}\r\n");
    post(&origin, path, &headers, body).await.unwrap()
}

/// Wires opencode to another provider while the proxy runs, and then changes a setting behind its back.
async fn status_follows_what_is_wired_meanwhile(home: &Home, opencode: &str) {
    home.write(OPENCODE, opencode);
    home.ask(&["wire", "opencode"]).await;
    let status = home.ask(&["status"]).await;
    has(
        &status,
        ["leaves:  models.example: chats of agent opencode"],
    );
    let listed: Value = serde_json::from_str(&home.ask(&["status", "--json"]).await).unwrap();
    assert_eq!(listed["about"]["places"]["codex"], "this machine");
    assert_eq!(listed["about"]["places"]["opencode"], "models.example");
    let settings = home.read("config.yaml");
    home.ask(&["config", "wishes.wait", "9 s"]).await;
    has(&home.ask(&["status"]).await, ["changed since the start"]);
    home.write("config.yaml", &settings);
}

#[tokio::test]
async fn one_command_sets_an_agent_up_and_several_have_several_upstreams() {
    let (work, home_server) = (Upstream::new(), Upstream::new());
    let (home, codex) = with_codex(&work);
    let told = home.ask(&["wire", "codex"]).await;
    let asks = format!(
        "Codex asks gpt-mine at {} today, and goes on asking it",
        work.address
    );
    has(
        &told,
        [
            asks.as_str(),
            "base URL",
            "Codex asks MetaClaw; `metaclaw stop` puts",
        ],
    );
    assert!(home.read(CODEX).contains("requires_openai_auth = true"));
    chat(&home, "codex").await;
    assert_eq!((work.n_asked(), &*work.shown()), (1, "Bearer sk-own"));
    assert_eq!(work.models(), ["gpt-mine"]);
    let checked = home.ask(&["doctor"]).await;
    let answers = format!("{}/models answers; the key is the agent's own", work.url);
    has(&checked, ["ok    codex", answers.as_str()]);

    // Another provider, whose key MetaClaw sends. The proxy runs, and takes it at once.
    let opencode = format!(
        "{{\"model\": \"mine/m\", \"provider\": {{\"mine\": {{\"options\": {{\"baseURL\": \"{}\", \"apiKey\": \"sk-opencode\"}}}}}}}}\n",
        home_server.url
    );
    home.write(OPENCODE, &opencode);
    let told = home.ask(&["wire", "opencode"]).await;
    assert!(
        !told.contains("sk-opencode") && !told.contains("base URL"),
        "{told}"
    );
    chat(&home, "opencode").await;
    assert_eq!(home_server.shown(), "Bearer sk-opencode");
    let status = home.ask(&["status"]).await;
    let serves = format!(
        "serves:  codex at {}, opencode at {}\n",
        work.address, home_server.address
    );
    has(&status, [serves]);
    assert!(!status.contains("changed since the start"), "{status}");
    status_follows_what_is_wired_meanwhile(
        &home,
        &opencode.replace(&home_server.url, "https://models.example/v1"),
    )
    .await;
    home.write(OPENCODE, &opencode);
    home.ask(&["wire", "opencode"]).await;
    chat(&home, "codex").await;
    assert_eq!((work.n_asked(), home_server.n_asked()), (2, 1));

    // The next start points both here again.
    home.ask(&["stop"]).await;
    assert_eq!(
        (home.read(CODEX), home.read(OPENCODE)),
        (codex.clone(), opencode.clone())
    );
    home.ask(&["start", "-d"]).await;
    chat(&home, "codex").await;
    assert_eq!(work.n_asked(), 3);
    let listed = home.ask(&["wire"]).await;
    let asks = format!("its own model at {}", work.address);
    has(&listed, [asks.as_str(), "asks MetaClaw"]);
    // Their addresses are for them alone.
    let shown = home.ask(&["wire", "--show", "mine"]).await;
    has(&shown, ["Nobody answers it yet: `metaclaw setup`"]);
    assert!(!shown.contains("has the provider's"), "{shown}");
    let own_sections = || ["codex:", "opencode:"].map(|own| home.read("config.yaml").contains(own));
    home.ask(&["unwire", "codex"]).await;
    assert_eq!(own_sections(), [false, true]);
    home.ask(&["unwire"]).await;
    assert_eq!(own_sections(), [false, false]);
    assert_eq!((home.read(CODEX), home.read(OPENCODE)), (codex, opencode));
    home.ask(&["stop"]).await;
}

/// What the owner wrote there stays, and so does what the owner changed or uses elsewhere.
#[tokio::test]
async fn unwire_takes_out_of_the_settings_what_wire_wrote_and_nothing_else() {
    let upstream = Upstream::new();
    let by_hand = format!("upstreams: {{codex: {{url: '{}'}}}}\n", upstream.url);
    let changed = "config.yaml stays: it was changed since";
    for (before, change, told, stays) in [
        ("", [].as_slice(), "is taken out", [false, false]),
        (
            "agents: {codex: {mode: skills_only}}\n",
            &[],
            "is taken out",
            [true, false],
        ),
        (&by_hand, &[], "is taken out", [false, true]),
        (
            "",
            &["upstreams.codex.model", "other"],
            changed,
            [true, true],
        ),
        (
            "",
            &["upstreams.codex.url", "http://127.0.0.1:9"],
            changed,
            [true, true],
        ),
        // Another agent uses the upstream, so a start without it would be refused.
        (
            "",
            &["agents.kim.upstream", "codex"],
            "config.yaml stays: ",
            [true, true],
        ),
    ] {
        let (home, _) = with_codex(&upstream);
        home.write(
            "config.yaml",
            format!("# mine\nmode: skills_only\n{before}"),
        );
        for _ in 0..2 {
            home.ask(&["wire", "codex", "--no-start"]).await;
        }
        if let [key, value] = change {
            home.ask(&["config", key, value]).await;
        }
        let said = home.ask(&["unwire", "codex"]).await;
        has(&said, [told]);
        let settings = home.json(&["config", "--json"]).await.to_string();
        let is_there = ["agents.codex.", "upstreams.codex."].map(|own| settings.contains(own));
        assert_eq!(is_there, stays, "{}", home.read("config.yaml"));
        has(home.read("config.yaml"), ["# mine\nmode: skills_only\n"]);
    }
}

/// `wire` must write into the settings file that the running process has read.
#[tokio::test]
async fn the_settings_file_of_the_running_process_gets_the_agents_own_provider() {
    let (own, other) = (Upstream::new(), Upstream::new());
    let (home, codex) = with_codex(&own);
    let llm = format!("llm: {{api_base: '{}', model_id: scripted}}\n", other.url);
    home.write("mine.yaml", &llm);
    let file = home.path().join("mine.yaml").display().to_string();
    home.ask(&["start", "-d", "-c", &file]).await;
    home.ask(&["wire", "codex"]).await;
    chat(&home, "codex").await;
    assert_eq!((own.n_asked(), other.n_asked()), (1, 0));
    let said = home.ask(&["unwire", "codex"]).await;
    has(&said, ["mine.yaml is taken out"]);
    assert!(!home.read("mine.yaml").contains("codex"));
    home.ask(&["stop"]).await;
    assert_eq!(
        (home.read(CODEX), home.read("config.yaml")),
        (codex, String::new())
    );
}

#[tokio::test]
async fn where_another_model_would_answer_the_owner_is_asked() {
    let (own, other) = (Upstream::new(), Upstream::new());
    let (home, codex) = with_codex(&own);
    let llm = format!(
        "llm: {{api_base: '{}', model_id: scripted, api_key: sk-0123456789abcd}}\n",
        other.url
    );
    let is_kept = || home.read("config.yaml").contains("codex:");
    let wire = ["wire", "codex", "--no-start"];
    let question = format!(
        "Codex asks gpt-mine at {} today. Here scripted at {} would answer it.",
        own.address, other.address
    );
    for (answer, keeps) in [("", true), ("n", false)] {
        home.write("config.yaml", &llm);
        let keep = [("Keep its own model? [Y/n]", answer)];
        let (seen, is_done) = at_terminal(&home, &wire, &keep).await;
        assert!(is_done && seen.contains(&question), "{seen}");
        assert_eq!(is_kept(), keeps, "{seen}");
    }
    // Without a terminal nothing is asked.
    let told = home.ask(&wire).await;
    has(
        &told,
        [question.as_str(), "It keeps its own model; --replace-model"],
    );
    assert!(is_kept());
    // Once kept, it is not asked about again.
    let told = home.ask(&wire).await;
    assert!(!told.contains("would answer"), "{told}");
    home.ask(&["wire", "codex", "--no-start", "--replace-model"])
        .await;
    assert!(!is_kept(), "{}", home.read("config.yaml"));
    // What the owner had set for the agent stays.
    let owners = format!("{llm}agents:\n  codex:\n    mode: skills_only\n");
    home.write("config.yaml", &owners);
    home.ask(&wire).await;
    has(
        home.read("config.yaml"),
        ["upstream: [\"codex\"]", "upstreams:"],
    );
    home.ask(&["wire", "codex", "--no-start", "--replace-model"])
        .await;
    let left = home.read("config.yaml");
    has(&left, [owners.as_str()]);
    assert!(!left.contains("upstream: ["), "{left}");
    home.ask(&["start", "-d"]).await;
    chat(&home, "codex").await;
    assert_eq!((own.n_asked(), other.n_asked()), (0, 1));
    home.ask(&["stop"]).await;
    assert_eq!(home.read(CODEX), codex);
}

#[tokio::test]
async fn what_cannot_be_wired_changes_nothing() {
    let itself = "Codex asks MetaClaw itself (";
    let unusable = "that MetaClaw cannot use. Set one like";
    for (url, why) in [
        ("http://127.0.0.1:30000/v1", itself),
        ("http://localhost:30000", itself),
        ("http://me:secret@host.example/v1", unusable),
        ("https://host.example/v1?key=secret", unusable),
    ] {
        let home = Home::bare();
        let codex = format!("openai_base_url = \"{url}\"\n");
        home.write(CODEX, &codex);
        let refusal = home.refusal(&["wire", "codex"]).await;
        has(&refusal, [why]);
        assert!(!refusal.contains("secret"), "{refusal}");
        let after = (home.read(CODEX), home.read("config.yaml"));
        assert_eq!(after, (codex, String::new()));
    }
    let home = Home::bare();
    home.write(CODEX, "");
    let file = home.path().join(CODEX);
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere.toml", &file).unwrap();
    let refusal = home.refusal(&["wire", "codex"]).await;
    has(&refusal, ["it is a link to a file that is not there"]);
    assert!(file.is_symlink() && home.read("config.yaml").is_empty());
}

#[tokio::test]
async fn a_wire_trains_nothing_where_no_mode_and_no_model_is_set() {
    let upstream = Upstream::new();
    for settings in ["", "log: {level: info}\n"] {
        let (home, _) = with_codex(&upstream);
        home.write("config.yaml", settings);
        home.ask(&["wire", "codex", "--no-start"]).await;
        assert_eq!(home.ask(&["config", "mode"]).await, "skills_only");
    }
}

#[tokio::test]
async fn a_first_start_offers_the_agents_that_it_finds() {
    let upstream = Upstream::new();
    let (home, codex) = with_codex(&upstream);
    let refusal = home.refusal(&["start", "-d"]).await;
    has(
        &refusal,
        ["nothing to relay yet: `metaclaw wire codex` relays what that agent asks"],
    );
    let yes = [("Relay it through MetaClaw? [Y/n]", "")];
    let (seen, is_done) = at_terminal(&home, &["start", "-d"], &yes).await;
    let found = format!("Found Codex: asks gpt-mine at {}", upstream.address);
    assert!(is_done && seen.contains(&found), "{seen}");
    chat(&home, "codex").await;
    assert_eq!(upstream.shown(), "Bearer sk-own");
    home.ask(&["stop"]).await;
    assert_eq!(home.read(CODEX), codex);
}

#[tokio::test]
async fn the_running_process_connects_and_disconnects_agents_for_the_page() {
    let (own, other) = (Upstream::new(), Upstream::new());
    let (home, codex) = with_codex(&own);
    let llm = format!("llm: {{api_base: '{}', model_id: scripted}}\n", other.url);
    home.write("config.yaml", &llm);
    home.ask(&["start", "-d"]).await;
    let found = control(&home, "/agents", &Value::Null).await;
    let asks = format!("gpt-mine at {}", own.address);
    has(
        &found,
        ["\"agent\":\"codex\"", "\"is\":\"not_wired\"", asks.as_str()],
    );
    let told = control(&home, "/agent", &json!({"Connect": "codex"})).await;
    has(&told, ["Codex asks MetaClaw at"]);
    chat(&home, "codex").await;
    assert_eq!((own.n_asked(), other.n_asked()), (1, 0));
    let found = control(&home, "/agents", &Value::Null).await;
    has(&found, ["\"is\":\"wired\""]);
    let told = control(&home, "/agent", &json!({"Disconnect": "codex"})).await;
    has(&told, ["as before, byte for byte"]);
    assert_eq!(home.read(CODEX), codex);
    for (change, why) in [
        (json!({"Connect": "llm"}), "do not say which model it asks"),
        (
            json!({"Connect": "../x"}),
            "is no agent that MetaClaw knows",
        ),
    ] {
        let refused = control(&home, "/agent", &change).await;
        has(&refused, ["409", why]);
    }
    home.ask(&["stop"]).await;
}
