//! Why a turn is never trained on.

use std::fmt;

use serde::{Serialize, Serializer};

/// Why a turn is never trained on; the funnel of `metaclaw status` counts by these reasons.
///
/// The log stores the text ([`ExcludeReason::as_str`]), so a text that has been released never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExcludeReason {
    Side,
    Incomplete,
    NoRule,
    NoVote,
    NoScore,
    Unclear,
    NotPolicy,
    NoIds,
    Masked,
    TooOld,
    Failed,
    Accepted,
    NoUse,
    NotHinted,
    /// This reason is only in logs of an earlier version.
    NotCorrected,
    Obeys,
    NoDraw,
    NotRelevant,
    TeacherRefused,
    TeacherFails,
    NotScored,
    BadSampling,
    NoAdvantage,
    OtherBase,
    /// Too few rollouts of its group have an outcome.
    SmallGroup,
    NoDifference,
    Lagging,
    /// The session is held out, but its turns are not spent.
    HeldOut,
    /// The turn was evidence for a lesson in force, so its verdict is support.
    Support,
    /// The turn began before a lesson came into force.
    BeforeLesson,
    /// The training server refused the turn by name, or when it was sent alone.
    Refused,
    /// The training server fails at this turn alone, and trains on a harmless one.
    Fails,
    TooLong,
    LossNotFinite,
    GradientNotFinite,
}

// === impl ExcludeReason ===

impl ExcludeReason {
    /// Reasons that come from a verdict or a missing one: another verdict may change them.
    pub(crate) const OF_VERDICTS: [Self; 15] = [
        Self::NoRule,
        Self::NoVote,
        Self::NoScore,
        Self::Unclear,
        Self::Failed,
        Self::Accepted,
        Self::NoUse,
        Self::NotHinted,
        Self::NotCorrected,
        Self::Obeys,
        Self::NoDraw,
        Self::NotRelevant,
        Self::NoAdvantage,
        Self::Support,
        Self::BeforeLesson,
    ];

    /// Returns the text in the log and in the docs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Side => "side turn",
            Self::Incomplete => "reply incomplete",
            Self::NoRule => "no rule fits",
            Self::NoVote => "no vote could be read",
            Self::NoScore => "the reward function gave no score",
            Self::Unclear => "verdict unclear",
            Self::NotPolicy => "not answered by the policy model",
            Self::NoIds => "token ids were not kept",
            Self::Masked => "a secret in it was masked: no token ids are kept",
            Self::TooOld => "older than rl.max_age",
            Self::Failed => "failed, and redo is not among rl.method",
            Self::Accepted => "accepted, and no wish stands that could be consolidated",
            Self::NoUse => "accepted: no method of rl.method has a use for it",
            Self::NotHinted => "failed, and nobody said what would have been better",
            Self::NotCorrected => "failed, and its session came to no reply that was accepted",
            Self::Obeys => "does what is wished without being told",
            Self::NoDraw => "no draw of the teacher does what is wished",
            Self::NotRelevant => "no draw of the teacher answers the question well enough",
            Self::TeacherRefused => "the teacher cannot be asked it",
            Self::TeacherFails => "the training server fails at asking the teacher",
            Self::NotScored => "the external teacher (opd.teacher_url) cannot score it",
            Self::BadSampling => "sampled too cold, too hot or cut off",
            Self::NoAdvantage => "as good as usual: no advantage",
            Self::OtherBase => "sampled from another base model",
            Self::SmallGroup => "fewer than two rollouts of its group have an outcome",
            Self::NoDifference => "no difference in the group",
            Self::Lagging => "sampled more steps ago than rl.rollouts.max_lag",
            Self::HeldOut => "held out, for the gate to ask about",
            Self::Support => "support: a lesson in force came from it (rl.support_query)",
            Self::BeforeLesson => {
                "support: it began before the newest lesson (rl.support_query: strict)"
            }
            Self::Refused => "refused by the training server",
            Self::Fails => "the training server fails at it",
            Self::TooLong => "longer than the training server has memory for",
            Self::LossNotFinite => "its loss is no number",
            Self::GradientNotFinite => "its gradient is no number",
        }
    }
}

impl fmt::Display for ExcludeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ExcludeReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    /// This file names them all.
    const REASONS: &str = include_str!("exclude_reason.rs");
    const DOCS: &str = include_str!("../../../../docs/training/excluded-turns.md");

    #[test]
    fn the_documentation_has_each_reason() {
        let (enumeration, _) = REASONS.split_once("mod tests").unwrap();
        let texts: Vec<&str> = enumeration.split('"').skip(1).step_by(2).collect();
        assert!(texts.len() > 28, "{texts:?}");
        for text in texts {
            let rows = [format!("| {text} |"), format!("| {text} * |")];
            assert!(rows.iter().any(|row| DOCS.contains(row)), "{text}");
        }
    }
}
