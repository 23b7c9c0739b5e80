//! Describes the outcome of a turn in a few words.

use metaclaw_chat::Score;
use metaclaw_turns::{StreamEnd, TurnState};

pub(super) fn outcome(end: StreamEnd, state: &TurnState) -> String {
    match (end, state) {
        (StreamEnd::Complete, TurnState::Captured) => "captured".to_owned(),
        (StreamEnd::Cut, TurnState::Captured) => "cut".to_owned(),
        (StreamEnd::ClientGone, TurnState::Captured) => "client gone".to_owned(),
        (StreamEnd::UpstreamError { status: 200 }, TurnState::Captured) => {
            "error in the stream".to_owned()
        }
        (StreamEnd::UpstreamError { status }, TurnState::Captured) => format!("error {status}"),
        (StreamEnd::Overflowed, TurnState::Captured) => "overflowed".to_owned(),
        (_, TurnState::Judged) => "judged".to_owned(),
        (_, TurnState::Taken { n }) => format!("taken by step {n}"),
        (_, TurnState::Trained { n }) => format!("trained in step {n}"),
        (_, TurnState::Spent { why }) => format!("spent: {why}"),
        (_, TurnState::HeldOut) => "held out".to_owned(),
    }
}

pub(in super::super) fn score(score: Score) -> &'static str {
    match score {
        Score::Good => "+1",
        Score::Unclear => "0",
        Score::Bad => "-1",
    }
}
