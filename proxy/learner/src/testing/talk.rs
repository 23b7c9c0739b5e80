//! Conversations, as the gateway would write them down.

use metaclaw_chat::{AgentId, ChainHash, Message, TurnId, now_ms};
use metaclaw_trainer_api::wire::Sampled;
use metaclaw_turns::{
    NewMessage, NewTurn, Request, Rollout, RolloutMark, Served, Turn, TurnKind, TurnLog, TurnMeta,
    TurnState,
};

use super::{
    World,
    world::{END, ids_of},
};
use crate::sample::POLICY_UPSTREAM;

#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) owner: String,
    pub(crate) reply: String,
    /// The first id of the prompt, by which a test knows the turn again.
    pub(crate) mark: u32,
}

pub(crate) fn said(owner: &str, reply: &str, mark: u32) -> Said {
    Said {
        owner: owner.to_owned(),
        reply: reply.to_owned(),
        mark,
    }
}

/// A question answered at length, a complaint, a short answer, thanks. Its marks are 10·number and so on.
pub(crate) fn corrected_talk(number: u32) -> Vec<Said> {
    let long = "word ".repeat(60);
    vec![
        said(&format!("question {number}"), &long, 10 * number),
        said("Too long.", "It is a short one.", 10 * number + 1),
        said("Thanks.", "You are welcome.", 10 * number + 2),
    ]
}

pub(crate) async fn append(log: &TurnLog, world: &World, session: &str, talk: &[Said]) {
    let agent = AgentId::default_agent();
    append_for(&agent, log, world, session, talk).await;
}

pub(crate) async fn append_for(
    agent: &AgentId,
    log: &TurnLog,
    world: &World,
    session: &str,
    talk: &[Said],
) {
    let author = Author {
        agent: agent.clone(),
        adapter: None,
        rollout: None,
    };
    append_of(&author, log, world, session, talk).await;
}

pub(crate) async fn append_rollout(
    rollout: &Rollout,
    adapter: Option<&str>,
    log: &TurnLog,
    world: &World,
    talk: &[Said],
) {
    let author = Author {
        agent: rollout.agent.clone(),
        adapter: adapter.map(str::to_owned),
        rollout: Some(rollout.mark()),
    };
    let session = rollout.id.session();
    append_of(&author, log, world, session.as_str(), talk).await;
}

pub(crate) async fn append_by(
    adapter: &str,
    log: &TurnLog,
    world: &World,
    session: &str,
    talk: &[Said],
) {
    let author = Author {
        agent: AgentId::default_agent(),
        adapter: Some(adapter.to_owned()),
        rollout: None,
    };
    append_of(&author, log, world, session, talk).await;
}

struct Author {
    agent: AgentId,
    adapter: Option<String>,
    rollout: Option<RolloutMark>,
}

async fn append_of(author: &Author, log: &TurnLog, world: &World, session: &str, talk: &[Said]) {
    let mut messages = Vec::new();
    for said in talk {
        messages.push(Message::user(said.owner.clone()));
        let reply_id = format!("{session}-{}", said.mark);
        let sampled = sampled(&reply_id, &messages, &said.reply);
        world.remember(with_mark(sampled, said.mark));
        let reply = Message::assistant(said.reply.clone());
        let mut turn = turn_of(&author.agent, session, &reply_id, &messages, reply);
        turn.served.adapter = author.adapter.clone();
        if author.rollout.is_some() {
            turn.meta.kind = TurnKind::Rollout;
            turn.served.rollout = author.rollout.clone();
        }
        log.append(turn).await.unwrap();
        messages.push(Message::assistant(said.reply.clone()));
    }
}

pub(crate) fn judged_turn(messages: Vec<Message>) -> Turn {
    let NewTurn {
        agent,
        session,
        meta,
        ..
    } = new_turn("s", "r", &messages, Message::assistant("x"));
    Turn {
        id: TurnId { session: 1, seq: 0 },
        agent,
        session,
        meta,
        parent: None,
        new_from: 0,
        request: Request {
            messages,
            ..Request::default()
        },
        reply: Some(Message::assistant("x")),
        served: Served {
            upstream: POLICY_UPSTREAM.to_owned(),
            ..Served::default()
        },
        state: TurnState::Judged,
        verdict: None,
        overruled: Vec::new(),
        uses: Vec::new(),
        tokens: None,
    }
}

pub(crate) fn new_turn(
    session: &str,
    reply_id: &str,
    messages: &[Message],
    reply: Message,
) -> NewTurn {
    turn_of(
        &AgentId::default_agent(),
        session,
        reply_id,
        messages,
        reply,
    )
}

fn turn_of(
    agent: &AgentId,
    session: &str,
    reply_id: &str,
    messages: &[Message],
    reply: Message,
) -> NewTurn {
    let agent = agent.clone();
    NewTurn {
        session: session.parse().unwrap(),
        meta: TurnMeta {
            reply_id: Some(reply_id.to_owned()),
            finish_reason: Some("stop".to_owned()),
            ..TurnMeta::whole(
                *ChainHash::chain(&agent, messages).last().unwrap(),
                now_ms(),
            )
        },
        messages: NewMessage::all(&agent, messages).unwrap(),
        agent,
        continues: None,
        tools: None,
        params: serde_json::Map::new(),
        reply: Some(reply),
        served: Served {
            upstream: POLICY_UPSTREAM.to_owned(),
            ..Served::default()
        },
        tokens: None,
    }
}

fn with_mark(mut sampled: Sampled, mark: u32) -> Sampled {
    sampled.prompt_ids.insert(0, mark);
    sampled
}

pub(crate) fn sampled(id: &str, messages: &[Message], reply: &str) -> Sampled {
    let mut ids = ids_of(reply);
    ids.push(END);
    Sampled {
        id: id.to_owned(),
        prompt_ids: World::ids_of_messages(messages),
        logprobs: vec![-0.5; ids.len()],
        sampling_logprobs: vec![-0.4; ids.len()],
        ids,
        adapter: None,
        version: None,
        // The world knows its own.
        base: String::new(),
        base_fingerprint: None,
    }
}

pub(crate) fn turn_with(owner: &str, reply: &str) -> Turn {
    Turn {
        reply: Some(Message::assistant(reply)),
        state: TurnState::Captured,
        ..judged_turn(vec![Message::user(owner)])
    }
}
