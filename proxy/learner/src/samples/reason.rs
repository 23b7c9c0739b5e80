//! Why a turn is never trained on: the funnel's reasons.

pub(crate) const SIDE: &str = "side turn";
pub(crate) const INCOMPLETE: &str = "reply incomplete";
pub(crate) const NO_RULE: &str = "no rule fits";
pub(crate) const NO_VOTE: &str = "no vote could be read";
pub(crate) const NO_SCORE: &str = "the reward function gave no score";
pub(crate) const UNCLEAR: &str = "verdict unclear";
pub(crate) const NOT_POLICY: &str = "not answered by the policy model";
pub(crate) const NO_IDS: &str = "token ids were not kept";
pub(crate) const MASKED: &str = "a secret in it was masked: no token ids are kept";
pub(crate) const TOO_OLD: &str = "older than rl.max_age";
pub(crate) const FAILED: &str = "failed, and redo is not among rl.method";
pub(crate) const ACCEPTED: &str = "accepted, and no wish stands that could be consolidated";
pub(crate) const NO_USE: &str = "accepted: no method of rl.method has a use for it";
pub(crate) const TOOL_FAILED: &str =
    "failed, and calls tools: nothing is said that could be said better";
pub(crate) const NOT_HINTED: &str = "failed, and nobody said what would have been better";
pub(crate) const NOT_CORRECTED: &str = "failed, and its session came to no reply that was accepted";
pub(crate) const OBEYS: &str = "does what is wished without being told";
pub(crate) const NO_DRAW: &str = "no draw of the teacher does what is wished";
pub(crate) const NOT_RELEVANT: &str = "no draw of the teacher answers the question well enough";
pub(crate) const TEACHER_REFUSED: &str = "the teacher cannot be asked it";
pub(crate) const TEACHER_FAILS: &str = "the training server fails at asking the teacher";
pub(crate) const NOT_SCORED: &str = "the external teacher (opd.teacher_url) cannot score it";
pub(crate) const BAD_SAMPLING: &str = "sampled too cold, too hot or cut off";
pub(crate) const NO_ADVANTAGE: &str = "as good as usual: no advantage";
pub(crate) const OTHER_BASE: &str = "sampled from another base model";
/// It is not spent, but held out.
pub(crate) const HELD_OUT: &str = "held out, for the gate to ask about";
/// Reasons that a verdict was, or that it lacked: who gives another may change them.
pub(crate) const OF_VERDICTS: [&str; 13] = [
    NO_RULE,
    NO_VOTE,
    NO_SCORE,
    UNCLEAR,
    FAILED,
    ACCEPTED,
    NO_USE,
    NOT_HINTED,
    NOT_CORRECTED,
    OBEYS,
    NO_DRAW,
    NOT_RELEVANT,
    NO_ADVANTAGE,
];
/// By name, or alone.
pub(crate) const REFUSED: &str = "refused by the training server";
/// Alone, while it could train on something else.
pub(crate) const FAILS: &str = "the training server fails at it";
pub(crate) const TOO_LONG: &str = "longer than the training server has memory for";
pub(crate) const LOSS_NOT_FINITE: &str = "its loss is no number";
pub(crate) const GRADIENT_NOT_FINITE: &str = "its gradient is no number";

#[cfg(test)]
mod tests {
    /// This file itself names them all.
    const REASONS: &str = include_str!("reason.rs");
    const DOCS: &str = include_str!("../../../../docs/training/excluded-turns.md");

    #[test]
    fn the_documentation_has_each_reason() {
        let (constants, _) = REASONS.split_once("#[cfg(test)]").unwrap();
        let constants = constants.split("pub(crate) const ").skip(1);
        let texts = constants.filter(|it| it.contains(": &str ="));
        let texts: Vec<&str> = texts.filter_map(|it| it.split('"').nth(1)).collect();
        assert!(texts.len() > 28, "{texts:?}");
        for text in texts {
            let rows = [format!("| {text} |"), format!("| {text} * |")];
            assert!(rows.iter().any(|row| DOCS.contains(row)), "{text}");
        }
    }
}
