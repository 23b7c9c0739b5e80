//! Tests that each of several people in one conversation has wishes of her own.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::{Home, Request, Running, Server, says};

struct Person {
    id: &'static str,
    wish: &'static str,
}

/// Three people whose wishes contradict each other. The first is the owner, whose wishes are for all.
const PEOPLE: [Person; 3] = [
    Person {
        id: "1",
        wish: "Please always answer in one sentence.",
    },
    Person {
        id: "100",
        wish: "From now on explain everything in detail.",
    },
    Person {
        id: "200",
        wish: "Please always answer in at most ten words.",
    },
];
const SESSIONS: usize = 30;
const TURNS_EACH: usize = 10;

/// A message as OpenClaw sends it in a group.
fn message(person: &Person, text: &str) -> String {
    format!(
        "Conversation info: ⟦openclaw:ctx⟧\n```json\n{{\n  \"is_group_chat\": true,\n  \"sender\": {{\"id\": \"{}\"}}\n}}\n```\n\n{text}",
        person.id
    )
}

async fn talk(proxy: &Running, session: &str, n_turns: usize, text: impl Fn(&Person) -> String) {
    let mut said: Vec<String> = Vec::new();
    for turn in 0..n_turns {
        let person = &PEOPLE[turn % PEOPLE.len()];
        said.push(message(person, &text(person)));
        let words: Vec<&str> = said.iter().map(String::as_str).collect();
        let answer = proxy.chat(session, &words).await;
        said.push(answer);
    }
}

#[tokio::test]
async fn three_people_with_contrary_wishes_never_get_each_others_in_300_turns() {
    let n_asked = AtomicUsize::new(0);
    let upstream = Server::new(move |request| {
        let n = n_asked.fetch_add(1, Ordering::Relaxed);
        says(&request.json(), &format!("answer {n}"))
    });
    let address = upstream.address;
    let home = Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: 'http://{address}/v1', model_id: m, api_key: sk-0123456789abcd}}\nwishes: {{owners: ['1']}}\n"
    ));
    let proxy = home.start().await;

    talk(&proxy, "wishes", PEOPLE.len(), |person| {
        person.wish.to_owned()
    })
    .await;
    let is_heard = |listed: &Value| {
        let people = &listed["people"];
        people["100"] == json!([PEOPLE[1].wish]) && people["200"] == json!([PEOPLE[2].wish])
    };
    let listed = home
        .json_until(&["wishes", "list", "--json"], is_heard)
        .await;
    assert_eq!(listed["wishes"], json!([PEOPLE[0].wish]));
    let shown = home.ask(&["wishes", "list"]).await;
    assert!(shown.contains("100's (--sender)"), "{shown}");

    let n_before = upstream.asked().len();
    for session in 0..SESSIONS {
        let session = format!("day-{session}");
        talk(&proxy, &session, TURNS_EACH, |_| "What is rain?".to_owned()).await;
    }
    let requests: Vec<Value> = upstream.asked()[n_before..]
        .iter()
        .map(Request::json)
        .collect();
    // The model is also asked what the people wish, without what OpenClaw writes around their words.
    let is_chat = |it: &&Value| it["messages"].to_string().contains("is_group_chat");
    let chats: Vec<&Value> = requests.iter().filter(is_chat).collect();
    assert_eq!(chats.len(), SESSIONS * TURNS_EACH);
    for chat in chats {
        let messages = chat["messages"].as_array().unwrap();
        let system = messages[0]["content"].as_str().unwrap();
        assert!(system.contains(PEOPLE[0].wish), "{system}");
        for other in &PEOPLE[1..] {
            assert!(!system.contains(other.wish), "{system}");
        }
        let users = messages.iter().filter(|it| it["role"] == "user");
        for message in users.map(|it| it["content"].as_str().unwrap()) {
            let person = PEOPLE
                .iter()
                .find(|it| message.contains(&format!("{{\"id\": \"{}\"}}", it.id)))
                .unwrap();
            for (at, other) in PEOPLE.iter().enumerate() {
                let is_hers = at > 0 && other.id == person.id;
                assert_eq!(message.contains(other.wish), is_hers, "{message}");
            }
        }
    }

    let removed = home
        .ask(&["wishes", "remove", PEOPLE[1].wish, "--sender", "100"])
        .await;
    assert!(removed.contains("taken out"), "{removed}");
    home.stop(proxy).await;
}
