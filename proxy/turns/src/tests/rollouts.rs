//! Tests of rollouts: opened, closed with an outcome, and what becomes of their turns.

use metaclaw_chat::{AgentId, JudgedBy, RolloutId, Score};

use super::kit::{Client, new_log, open};
use crate::{
    LogError, NewTurn, Rollout, RolloutEnd, RolloutFilter, RolloutState, StreamEnd, TurnKind,
    TurnLog, TurnState,
};

fn rollout(n: u32) -> Rollout {
    Rollout {
        id: RolloutId::new(1_760_000_000_000 + u64::from(n), n),
        agent: "main".parse().unwrap(),
        task: "t-1".parse().unwrap(),
        group: "g-1".parse().unwrap(),
        group_size: 2,
        attempt: n,
        held_out: false,
        adapter: None,
        run: None,
        opened_by: None,
        key_hash: "00".repeat(32),
        opened_ms: 1_760_000_000_000 + u64::from(n),
        deadline_ms: 1_760_000_600_000,
        state: RolloutState::Open,
    }
}

/// Returns a client whose turns are a rollout's.
fn client(of: &Rollout) -> Client {
    Client::new(of.id.session().as_str(), "Do the task.")
}

fn step(client: &mut Client, of: &Rollout, said: &str) -> NewTurn {
    let mut turn = client.turn(said, "done");
    turn.meta.kind = TurnKind::Rollout;
    turn.served.rollout = Some(of.mark());
    turn
}

fn scored(outcome: f32, steps: &[f32]) -> RolloutEnd {
    let steps = steps.to_vec();
    RolloutEnd::Scored { outcome, steps }
}

async fn reward(log: &TurnLog, turn: metaclaw_chat::TurnId) -> Option<f32> {
    let turn = log.turn(turn).await;
    turn.verdict.and_then(|it| it.reward)
}

#[tokio::test]
async fn the_outcome_judges_every_turn_and_steps_add_to_it_whenever_they_come() {
    let (_dir, log) = new_log();
    let of = rollout(0);
    log.open_rollout(of.clone()).await.unwrap();
    let mut agent = client(&of);
    let first = log.put(step(&mut agent, &of, "go")).await;
    let mut title = agent.request("A title");
    title.meta.kind = TurnKind::Side;
    title.served.rollout = Some(of.mark());
    let title = log.put(title).await;
    let closed = log
        .close_rollout(&of.id, scored(-0.5, &[0.25, 1.0]), 5)
        .await
        .unwrap();
    assert_eq!(
        (closed.outcome(), closed.closed_ms()),
        (Some(-0.5), Some(5))
    );
    // Its copy may reach the log when the outcome is known already.
    let late = log.put(step(&mut agent, &of, "go on")).await;
    assert_eq!(reward(&log, first).await, Some(-0.25));
    assert_eq!(reward(&log, late).await, Some(0.5));
    assert_eq!(reward(&log, title).await, None);
    let turn = log.turn(late).await;
    assert_eq!(turn.state, TurnState::Judged);
    let verdict = turn.verdict.unwrap();
    assert_eq!(
        (verdict.by, verdict.score),
        (JudgedBy::Rollout, Score::Good)
    );
    let of_days = log.statistics(0).await.unwrap();
    let sum = of_days.iter().fold((0, 0, 0), |(rollouts, good, bad), it| {
        let counts = it.counts;
        (
            rollouts + counts.rollout_turns,
            good + counts.good,
            bad + counts.bad,
        )
    });
    assert_eq!(
        sum,
        (2, 0, 0),
        "an owner's days have no verdicts of rollouts"
    );
}

#[tokio::test]
async fn nothing_is_learned_from_what_failed_or_is_held_out_or_was_cut() {
    let (_dir, log) = new_log();
    let held_out = Rollout {
        held_out: true,
        ..rollout(2)
    };
    let cases = [
        (
            rollout(0),
            RolloutEnd::Failed {
                why: "no shell".to_owned(),
            },
            "its rollout failed",
        ),
        (
            rollout(1),
            RolloutEnd::Unfinished,
            "its rollout was not finished",
        ),
        (held_out, scored(1.0, &[]), "of a held-out task"),
        (rollout(3), scored(1.0, &[]), "its reply did not come whole"),
    ];
    for (of, end, expected) in cases {
        log.open_rollout(of.clone()).await.unwrap();
        let mut turn = step(&mut client(&of), &of, "go");
        if of.attempt == 3 {
            turn.meta.end = StreamEnd::Cut;
        }
        let turn = log.put(turn).await;
        log.close_rollout(&of.id, end, 5).await.unwrap();
        let state = log.turn(turn).await.state;
        assert_eq!(
            state,
            TurnState::Spent {
                why: expected.to_owned()
            }
        );
    }
}

#[tokio::test]
async fn a_copied_session_brings_its_rollout_along() {
    let (from_dir, to_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (open(from_dir.path()), open(to_dir.path()));
    let of = rollout(0);
    from.open_rollout(of.clone()).await.unwrap();
    let turn = from.put(step(&mut client(&of), &of, "go")).await;
    let closed = from
        .close_rollout(&of.id, scored(1.0, &[]), 5)
        .await
        .unwrap();
    assert_eq!(from.copy_session(turn.session, &to).await.unwrap(), 1);
    assert_eq!(to.rollout(&of.id).await.unwrap(), Some(closed));
}

#[tokio::test]
async fn a_rollout_is_closed_once_listed_newest_first_and_forgotten_with_its_session() {
    let (dir, log) = new_log();
    for n in 0..3 {
        log.open_rollout(rollout(n)).await.unwrap();
    }
    let of = rollout(1);
    log.put(step(&mut client(&of), &of, "go")).await;
    log.close_rollout(&of.id, scored(1.0, &[]), 5)
        .await
        .unwrap();
    let again = log
        .close_rollout(&of.id, scored(-1.0, &[]), 6)
        .await
        .unwrap_err();
    assert_eq!(again, LogError::RolloutClosed { id: of.id.clone() });
    let unknown = RolloutId::new(1, 1);
    let refused = log.close_rollout(&unknown, RolloutEnd::Unfinished, 6).await;
    assert_eq!(
        refused.unwrap_err(),
        LogError::NoSuchRollout { id: unknown }
    );

    log.close().await;
    let log = open(dir.path());
    let attempts = async |filter| -> Vec<u32> {
        let found = log.rollouts(filter).await.unwrap();
        found.into_iter().map(|it| it.attempt).collect()
    };
    assert_eq!(attempts(RolloutFilter::default()).await, [2, 1, 0]);
    let open = RolloutFilter {
        only_open: true,
        limit: 1,
        ..RolloutFilter::default()
    };
    assert_eq!(attempts(open).await, [2]);
    let turns = log.rollout_turns(vec![of.id.clone()]).await.unwrap();
    assert_eq!(turns[&of.id].len(), 1);
    let agent: AgentId = "main".parse().unwrap();
    assert_eq!(log.forget(&agent, &of.id.session()).await.unwrap(), 1);
    assert_eq!(log.rollout(&of.id).await.unwrap(), None);
    log.close_rollout(&rollout(0).id, RolloutEnd::Unfinished, 7)
        .await
        .unwrap();
    assert_eq!(log.forget_rollouts_before(8).await.unwrap(), 1);
    assert_eq!(attempts(RolloutFilter::default()).await, [2]);
}
