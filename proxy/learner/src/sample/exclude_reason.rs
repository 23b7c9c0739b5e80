//! Why a turn is never trained on.

use serde::Serialize;

/// Makes [`ExcludeReason`] of reasons with their texts.
macro_rules! exclude_reasons {
    ($($(#[$about:meta])* $reason:ident => $text:literal,)+) => {
        /// Why a turn is never trained on; the funnel of `metaclaw status` counts by these reasons.
        ///
        /// The log stores the text ([`ExcludeReason::as_str`]), so a text that has been released never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, derive_more::Display)]
        #[display("{}", self.as_str())]
        pub(crate) enum ExcludeReason {
            $($(#[$about])* #[serde(rename = $text)] $reason,)+
        }

        impl ExcludeReason {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$reason,)+];

            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => $text,)+
                }
            }
        }
    };
}

exclude_reasons! {
    Side => "side turn",
    Incomplete => "reply incomplete",
    NoRule => "no rule fits",
    NoVote => "no vote could be read",
    NoScore => "the reward function gave no score",
    Unclear => "verdict unclear",
    NotPolicy => "not answered by the policy model",
    NoIds => "token ids were not kept",
    Masked => "a secret in it was masked: no token ids are kept",
    TooOld => "older than rl.max_age",
    Failed => "failed, and redo is not among rl.method",
    Accepted => "the reply was good, and no wish is in force to learn from it",
    NoUse => "accepted: no method of rl.method has a use for it",
    NotHinted => "failed, and nobody said what would have been better",
    /// This reason is only in logs of an earlier version.
    NotCorrected => "failed, and its session came to no reply that was accepted",
    Obeys => "the model already does what you wish, without being told",
    NotUsable => "no reply of the teacher is long enough and complete",
    NoDraw => "no reply of the teacher does what you wish",
    NotRelevant => "no reply of the teacher answers the question well enough",
    TeacherRefused => "the teacher cannot be asked it",
    TeacherFails => "the training server fails at asking the teacher",
    NotScored => "the external teacher (opd.teacher_url) cannot score it",
    BadSampling => "sampled too cold, too hot or cut off",
    NoAdvantage => "as good as usual: no advantage",
    OtherBase => "sampled from another base model",
    /// Too few rollouts of its group have an outcome.
    SmallGroup => "fewer than two rollouts of its group have an outcome",
    NoDifference => "no difference in the group",
    Lagging => "sampled more steps ago than rl.rollouts.max_lag",
    /// The session is held out, but its turns are not spent.
    HeldOut => "held out, for the gate to ask about",
    /// The turn was evidence for a lesson in force, so its verdict is support.
    Support => "support: a lesson in force came from it (rl.support_query)",
    /// The turn began before a lesson came into force.
    BeforeLesson => "support: it began before the newest lesson (rl.support_query: strict)",
    /// The training server refused the turn by name, or when it was sent alone.
    Refused => "refused by the training server",
    /// The training server fails at this turn alone, and trains on a harmless one.
    Fails => "the training server fails at it",
    TooLong => "longer than the training server has memory for",
    LossNotFinite => "its loss is no number",
    GradientNotFinite => "its gradient is no number",
}

// === impl ExcludeReason ===

impl ExcludeReason {
    /// Reasons that come from a verdict or a missing one: another verdict may change them.
    pub(crate) const OF_VERDICTS: [Self; 16] = [
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
        Self::NotUsable,
        Self::NoDraw,
        Self::NotRelevant,
        Self::NoAdvantage,
        Self::Support,
        Self::BeforeLesson,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = include_str!("../../../../docs/training/excluded-turns.md");

    #[test]
    fn the_documentation_has_each_reason() {
        for text in ExcludeReason::ALL {
            let rows = [format!("| {text} |"), format!("| {text} * |")];
            assert!(rows.iter().any(|row| DOCS.contains(row)), "{text}");
        }
    }
}
