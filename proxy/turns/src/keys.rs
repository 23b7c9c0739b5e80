//! Builds the keys of the tables, so that ranges of keys answer useful queries.

use std::ops::Bound;

use metaclaw_chat::{AgentId, RolloutId, SessionId, TurnId};

use crate::{store::Bytes, text::Hash, turn::StateKind};

pub(crate) fn id(session: u64, seq: u32) -> TurnId {
    TurnId { session, seq }
}

/// Session number and place, big-endian, so that the turns of a session are in order.
pub(crate) fn turn(id: TurnId) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.session.to_be_bytes());
    key[8..].copy_from_slice(&id.seq.to_be_bytes());
    key
}

pub(crate) fn read_turn(key: &[u8]) -> Option<TurnId> {
    let (session, seq) = key.last_chunk::<12>()?.split_first_chunk::<8>()?;
    Some(TurnId {
        session: u64::from_be_bytes(*session),
        seq: u32::from_be_bytes(seq.try_into().ok()?),
    })
}

pub(crate) fn read_first_piece(key: &[u8]) -> Option<TurnId> {
    (key.len() == 12).then(|| read_turn(key)).flatten()
}

/// Returns the key of one piece of a long value. The first piece has the value's own key.
pub(crate) fn piece(key: &[u8], piece: u16) -> Vec<u8> {
    match piece {
        0 => key.to_vec(),
        _ => [key, &piece.to_be_bytes()].concat(),
    }
}

pub(crate) fn session(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Returns the key for agent and session by name. Neither name can contain a zero byte.
pub(crate) fn name(agent: &AgentId, session: &SessionId) -> Vec<u8> {
    [agent.as_str().as_bytes(), &[0], session.as_str().as_bytes()].concat()
}

pub(crate) fn agent(agent: &AgentId) -> Vec<u8> {
    [agent.as_str().as_bytes(), &[0]].concat()
}

pub(crate) fn day(day: u32, name: &AgentId) -> Vec<u8> {
    [&day.to_be_bytes()[..], &agent(name)].concat()
}

pub(crate) fn read_agent(key: &[u8]) -> Option<AgentId> {
    let name = key.split(|byte| *byte == 0).next()?;
    str::from_utf8(name).ok()?.parse().ok()
}

pub(crate) fn index_prefix(kind: StateKind, agent: &AgentId) -> Vec<u8> {
    [&[kind as u8], agent.as_str().as_bytes(), &[0]].concat()
}

pub(crate) fn index(kind: StateKind, agent: &AgentId, id: TurnId) -> Vec<u8> {
    [&index_prefix(kind, agent)[..], &turn(id)].concat()
}

pub(crate) fn text_user(text: &Hash, number: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(text);
    key[16..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn step(agent: &AgentId, lineage: &str, n: u64) -> Vec<u8> {
    let agent = agent.as_str().as_bytes();
    [agent, &[0], lineage.as_bytes(), &[0], &n.to_be_bytes()].concat()
}

/// Returns the key of one lesson of an agent. The empty name stands for all of its turns.
pub(crate) fn lesson(agent: &AgentId, name: &str) -> Vec<u8> {
    [agent.as_str().as_bytes(), &[0], name.as_bytes()].concat()
}

pub(crate) fn read_lesson(key: &[u8]) -> Option<&str> {
    let zero = key.iter().position(|byte| *byte == 0)?;
    str::from_utf8(&key[zero + 1..]).ok()
}

/// Returns the key of a rollout. Keys are in the order in which rollouts were opened.
pub(crate) fn rollout(id: &RolloutId) -> Vec<u8> {
    id.as_str().as_bytes().to_vec()
}

pub(crate) fn under(prefix: &[u8]) -> (Bound<Bytes>, Bound<Bytes>) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return between(prefix, &end);
        }
    }
    (Bound::Included(prefix.into()), Bound::Unbounded)
}

pub(crate) fn between(from: &[u8], to: &[u8]) -> (Bound<Bytes>, Bound<Bytes>) {
    (Bound::Included(from.into()), Bound::Excluded(to.into()))
}

pub(crate) fn read_u64(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
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
            assert_eq!(read_first_piece(&piece(&turn(id), 0)), Some(id));
            assert_eq!(read_first_piece(&piece(&turn(id), 1)), None);
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
        assert_eq!(end, Bound::Excluded(vec![2].into()));
        assert_eq!(under(&[0xff]).1, Bound::Unbounded);
    }
}
