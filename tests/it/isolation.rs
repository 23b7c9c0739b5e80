//! Runs two agents behind one proxy at full load, each with its own key, lessons, mode and upstream: nothing of one may
//! reach the other.
//!
//! Everything that belongs to an agent carries its mark, a word that occurs nowhere else: the owner's messages,
//! lessons, the upstream's key, model and answers. Both use the same session names and begin their conversations with
//! the same words, so that only the agent distinguishes them.

use metaclaw_tests::{
    client::{Client, Refusal},
    echo::{self, Echo},
    external,
    home::{Home, Proxy},
    upstream::Received,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;

/// The agents; each name is its mark.
const AGENTS: [&str; 2] = ["ochre", "indigo"];
/// The number of clients of each agent, and the turns of each, which run at once.
const CLIENTS: usize = 48;
const TURNS: usize = 12;
const WORDS: usize = 4;
const EVERY: Duration = Duration::from_millis(1);

fn other(agent: &str) -> &'static str {
    AGENTS.into_iter().find(|name| *name != agent).unwrap()
}

fn config(upstreams: &[Echo; 2]) -> String {
    let [ochre, indigo] = upstreams.each_ref().map(|upstream| &upstream.base_url);
    format!(
        "
mode: skills_only
proxy:
  keys:
    one: {{key: sk-door-ochre, agents: [ochre]}}
    two: {{key: sk-door-indigo, agents: [indigo]}}
upstreams:
  u-ochre: {{url: {ochre}/v1, keys: [sk-up-ochre], model: model-ochre}}
  u-indigo: {{url: {indigo}/v1, keys: [sk-up-indigo], model: model-indigo}}
agents:
  ochre: {{upstream: [u-ochre], mode: skills_only}}
  indigo: {{upstream: [u-indigo], mode: auto}}
"
    )
}

/// A wish of each agent's own.
fn write_lessons(home: &Home) {
    let skills = home.path().join("skills");
    for agent in AGENTS {
        let folder = skills.join(agent);
        std::fs::create_dir_all(&folder).unwrap();
        let wish = format!("# Wishes\n\n- Answer in the way of {agent}.\n");
        std::fs::write(folder.join("WISHES.md"), wish).unwrap();
    }
}

fn client(proxy: &Proxy, agent: &str) -> Client {
    let key = format!("Bearer sk-door-{agent}");
    Client::with_headers(&proxy.base_url, &[("authorization", &key)])
}

/// A conversation in a session that the other agent has as well; every third names no session.
async fn talk(client: Client, agent: &'static str, n: usize) {
    let session = match n % 3 {
        0 => json!({}),
        1 => json!({"session_id": format!("shared-{n}")}),
        _ => {
            let key = format!("0b3c9a52-0000-4000-8000-{n:012}:0");
            json!({"prompt_cache_key": key, "user": "somebody"})
        }
    };
    let mut messages = vec![
        json!({"role": "user", "content": "Hello."}),
        json!({"role": "assistant", "content": "Hello!"}),
    ];
    for turn in 0..TURNS {
        let told = format!("{agent} {n} {turn}");
        messages.push(json!({"role": "user", "content": told}));
        let reply = client.stream(&messages, &session).await.unwrap();
        assert_eq!(reply.text, echo::reply(&told, WORDS), "of another request");
        messages.push(json!({"role": "assistant", "content": reply.text}));
    }
}

/// Everything that arrived at an agent's upstream belongs to that agent.
fn assert_own(received: &[Received], agent: &str) {
    assert_eq!(received.len(), CLIENTS * TURNS, "{agent}");
    let (foreign, lesson) = (other(agent), format!("in the way of {agent}"));
    for request in received {
        let _body = String::from_utf8_lossy(&request.body);
        let shown = request.text();
        assert!(!shown.contains(foreign), "{foreign} at {agent}: {shown}");
        assert!(!shown.contains("sk-door"), "a key of the door: {shown}");
        assert_eq!(
            request.header("authorization"),
            Some(format!("Bearer sk-up-{agent}").as_str())
        );
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["model"], format!("model-{agent}"));
        let system = body["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains(&lesson), "without its lesson: {shown}");
    }
}

/// The log has every turn under its agent, and nothing of the other in it.
async fn assert_kept_apart(home: &Home) {
    let output = home.command(&["turns", "export"]).output().await.unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut counts = [0; AGENTS.len()];
    for line in lines.lines() {
        let mut turn: Value = serde_json::from_str(line).unwrap();
        // The last turn comes with the counts of the whole log.
        turn.as_object_mut().unwrap().shift_remove("log_counts");
        let agent = turn["agent"].as_str().unwrap();
        let index = AGENTS.iter().position(|name| *name == agent).unwrap();
        counts[index] += 1;
        assert!(!turn.to_string().contains(other(agent)), "{line}");
    }
    assert_eq!(counts, [CLIENTS * TURNS; AGENTS.len()]);
}

/// A key allows only its own agent, whatever the request says.
async fn assert_closed_to_the_other(proxy: &Proxy) {
    let hello = [json!({"role": "user", "content": "Hello."})];
    for agent in AGENTS {
        let key = format!("Bearer sk-door-{agent}");
        let headers = [
            ("authorization", key.as_str()),
            ("x-agent-id", other(agent)),
        ];
        let client = Client::with_headers(&proxy.base_url, &headers);
        let refused = client.stream(&hello, &json!({})).await;
        assert!(
            matches!(refused, Err(Refusal::Status { status: 403, .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn nothing_of_one_agent_reaches_another_at_full_load() {
    let bin_dir = external::bin_dir();
    let upstreams = [Echo::start(WORDS, EVERY), Echo::start(WORDS, EVERY)];
    let home = Home::new(&bin_dir, &config(&upstreams));
    write_lessons(&home);
    let proxy = home.start().await.unwrap();
    let mut clients = JoinSet::new();
    for agent in AGENTS {
        let client = client(&proxy, agent);
        for n in 0..CLIENTS {
            clients.spawn(talk(client.clone(), agent, n));
        }
    }
    clients.join_all().await;
    assert_closed_to_the_other(&proxy).await;
    proxy.stop().await.unwrap();
    for (upstream, agent) in upstreams.iter().zip(AGENTS) {
        assert_own(&upstream.received(), agent);
    }
    assert_kept_apart(&home).await;
}
