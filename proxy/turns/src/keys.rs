//! How the keys of the tables are built, so that a range of keys is a question worth asking.

use std::ops::Bound;

use metaclaw_chat::{AgentId, SessionId, TurnId};

use crate::{store::Key, turn::StateKind};

/// Session number and place, big-endian: turns of a session in order.
pub(crate) fn turn(id: TurnId) -> Key {
    let mut key = id.session.to_be_bytes().to_vec();
    key.extend(id.seq.to_be_bytes());
    key
}

/// The id in a key that ends with [`turn`].
pub(crate) fn read_turn(key: &[u8]) -> Option<TurnId> {
    let (session, seq) = key.last_chunk::<12>()?.split_first_chunk::<8>()?;
    Some(TurnId {
        session: u64::from_be_bytes(*session),
        seq: u32::from_be_bytes(seq.try_into().ok()?),
    })
}

/// A session's number, big-endian.
pub(crate) fn session(number: u64) -> Key {
    number.to_be_bytes().to_vec()
}

/// Agent and session by name. Neither can hold a zero byte.
pub(crate) fn name(agent: &AgentId, session: &SessionId) -> Key {
    let mut key = agent_prefix(agent);
    key.extend(session.as_str().as_bytes());
    key
}

/// Beginning of every key of one agent.
pub(crate) fn agent_prefix(agent: &AgentId) -> Key {
    let mut key = agent.as_str().as_bytes().to_vec();
    key.push(0);
    key
}

/// The turns of one agent in one state.
pub(crate) fn index_prefix(kind: StateKind, agent: &AgentId) -> Key {
    let mut key = vec![kind as u8];
    key.extend(agent_prefix(agent));
    key
}

/// One turn among those of its agent and state.
pub(crate) fn index(kind: StateKind, agent: &AgentId, id: TurnId) -> Key {
    let mut key = index_prefix(kind, agent);
    key.extend(turn(id));
    key
}

/// One turn among all, by the time at which it ended.
pub(crate) fn time(ended_ms: u64, id: TurnId) -> Key {
    let mut key = ended_ms.to_be_bytes().to_vec();
    key.extend(turn(id));
    key
}

/// Everything about one reply id.
pub(crate) fn reply_prefix(reply_id: &str) -> Key {
    blake3::hash(reply_id.as_bytes()).as_bytes()[..16].to_vec()
}

/// One reply id in one session.
pub(crate) fn reply(reply_id: &str, number: u64) -> Key {
    let mut key = reply_prefix(reply_id);
    key.extend(number.to_be_bytes());
    key
}

/// Step `n` of one lineage of one agent.
pub(crate) fn step(agent: &AgentId, lineage: &str, n: u64) -> Key {
    let mut key = agent_prefix(agent);
    key.extend(lineage.as_bytes());
    key.push(0);
    key.extend(n.to_be_bytes());
    key
}

/// The range of keys that begin with `prefix`.
pub(crate) fn under(prefix: &[u8]) -> (Bound<Key>, Bound<Key>) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return (Bound::Included(prefix.to_vec()), Bound::Excluded(end));
        }
    }
    (Bound::Included(prefix.to_vec()), Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_keys_sort_as_turns_and_read_back() {
        let id = |session, seq| TurnId { session, seq };
        let ids = [id(0, 0), id(0, 255), id(0, 256), id(1, 0), id(256, 3)];
        for pair in ids.windows(2) {
            assert!(turn(pair[0]) < turn(pair[1]));
        }
        let agent = AgentId::default_agent();
        for id in ids {
            assert_eq!(read_turn(&index(StateKind::Judged, &agent, id)), Some(id));
        }
        assert_eq!(read_turn(b"short"), None);
    }

    #[test]
    fn one_agents_keys_never_reach_another_whose_name_begins_the_same() {
        let (short, long) = ("a".parse().unwrap(), "ab".parse().unwrap());
        let key = index(StateKind::Judged, &long, TurnId { session: 1, seq: 1 });
        assert!(!key.starts_with(&index_prefix(StateKind::Judged, &short)));
    }

    #[test]
    fn a_prefix_that_ends_in_ff_has_an_end() {
        let (_, end) = under(&[1, 0xff]);
        assert_eq!(end, Bound::Excluded(vec![2]));
        assert_eq!(under(&[0xff]).1, Bound::Unbounded);
    }
}
