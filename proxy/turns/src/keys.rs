//! How the keys of the tables are built, so that a range of keys is a question worth asking.

use std::ops::Bound;

use metaclaw_chat::{AgentId, SessionId, TurnId};

use crate::{store::Bytes, text::Hash, turn::StateKind};

/// The turn at a place of a session.
pub(crate) fn id(session: u64, seq: u32) -> TurnId {
    TurnId { session, seq }
}

/// Session number and place, big-endian: turns of a session in order.
pub(crate) fn turn(id: TurnId) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.session.to_be_bytes());
    key[8..].copy_from_slice(&id.seq.to_be_bytes());
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

/// The id in a key of the first piece of a turn's value.
pub(crate) fn read_first_piece(key: &[u8]) -> Option<TurnId> {
    (key.len() == 12).then(|| read_turn(key)).flatten()
}

/// One piece of a long value: the first has the value's own key.
pub(crate) fn piece(key: &[u8], piece: u16) -> Vec<u8> {
    match piece {
        0 => key.to_vec(),
        _ => [key, &piece.to_be_bytes()].concat(),
    }
}

/// A session's number, big-endian.
pub(crate) fn session(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Agent and session by name. Neither can hold a zero byte.
pub(crate) fn name(agent: &AgentId, session: &SessionId) -> Vec<u8> {
    [agent.as_str().as_bytes(), &[0], session.as_str().as_bytes()].concat()
}

/// Beginning of every key of one agent.
pub(crate) fn agent(agent: &AgentId) -> Vec<u8> {
    [agent.as_str().as_bytes(), &[0]].concat()
}

/// One agent on one day.
pub(crate) fn day(day: u32, name: &AgentId) -> Vec<u8> {
    [&day.to_be_bytes()[..], &agent(name)].concat()
}

/// The agent in a key that begins with [`agent`].
pub(crate) fn read_agent(key: &[u8]) -> Option<AgentId> {
    let name = key.split(|byte| *byte == 0).next()?;
    str::from_utf8(name).ok()?.parse().ok()
}

/// The turns of one agent in one state.
pub(crate) fn index_prefix(kind: StateKind, agent: &AgentId) -> Vec<u8> {
    [&[kind as u8], agent.as_str().as_bytes(), &[0]].concat()
}

/// One turn among those of its agent and state.
pub(crate) fn index(kind: StateKind, agent: &AgentId, id: TurnId) -> Vec<u8> {
    [&index_prefix(kind, agent)[..], &turn(id)].concat()
}

/// That a session uses a text.
pub(crate) fn text_user(text: &Hash, number: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(text);
    key[16..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Step `n` of one lineage of one agent.
pub(crate) fn step(agent: &AgentId, lineage: &str, n: u64) -> Vec<u8> {
    let agent = agent.as_str().as_bytes();
    [agent, &[0], lineage.as_bytes(), &[0], &n.to_be_bytes()].concat()
}

/// The range of keys that begin with `prefix`.
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

/// The range of keys from one up to another (exclusive).
pub(crate) fn between(from: &[u8], to: &[u8]) -> (Bound<Bytes>, Bound<Bytes>) {
    (Bound::Included(from.into()), Bound::Excluded(to.into()))
}

/// Reads a number that begins a key or a value.
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
