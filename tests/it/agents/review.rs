//! OpenClaw reviews what it did, half a minute after a turn of ten calls or more, in the owner's session.

use std::time::Duration;

use metaclaw_tests::{
    openclaw::OpenClaw,
    upstream::{Asked, Play},
    wait::until,
    watched::{Watched, told},
};
use metaclaw_turns::TurnKind;

const TASK: &str = "Look into every corner.";
const OWNERS: &str = "From now on answer in one sentence.";
/// How its review begins.
const REVIEW: &str = "Skill review.";
/// More than OpenClaw wants of a turn that it reviews.
const CALLS: usize = 12;
/// OpenClaw waits for 30 s of silence, and once more where it is busy.
const REVIEWED_WITHIN: Duration = Duration::from_secs(120);

/// The model looks into twelve corners.
fn script(asked: &Asked<'_>) -> Play {
    let text = asked.body["messages"].to_string();
    if text.contains(OWNERS) {
        return Play::Text("As you wish.");
    }
    if text.contains(REVIEW) {
        return Play::Text("NO_REPLY");
    }
    let n_calls = text.matches("\"role\":\"tool\"").count();
    if text.contains(TASK) && n_calls < CALLS {
        return Play::Call {
            name: "exec",
            arguments: r#"{"command": "echo nothing here"}"#,
        };
    }
    Play::Text("There is nothing in any corner.")
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn openclaw_s_own_review_is_not_taken_for_the_owner() {
    let watched = Watched::start("openai", script).await;
    let openclaw = OpenClaw::installed();
    let base_url = &watched.proxy.base_url;
    let gateway = openclaw
        .gateway_that_names_sessions(base_url, "scripted")
        .await;
    let run = gateway.say(TASK).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    let is_review = |body: &[u8]| String::from_utf8_lossy(body).contains(REVIEW);
    let is_reviewed = async || watched.asked().iter().any(|it| is_review(&it.body));
    let reviewed = until(REVIEWED_WITHIN, is_reviewed).await;
    reviewed.expect("OpenClaw reviews the turn");
    gateway.say(OWNERS).await;

    watched.assert_heard("main", &[OWNERS]).await;
    watched.wait_for_evidence(OWNERS).await;
    watched.assert_is_errand(|text| text.contains(REVIEW)).await;
    let turns = watched.turns().await;
    // After a call it is the tool that speaks, and nobody stands in a user's place but OpenClaw.
    let is_owners = |text: &str| text.contains(TASK) || text.contains(OWNERS);
    for turn in &turns {
        let mut said = told(turn);
        said.retain(|text| !text.starts_with("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"));
        let of_owner = said.is_empty() || said.iter().any(|text| is_owners(text));
        let kind = if of_owner {
            TurnKind::Main
        } else {
            TurnKind::Side
        };
        assert_eq!(turn.meta.kind, kind, "{said:?}");
    }
    assert_eq!(watched.listed().await, [TASK, OWNERS]);
    watched.proxy.stop().await.unwrap();
}
