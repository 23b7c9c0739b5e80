//! Sessions that are not trained on, so that the gate can test an adapter on turns that it has not memorised.

use metaclaw_chat::AgentId;

/// The first sessions of a log are all trained on, because the owner wants to see an effect soon, and so few held-out
/// sessions would give too few pairs for a test.
const LEARNED_FIRST: u64 = 32;

/// Returns whether a session (by its number in the log) is held out; `share` is the share of held-out sessions, and the
/// answer is the same each time.
pub(crate) fn is_held_out(agent: &AgentId, session: u64, share: f64) -> bool {
    if session <= LEARNED_FIRST {
        return false;
    }
    let mut hash = blake3::Hasher::new();
    hash.update(agent.as_str().as_bytes());
    hash.update(&session.to_le_bytes());
    let [a, b, c, d, ..] = *hash.finalize().as_bytes();
    let at = f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX);
    at < share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_sessions_is_held_out_and_none_of_the_first() {
        let agent = AgentId::default_agent();
        let n = |sessions: std::ops::Range<u64>, share| {
            let held_out = |session: &u64| is_held_out(&agent, *session, share);
            sessions.filter(held_out).count()
        };
        assert_eq!(n(0..33, 1.0), 0);
        assert_eq!(n(33..1_033, 0.0), 0);
        let some = n(33..1_033, 0.15);
        assert!((120..=180).contains(&some), "{some}");
        let other: AgentId = "main".parse().unwrap();
        assert!(
            (33..1_033).any(|it| is_held_out(&agent, it, 0.15) != is_held_out(&other, it, 0.15))
        );
    }
}
