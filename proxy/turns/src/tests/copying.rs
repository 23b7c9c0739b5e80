//! Tests of sessions in another log.

use metaclaw_chat::{AgentId, Score};

use super::kit::{Client, open, session_turns, step, trained, verdict};
use crate::{StateKind, Tokens, Turn, TurnFilter, TurnState};

#[tokio::test]
async fn a_session_in_another_log_is_the_same_but_for_what_was_trained() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (log, copy) = (open(from.path()), open(to.path()));
    let long = "a long system text ".repeat(200);
    // Another session comes first, so that new numbers would differ.
    let other = Client::new("other", &long).turn("q", "a");
    log.put(other).await;
    let mut client = Client::new("s", &long);
    let mut ids = Vec::new();
    for n in 0..3 {
        let mut turn = client.turn(&format!("q{n}"), &"an answer ".repeat(200));
        turn.meta.reply_id = Some(format!("r{n}"));
        turn.tokens = Some(Tokens {
            prompt_ids: (0..=n).collect(),
            ids: vec![n, n],
            logprobs: vec![-0.5; 2],
            base: "demo".to_owned(),
            ..Tokens::default()
        });
        ids.push(log.put(turn).await);
    }
    for id in &ids[..2] {
        log.judge(*id, verdict(Score::Bad)).await.unwrap();
    }
    log.judge(ids[1], verdict(Score::Good)).await.unwrap();
    log.overrule(ids[1], verdict(Score::Good)).await.unwrap();
    let agent: AgentId = "main".parse().unwrap();
    log.take(step(1, &ids[..1])).await.unwrap();
    log.finish_step(&agent, 1, trained("a")).await.unwrap();
    log.spend(ids[1], "of no use").await.unwrap();
    log.hold_out(ids[2]).await.unwrap();
    let turns = session_turns(&log, "main", "s").await;

    assert_eq!(log.copy_session(ids[0].session, &copy).await.unwrap(), 3);
    assert_eq!(log.copy_session(99, &copy).await.unwrap(), 0);
    let copied = session_turns(&copy, "main", "s").await;
    let as_if = |turn: &Turn, state: TurnState| Turn {
        state,
        uses: Vec::new(),
        ..turn.clone()
    };
    let expected = [
        as_if(&turns[0], TurnState::Judged),
        as_if(&turns[1], TurnState::Judged),
        as_if(&turns[2], TurnState::HeldOut),
    ];
    assert_eq!(copied, expected);
    assert_eq!(turns[0].uses.len(), 1, "{:?}", turns[0]);
    let judged = copy.in_state(&agent, StateKind::Judged).await.unwrap();
    assert_eq!(judged, ids[..2]);
    let listed = copy.list(TurnFilter::default()).await.unwrap();
    assert_eq!(listed.len(), 3);
    let funnel = copy.funnel(Some(&agent)).await.unwrap();
    assert_eq!(
        (funnel.turns, funnel.with_ids, funnel.judged, funnel.trained),
        (3, 3, 2, 0)
    );
    // The copy may be trained on, and the original stays unchanged.
    copy.take(step(1, &ids[..1])).await.unwrap();
    copy.finish_step(&agent, 1, trained("a")).await.unwrap();
    assert_eq!(session_turns(&log, "main", "s").await, turns);
    copy.close().await;
    let copy = open(to.path());
    assert_eq!(session_turns(&copy, "main", "s").await.len(), 3);
}
