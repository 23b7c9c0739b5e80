//! Tests of turns from elsewhere.

use metaclaw_chat::{AgentId, Score};

use super::kit::{Client, new_log, open, verdict};
use crate::{
    ImportOutcome, ImportedTurn, LogError, MAX_IMPORT, StateKind, Tokens, TurnFilter, TurnState,
};

/// Makes a conversation of `n` turns, with ids and verdicts.
fn rollouts(session: &str, n: u32) -> Vec<ImportedTurn> {
    let mut client = Client::new(session, "sys");
    let rollout = |n: u32| {
        let mut turn = client.turn(&format!("q{n}"), "an answer");
        turn.meta.reply_id = Some(format!("import-{n}"));
        turn.served.imported = Some("rollouts.jsonl".to_owned());
        turn.tokens = Some(Tokens {
            prompt_ids: (0..=n).collect(),
            ids: vec![n, n],
            logprobs: vec![-0.5; 2],
            base: "demo".to_owned(),
            ..Tokens::default()
        });
        ImportedTurn {
            turn,
            verdict: Some(verdict(Score::Bad)),
        }
    };
    (0..n).map(rollout).collect()
}

#[tokio::test]
async fn imported_turns_are_judged_ones_and_come_once() {
    let (dir, log) = new_log();
    let mut appended = log.subscribe();
    let outcome = log.import(rollouts("s", 3)).await.unwrap();
    assert_eq!((outcome.n_new, outcome.n_known), (3, 0));
    let agent: AgentId = "main".parse().unwrap();
    let judged = log.in_state(&agent, StateKind::Judged).await.unwrap();
    assert_eq!(judged.len(), 3);
    let turn = log.turn(judged[2]).await;
    assert_eq!(turn.parent, Some(judged[1]));
    assert_eq!(turn.served.imported.as_deref(), Some("rollouts.jsonl"));
    assert_eq!(turn.tokens.unwrap().ids, [2, 2]);
    assert_eq!(turn.verdict.unwrap().score, Score::Bad);
    let funnel = log.funnel(None).await.unwrap();
    assert_eq!((funnel.turns, funnel.with_ids, funnel.judged), (3, 3, 3));
    assert!(appended.try_recv().is_err(), "nobody hears of them");
    // The same file has one more turn.
    let outcome = log.import(rollouts("s", 4)).await.unwrap();
    let expected = ImportOutcome {
        n_new: 1,
        n_known: 3,
    };
    assert_eq!(outcome, expected);
    log.close().await;
    let log = open(dir.path());
    assert_eq!(log.funnel(None).await.unwrap().judged, 4);
    // A turn without a verdict is judged here.
    let mut others = rollouts("t", 1);
    others[0].verdict = None;
    log.import(others).await.unwrap();
    let filter = TurnFilter::default();
    let newest = log.list(filter).await.unwrap().remove(0);
    assert_eq!(newest.state, TurnState::Captured);
}

#[tokio::test]
async fn what_is_refused_leaves_nothing_behind() {
    let (_dir, log) = new_log();
    let mut uneven = rollouts("s", 3);
    uneven[2].turn.tokens.as_mut().unwrap().logprobs.pop();
    let refused = log.import(uneven).await;
    assert!(
        matches!(
            refused,
            Err(LogError::UnevenTokens {
                n_ids: 2,
                n_logprobs: 1,
                ..
            })
        ),
        "{refused:?}"
    );
    let many = vec![rollouts("s", 1).remove(0); MAX_IMPORT + 1];
    let refused = log.import(many).await;
    assert!(
        matches!(refused, Err(LogError::TooLarge { .. })),
        "{refused:?}"
    );
    assert_eq!(log.funnel(None).await.unwrap().turns, 0);
    assert_eq!(
        log.import(Vec::new()).await.unwrap(),
        ImportOutcome::default()
    );
}
