//! The words that the teacher is told, and the other questions that a reply is compared with.

use metaclaw_chat::TurnId;

/// Everyday questions that do not resemble each other: a reply that fits its own question no better than two of these
/// is no answer.
const OTHERS: &str = include_str!("others.txt");

/// Returns the standing wishes and what was said about this turn, or `None` if there is neither.
pub(super) fn line(wishes: Option<&str>, hint: Option<&str>) -> Option<String> {
    let wishes = wishes.unwrap_or_default().trim();
    // A complaint also becomes a wish; if it were said twice, it would have too much weight.
    let hint = hint.map(str::trim).filter(|hint| !wishes.contains(hint));
    let parts = [Some(wishes), hint].into_iter().flatten();
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Returns two questions other than this one, the same for a turn each time.
pub(crate) fn others(id: TurnId, question: &str) -> Vec<&'static str> {
    let all = OTHERS.lines().map(str::trim);
    let others: Vec<&str> = all
        .filter(|other| !other.is_empty() && !question.contains(other))
        .collect();
    let n = others.len().max(1);
    let first = usize::try_from(seed(id)).unwrap_or(0) % n;
    // The two are not neighbours in the list, because neighbours would always come together.
    let second = (first + n / 2) % n;
    let two = [first, second].into_iter();
    two.filter_map(|at| others.get(at).copied()).collect()
}

/// Returns the seed of a turn's draws, which is the same after a restart.
pub(crate) fn seed(id: TurnId) -> u64 {
    let hash = blake3::hash(id.to_string().as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    u64::from(u32::from_le_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_that_became_a_wish_is_said_once() {
        let of = |wishes, hint| line(wishes, hint);
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(""), Some(" ")), None);
        assert_eq!(of(Some("Be brief."), None).unwrap(), "Be brief.");
        assert_eq!(of(None, Some("Too long.")).unwrap(), "Too long.");
        let both = of(Some("In French. Be brief."), Some("Be brief.")).unwrap();
        assert_eq!(both, "In French. Be brief.");
        let both = of(Some("In French."), Some("Too long.")).unwrap();
        assert_eq!(both, "In French. Too long.");
    }

    #[test]
    fn the_other_questions_are_two_the_same_each_time_and_none_is_the_own_one() {
        for seq in 0..200 {
            let id = TurnId { session: 7, seq };
            let two = others(id, "");
            assert_eq!(two.len(), 2);
            assert_ne!(two[0], two[1]);
            assert_eq!(two, others(id, ""));
            let own = two[0];
            assert!(!others(id, &format!("Hi. {own}")).contains(&own));
        }
    }
}
