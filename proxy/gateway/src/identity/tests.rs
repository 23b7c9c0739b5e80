use std::{collections::BTreeSet, time::Duration};

use arc_swap::ArcSwap;
use http::HeaderMap;
use metaclaw_chat::Message;
use tokio::time::advance;

use super::{testing::request, *};

const IDLE: Duration = Duration::from_secs(600);

fn said(texts: &[&str]) -> Vec<Message> {
    let roles = ["user", "assistant"].into_iter().cycle();
    let texts = texts.iter().zip(roles);
    texts
        .map(|(text, role)| Message::new(role, *text))
        .collect()
}

fn session(lineage: &Lineage, agent: &AgentId, messages: &[Message]) -> SessionId {
    let chains = ChainHash::chain(agent, messages);
    lineage.session(agent, None, &chains).session
}

#[tokio::test]
async fn a_session_is_new_at_its_first_request_only() {
    let agent = AgentId::default_agent();
    let lineage = Lineage::new(IDLE, Vec::new());
    let is_new = |texts: &[&str]| {
        let chains = ChainHash::chain(&agent, &said(texts));
        lineage.session(&agent, None, &chains).is_new
    };
    assert!(is_new(&["hi", "hello", "more"]));
    assert!(!is_new(&["hi", "hello", "more"]), "a retry");
    assert!(!is_new(&["hi", "hello", "more", "well", "on"]));
    assert!(is_new(&[]));
    assert!(is_new(&[]), "without a word each is another");
}

#[tokio::test(start_paused = true)]
async fn conversations_that_begin_alike_are_one_only_while_the_first_is_fresh() {
    let agent = AgentId::default_agent();
    let lineage = Lineage::new(IDLE, Vec::new());
    let first = session(&lineage, &agent, &said(&["hi"]));
    assert_eq!(session(&lineage, &agent, &said(&["hi"])), first, "a retry");
    advance(IDLE).await;
    let second = session(&lineage, &agent, &said(&["hi"]));
    assert_ne!(second, first, "another day");
    // Going on is never too late.
    advance(IDLE * 100).await;
    let on = said(&["hi", "hello", "more"]);
    assert_eq!(session(&lineage, &agent, &on), second);
    advance(IDLE).await;
    // The turn before is known.
    assert_eq!(session(&lineage, &agent, &on), second);
}

#[tokio::test]
async fn a_restart_forgets_no_conversation() {
    let agent = AgentId::default_agent();
    let replied = ChainHash::chain(&agent, &said(&["hi", "hello"]));
    let (new, old) = ("new".parse().unwrap(), "old".parse().unwrap());
    let log = [&new, &old].map(|name: &SessionId| (agent.clone(), replied[1], name.clone()));
    let lineage = Lineage::new(IDLE, log.to_vec());
    let found = session(&lineage, &agent, &said(&["hi", "hello", "on"]));
    assert_eq!(found, new);
}

#[tokio::test]
async fn a_canned_greeting_or_system_text_makes_no_two_conversations_one() {
    let agent = AgentId::default_agent();
    let lineage = Lineage::new(IDLE, Vec::new());
    let greeting = Message::assistant("How can I help?");
    let system = [Message::system("x")];
    let greeted = ["a", "b"].map(|text| [greeting.clone(), Message::user(text)]);
    let all = [&greeted[0][..], &greeted[1], &system, &[], &system, &[]];
    let sessions: BTreeSet<_> = all
        .iter()
        .map(|said| session(&lineage, &agent, said))
        .collect();
    assert_eq!(sessions.len(), all.len());
}

#[tokio::test(start_paused = true)]
async fn a_cache_key_tells_conversations_apart_and_makes_no_two_one() {
    let agent = AgentId::default_agent();
    let ask = |lineage: &Lineage, key: &str, texts: &[&str]| {
        let chains = ChainHash::chain(&agent, &said(texts));
        lineage.session(&agent, Some(key), &chains).session
    };
    let lineage = Lineage::new(IDLE, Vec::new());
    let [first, other, same] = ["a", "b", "a"].map(|key| ask(&lineage, key, &["hi"]));
    assert_eq!(first, same, "a retry");
    assert_ne!(first, other);
    let on = |key| ask(&lineage, key, &["hi", "hello", "more"]);
    assert_eq!([on("a"), on("b")], [first.clone(), other]);
    assert_ne!(ask(&lineage, "a", &["something else"]), first);
    // A client that draws a new key at each start goes on with what it repeats, and with nothing that begins alike.
    let talk = ["read notes.txt", "done", "thanks"];
    let read = ask(&lineage, "first start", &talk[..1]);
    assert_ne!(ask(&lineage, "second start", &talk[..1]), read);
    let read = ask(&lineage, "third start", &["read it all"]);
    let on = ask(&lineage, "fourth start", &["read it all", "done", "thanks"]);
    assert_eq!(on, read);
    // The log knows of no keys.
    let chains = ChainHash::chain(&agent, &said(&["hi", "hello"]));
    let lineage = Lineage::new(IDLE, vec![(agent.clone(), chains[1], first.clone())]);
    assert_eq!(ask(&lineage, "a", &["hi", "hello", "on"]), first);
}

fn agent_named(
    identifier: &Identifier,
    caller: &Caller,
    messages: &[Message],
) -> Result<String, IdentityError> {
    let headers = HeaderMap::new();
    let chat = request(messages);
    let claims = Claims {
        headers: &headers,
        chat: &chat,
        caller,
    };
    let (who, _) = identifier.identify(&claims)?;
    Ok(who.agent.to_string())
}

#[tokio::test]
async fn a_users_text_chooses_among_agents_that_are_answered_alike() {
    let config =
        serde_json::from_str(r#"{"office":{"upstream":["own"]},"quiet":{"mode":"skills_only"}}"#);
    let identifier = Identifier::new(
        Lineage::new(IDLE, Vec::new()),
        Delegations::new(&[]),
        SidePatterns::new(&[]).unwrap(),
        &CompatConfig::default(),
        Arc::new(ArcSwap::from_pointee(config.unwrap())),
    );
    let line = |agent: &str| format!("hi\n\nRuntime: agent={agent} | host=h");
    let key =
        |agents: &[&str]| Caller::Of(agents.iter().map(|agent| agent.parse().unwrap()).collect());
    let by_text = |caller: &Caller, agent| {
        let messages = [Message::user(line(agent))];
        agent_named(&identifier, caller, &messages)
    };
    let by_system = |caller: &Caller, agent| {
        let messages = [Message::system(line(agent)), Message::user(line("main"))];
        agent_named(&identifier, caller, &messages).unwrap()
    };
    for caller in [Caller::Any, key(&["main", "office", "quiet", "home"])] {
        assert_eq!(by_text(&caller, "home").unwrap(), "home");
        for agent in ["office", "quiet"] {
            let agent_id = agent.parse().unwrap();
            let refused = Err(IdentityError::ByTextAlone { agent: agent_id });
            assert_eq!(by_text(&caller, agent), refused);
            assert_eq!(by_system(&caller, agent), agent);
        }
    }
    // What the key's own agent says goes to its upstreams, whatever a text says.
    let office = key(&["office", "main"]);
    by_text(&office, "main").unwrap_err();
    assert_eq!(by_text(&office, "office").unwrap(), "office");
    assert_eq!(by_text(&office, "home").unwrap(), "office", "not the key's");
}
