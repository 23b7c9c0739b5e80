//! Tests of a turn's states up to training.

use metaclaw_chat::{AgentId, Score, TurnId, Verdict};

use super::kit::{Client, new_log, new_session, one_turn, open, step, trained, verdict};
use crate::{
    LessonCounts, LogError, NewStep, StateKind, Step, StepOutcome, TakeError, TakenBack, TurnLog,
    TurnState, Use,
};

fn agent() -> AgentId {
    "main".parse().unwrap()
}

async fn judged(log: &TurnLog, n: usize) -> Vec<TurnId> {
    let mut client = Client::new("s", "sys");
    let mut ids = Vec::new();
    for n in 0..n {
        let id = log.put(client.turn(&format!("q{n}"), "a")).await;
        assert!(log.judge(id, verdict(Score::Good)).await.unwrap());
        ids.push(id);
    }
    ids
}

#[tokio::test]
async fn lessons_are_counted_with_and_without_and_outlive_their_turns() {
    let (dir, log) = new_log();
    let ids = judged(&log, 2).await;
    assert!(log.overrule(ids[1], verdict(Score::Bad)).await.unwrap());
    let mut without = Client::new("t", "sys").turn("q", "a");
    without.served.skills.clear();
    let id = log.put(without).await;
    log.judge(id, verdict(Score::Good)).await.unwrap();
    let session = "s".parse().unwrap();
    assert_eq!(log.forget(&agent(), &session).await.unwrap(), 2);
    log.close().await;
    let log = open(dir.path());
    let counts = log.lesson_counts(Some(&agent())).await.unwrap();
    let skill = LessonCounts {
        injected: 2,
        good: 1,
        bad: 1,
        good_without: 1,
        bad_without: 0,
    };
    let wish = LessonCounts {
        injected: 3,
        good: 2,
        good_without: 0,
        ..skill
    };
    let expected = [("answer-briefly", skill), ("wish:5c1d", wish)];
    assert_eq!(
        counts,
        expected.map(|(name, it)| (name.to_owned(), it)).into()
    );
    assert_eq!(log.lesson_counts(None).await.unwrap(), counts);
    let nobody = AgentId::default_agent();
    assert!(log.lesson_counts(Some(&nobody)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_turn_is_judged_once() {
    let (_dir, log) = new_log();
    let ids = judged(&log, 1).await;
    assert!(!log.judge(ids[0], verdict(Score::Bad)).await.unwrap());
    let turn = log.turn(ids[0]).await;
    assert_eq!(turn.verdict, Some(verdict(Score::Good)));
    assert_eq!(turn.state, TurnState::Judged);
    assert_eq!(log.funnel(Some(&agent())).await.unwrap().judged, 1);
    let id = TurnId { session: 9, seq: 9 };
    let error = log.judge(id, verdict(Score::Bad)).await.unwrap_err();
    assert_eq!(error, LogError::NoSuchTurn { id });
}

#[tokio::test]
async fn of_many_judges_at_once_one_is_heard() {
    let (_dir, log) = new_log();
    let id = log.put(one_turn()).await;
    let mut judges = tokio::task::JoinSet::new();
    for n in 0..20 {
        let score = if n % 2 == 0 { Score::Good } else { Score::Bad };
        let log = log.clone();
        judges.spawn(async move { log.judge(id, verdict(score)).await.unwrap() });
    }
    let heard = judges.join_all().await;
    assert_eq!(heard.into_iter().filter(|heard| *heard).count(), 1);
    assert_eq!(log.funnel(None).await.unwrap().judged, 1);
}

#[tokio::test]
async fn a_step_takes_all_its_turns_or_none() {
    let (_dir, log) = new_log();
    let ids = judged(&log, 3).await;
    assert!(log.spend(ids[2], "no ids").await.unwrap());
    let error = log.take(step(1, &ids)).await.unwrap_err();
    let state = TurnState::Spent {
        why: "no ids".to_owned(),
    };
    assert_eq!(error, TakeError::NotFree { id: ids[2], state }.into());
    assert!(log.open_steps().await.unwrap().is_empty());
    assert_eq!(
        log.in_state(&agent(), StateKind::Judged).await.unwrap(),
        ids[..2]
    );

    let twice = log.take(step(1, &[ids[0], ids[0]])).await.unwrap_err();
    assert_eq!(twice, TakeError::Twice { id: ids[0] }.into());
    assert_eq!(
        log.take(step(1, &[])).await.unwrap_err(),
        TakeError::Empty.into()
    );
    let mut theirs = step(1, &ids[..1]);
    theirs.agent = "other".parse().unwrap();
    assert_eq!(
        log.take(theirs).await.unwrap_err(),
        TakeError::NotTheirs { id: ids[0] }.into()
    );

    log.take(step(1, &ids[..2])).await.unwrap();
    assert_eq!(log.funnel(None).await.unwrap().taken, 2);
    assert!(!log.spend(ids[0], "late").await.unwrap());
    let open = log.take(step(2, &ids[..1])).await.unwrap_err();
    assert_eq!(open, TakeError::StepOpen { n: 1 }.into());
}

#[tokio::test]
async fn a_finished_step_has_trained_its_turns_for_good() {
    let (_dir, log) = new_log();
    let ids = judged(&log, 2).await;
    log.take(step(1, &ids)).await.unwrap();
    assert!(
        !log.finish_step(&agent(), 2, trained("main-1"))
            .await
            .unwrap()
    );
    assert!(
        log.finish_step(&agent(), 1, trained("main-1"))
            .await
            .unwrap()
    );
    assert!(
        !log.finish_step(&agent(), 1, trained("main-1"))
            .await
            .unwrap()
    );
    assert_eq!(
        log.in_state(&agent(), StateKind::Trained).await.unwrap(),
        ids
    );
    assert_eq!(
        log.steps(&agent()).await.unwrap()[0].outcome,
        Some(trained("main-1"))
    );
    let again = log.take(step(2, &ids)).await.unwrap_err();
    let state = TurnState::Trained { n: 1 };
    assert_eq!(again, TakeError::NotFree { id: ids[0], state }.into());
    let same = log
        .take(NewStep {
            attempt: 1,
            ..step(1, &ids)
        })
        .await
        .unwrap_err();
    assert_eq!(same, TakeError::Exists { n: 1, attempt: 0 }.into());
}

#[tokio::test]
async fn a_released_step_gives_its_turns_back_and_may_be_tried_again() {
    let (_dir, log) = new_log();
    let ids = judged(&log, 2).await;
    log.take(step(1, &ids)).await.unwrap();
    let why = "the trainer died".to_owned();
    log.finish_step(&agent(), 1, StepOutcome::Released { why })
        .await
        .unwrap();
    assert_eq!(
        log.in_state(&agent(), StateKind::Judged).await.unwrap(),
        ids
    );
    let same = log.take(step(1, &ids)).await.unwrap_err();
    assert_eq!(same, TakeError::Exists { n: 1, attempt: 0 }.into());
    log.take(NewStep {
        attempt: 1,
        ..step(1, &ids)
    })
    .await
    .unwrap();
    assert_eq!(log.steps(&agent()).await.unwrap().len(), 2);
    assert_eq!(log.open_steps().await.unwrap()[0].begun.attempt, 1);
}

#[tokio::test]
async fn a_declined_step_gives_its_turns_back_and_says_why_after_reopening() {
    let (dir, log) = new_log();
    let ids = judged(&log, 2).await;
    log.take(step(1, &ids)).await.unwrap();
    let declined = StepOutcome::Declined {
        adapter: "main-1".to_owned(),
        checkpoint: "main-1".to_owned(),
        why: "relevance 0.31".to_owned(),
        gate: serde_json::json!({"tests": []}),
        at_ms: 5,
        n_judged: 2,
    };
    let ended = log.finish_step(&agent(), 1, declined.clone()).await;
    assert_eq!(ended, Ok(true));
    let free = log.in_state(&agent(), StateKind::Judged).await.unwrap();
    assert_eq!(free, ids);
    log.close().await;
    let log = open(dir.path());
    assert_eq!(
        log.steps(&agent()).await.unwrap()[0].outcome,
        Some(declined)
    );
    // In another lineage the same turns may be taken, because that lineage has not used them.
    let other = NewStep {
        lineage: "other".to_owned(),
        ..step(1, &ids)
    };
    log.take(other).await.unwrap();
}

#[tokio::test]
async fn what_serves_is_known_after_reopening() {
    let (dir, log) = new_log();
    log.set_serving(&agent(), Some("main-1".to_owned()))
        .await
        .unwrap();
    log.set_serving(&agent(), Some("main-2".to_owned()))
        .await
        .unwrap();
    log.close().await;
    let log = open(dir.path());
    assert_eq!(
        log.serving().await.unwrap(),
        [(agent(), "main-2".to_owned())]
    );
    log.set_serving(&agent(), None).await.unwrap();
    assert!(log.serving().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_the_owner_chose_stands_until_a_step_goes_on_from_there() {
    let (dir, log) = new_log();
    let serve = async |log: &TurnLog, adapter: &str, choice_ms| {
        log.serve_step(&agent(), adapter.to_owned(), choice_ms)
            .await
            .unwrap()
    };
    let serving = async |log: &TurnLog| {
        let serving = log.serving().await.unwrap();
        serving.into_iter().map(|(_, adapter)| adapter).next()
    };
    assert!(serve(&log, "main-1", None).await);
    assert_eq!(log.choice(&agent()).await.unwrap(), None);
    let base = log.choose(&agent(), None).await.unwrap();
    assert_eq!(serving(&log).await, None);
    assert!(!serve(&log, "main-2", None).await, "it was begun before");
    let old = log.choose(&agent(), Some("main-1".to_owned())).await;
    let old = old.unwrap();
    assert!(old.at_ms > base.at_ms);
    log.close().await;
    let log = open(dir.path());
    assert_eq!(log.choice(&agent()).await.unwrap().as_ref(), Some(&old));
    assert_eq!(serving(&log).await.as_deref(), Some("main-1"));
    assert!(!serve(&log, "main-3", Some(base.at_ms)).await);
    // The call is repeated, as after a failure whose first try was written.
    for _ in 0..2 {
        assert!(serve(&log, "main-4", Some(old.at_ms)).await);
    }
    assert_eq!(serving(&log).await.as_deref(), Some("main-4"));
    assert_eq!(log.choice(&agent()).await.unwrap(), None);
}

#[tokio::test]
async fn what_serves_is_taken_back_and_its_step_says_why() {
    let (dir, log, mut client) = new_session();
    for (n, adapter) in [(1, "main-1"), (2, "main-2")] {
        let id = log.put(client.turn("q", "a")).await;
        log.judge(id, verdict(Score::Bad)).await.unwrap();
        log.take(step(n, &[id])).await.unwrap();
        assert!(
            log.finish_step(&agent(), n, trained(adapter))
                .await
                .unwrap()
        );
        assert!(
            log.serve_step(&agent(), adapter.to_owned(), None)
                .await
                .unwrap()
        );
    }
    let steps = log.steps(&agent()).await.unwrap();
    let back = async |step: &Step, to: Option<&str>| {
        let to = to.map(str::to_owned);
        log.roll_back(step, to, "worse").await.unwrap()
    };
    assert!(!back(&steps[0], None).await, "it does not serve");
    assert!(back(&steps[1], Some("main-1")).await);
    assert!(!back(&steps[1], Some("main-1")).await, "not any more");
    let choice = log.choice(&agent()).await.unwrap().unwrap();
    assert_eq!(choice.adapter.as_deref(), Some("main-1"));
    log.close().await;
    let log = open(dir.path());
    let steps = log.steps(&agent()).await.unwrap();
    assert_eq!(steps[0].taken_back, None);
    let taken_back = TakenBack {
        at_ms: choice.at_ms,
        to: choice.adapter,
        why: "worse".to_owned(),
    };
    assert_eq!(steps[1].taken_back, Some(taken_back));
    let serving = log.serving().await.unwrap();
    assert_eq!(serving, [(agent(), "main-1".to_owned())]);
}

#[tokio::test]
async fn a_turn_held_out_is_judged_but_never_taken() {
    let (_dir, log) = new_log();
    let id = log.put(one_turn()).await;
    assert!(log.hold_out(id).await.unwrap());
    assert!(log.judge(id, verdict(Score::Bad)).await.unwrap());
    let error = log.take(step(1, &[id])).await.unwrap_err();
    let state = TurnState::HeldOut;
    assert_eq!(error, TakeError::NotFree { id, state }.into());
    assert_eq!(log.funnel(None).await.unwrap().held_out, 1);
}

#[tokio::test]
async fn a_verdict_that_is_overruled_is_kept() {
    let (_dir, log) = new_log();
    let ids = judged(&log, 1).await;
    assert!(log.overrule(ids[0], verdict(Score::Bad)).await.unwrap());
    assert!(log.overrule(ids[0], verdict(Score::Unclear)).await.unwrap());
    let turn = log.turn(ids[0]).await;
    assert_eq!(turn.verdict, Some(verdict(Score::Unclear)));
    assert_eq!(turn.overruled, [Score::Good, Score::Bad].map(verdict));
    assert_eq!(turn.state, TurnState::Judged);
    let listed = log.list(crate::TurnFilter::default()).await.unwrap();
    assert_eq!(listed[0].score, Some(Score::Unclear));
    let other = log.append(Client::new("t", "sys").turn("q", "a")).await;
    let other = other.unwrap();
    assert!(!log.overrule(other, verdict(Score::Bad)).await.unwrap());
    assert!(!log.judge(other, verdict(Score::Good)).await.unwrap());
    assert_eq!(log.funnel(None).await.unwrap().judged, 2);
}

#[tokio::test]
async fn a_turn_is_used_as_often_as_a_step_allows() {
    let (_dir, log) = new_log();
    let ids = judged(&log, 2).await;
    let again = |n, lineage: &str| NewStep {
        max_uses: 2,
        lineage: lineage.to_owned(),
        ..step(n, &ids)
    };
    log.take(step(1, &ids)).await.unwrap();
    log.finish_step(&agent(), 1, trained("main-1"))
        .await
        .unwrap();
    log.take(again(2, "main-a")).await.unwrap();
    let state = || async { log.turn(ids[0]).await.state };
    assert_eq!(state().await, TurnState::Taken { n: 2 });
    let why = "the trainer died".to_owned();
    let released = StepOutcome::Released { why };
    log.finish_step(&agent(), 2, released).await.unwrap();
    assert_eq!(state().await, TurnState::Trained { n: 1 });
    let retry = NewStep {
        attempt: 1,
        ..again(2, "main-a")
    };
    log.take(retry).await.unwrap();
    log.finish_step(&agent(), 2, trained("main-1"))
        .await
        .unwrap();
    let error = log.take(again(3, "main-a")).await.unwrap_err();
    let not_free = |error| matches!(error, LogError::NotTaken(TakeError::NotFree { .. }));
    assert!(not_free(error));
    // Another lineage has not used it.
    log.take(again(1, "main-b")).await.unwrap();
    log.finish_step(&agent(), 1, trained("main-1"))
        .await
        .unwrap();
    let uses = log.turn(ids[1]).await.uses;
    let used = |lineage: &str, n| Use {
        lineage: lineage.to_owned(),
        n,
    };
    let expected = [used("main-a", 1), used("main-a", 2), used("main-b", 1)];
    assert_eq!(uses, expected);
    assert_eq!(log.funnel(None).await.unwrap().trained, 2);
}

/// A lineage begins anew for many reasons (a restart, a step that was not seen to be made), but its weights continue.
#[tokio::test]
async fn uses_are_counted_over_the_lineages_behind_a_step() {
    let (_dir, log) = new_log();
    let ids = judged(&log, 1).await;
    let used = |lineage: &str, n| Use {
        lineage: lineage.to_owned(),
        n,
    };
    let of = |lineage: &str, n, ancestors: &[Use]| NewStep {
        max_uses: 2,
        lineage: lineage.to_owned(),
        ancestors: ancestors.to_vec(),
        ..step(n, &ids)
    };
    log.take(of("main-a", 1, &[])).await.unwrap();
    log.finish_step(&agent(), 1, trained("main-1"))
        .await
        .unwrap();
    log.take(of("main-a", 2, &[])).await.unwrap();
    log.finish_step(&agent(), 2, trained("main-1"))
        .await
        .unwrap();
    let both = log.take(of("main-b", 1, &[used("main-a", 2)])).await;
    let not_free = |error| matches!(error, LogError::NotTaken(TakeError::NotFree { .. }));
    assert!(not_free(both.unwrap_err()), "both uses are behind it");
    // The lineage starts before the second step, so one use counts.
    log.take(of("main-b", 1, &[used("main-a", 1)]))
        .await
        .unwrap();
    log.finish_step(&agent(), 1, trained("main-1"))
        .await
        .unwrap();
    let error = log.take(of("main-b", 2, &[used("main-a", 1)])).await;
    assert!(not_free(error.unwrap_err()));
}

fn at_session_end(score: Score) -> Verdict {
    Verdict {
        at_session_end: true,
        weight: 0.3,
        ..verdict(score)
    }
}

#[tokio::test]
async fn a_verdict_of_a_sessions_end_gives_way_to_what_follows_and_to_nothing_else() {
    let (_dir, log) = new_log();
    let id = log.put(one_turn()).await;
    let at_end = async || {
        let funnel = log.funnel(None).await.unwrap();
        (funnel.judged, funnel.judged_at_session_end)
    };
    assert!(log.judge(id, at_session_end(Score::Good)).await.unwrap());
    assert_eq!(at_end().await, (1, 1));
    assert!(!log.judge(id, at_session_end(Score::Bad)).await.unwrap());
    assert!(log.judge(id, verdict(Score::Bad)).await.unwrap());
    assert_eq!(at_end().await, (1, 0));
    assert!(!log.judge(id, verdict(Score::Good)).await.unwrap());
    assert!(!log.judge(id, at_session_end(Score::Good)).await.unwrap());
    let turn = log.turn(id).await;
    assert_eq!(turn.verdict, Some(verdict(Score::Bad)));
    assert_eq!(turn.overruled, [at_session_end(Score::Good)]);
    let days = log.statistics(0).await.unwrap();
    assert_eq!((days[0].counts.good, days[0].counts.bad), (0, 1));
}

#[tokio::test]
async fn a_spent_turn_is_reopened_for_the_reasons_given_and_once_it_has_a_verdict() {
    let (_dir, log) = new_log();
    let id = log.put(one_turn()).await;
    log.spend(id, "no rule fits").await.unwrap();
    assert!(!log.reopen(id, &["no rule fits"]).await.unwrap());
    assert!(!log.overrule(id, verdict(Score::Bad)).await.unwrap());
    assert!(!log.reopen(id, &["side turn"]).await.unwrap());
    assert!(
        log.reopen(id, &["side turn", "no rule fits"])
            .await
            .unwrap()
    );
    let turn = log.turn(id).await;
    assert_eq!(turn.state, TurnState::Judged);
    assert!(log.funnel(None).await.unwrap().spent.is_empty());
    log.take(step(1, &[id])).await.unwrap();
    assert!(!log.reopen(id, &["no rule fits"]).await.unwrap());
}
