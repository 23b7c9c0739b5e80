//! Tests of adapters that are measured beside the base model.

use super::*;
use crate::{EvalError, EvalTurns, EvalWanted, testing::Habit};

fn wanted(turns: EvalTurns) -> EvalWanted {
    EvalWanted {
        agent: AgentId::default_agent(),
        adapters: Vec::new(),
        wishes: Vec::new(),
        turns,
        set: 0,
        n_replies: 2,
    }
}

async fn served(dir: &Path, world: &World, habit: Habit) -> Rig {
    world.train_into(&[], habit);
    let config = config(&json!({"gate": {"enabled": false}}));
    let rig = Rig::start(dir, world, config).await;
    for n in 0..2 {
        append(&rig.log, world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    rig.trained(2).await;
    let is_served = async || !rig.log.serving().await.unwrap().is_empty();
    rig.until("an adapter is served", is_served).await;
    rig
}

#[tokio::test]
async fn what_serves_is_measured_beside_the_base_on_probes_and_turns() {
    let (dir, world) = (folder(), World::default());
    let rig = served(dir.path(), &world, Habit::Greets).await;
    let funnel = rig.log.funnel(None).await.unwrap();
    let n_runs = world.n_runs();
    let wanted_now = wanted(EvalTurns::HeldOutOrLast(8));
    let report = rig.learner.evaluate(&wanted_now).await.unwrap();
    let serving = rig.log.serving().await.unwrap();
    let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["base", &serving[0].1]);
    let [base, greets] = &report.rows[..] else {
        panic!("{report:?}")
    };
    // An adapter that would answer anything has no relevance, but may still know the right answers.
    assert_eq!((base.on_probes.n, greets.on_probes.n), (16, 16));
    let is_so = base.on_probes.relevance > 0.5 && greets.on_probes.relevance < 0.1;
    assert!(is_so, "{report:?}");
    assert!(base.on_turns.unwrap().relevance > 0.5, "{report:?}");
    assert!(greets.on_turns.unwrap().relevance < 0.1, "{report:?}");
    let knows = |row: &crate::EvalRow| row.knowledge.unwrap();
    assert_eq!(knows(base).n_right, Some(64));
    assert_eq!(knows(greets).n_right, Some(64));
    assert_eq!((knows(base).n_tools, knows(base).n_tool_prompts), (1, 16));
    // The measurement uses the questions that sessions began with, and not what followed.
    let asked: Vec<&str> = report
        .replies
        .iter()
        .map(|reply| reply.question.as_str())
        .collect();
    assert_eq!(
        (asked.len(), &asked[2..]),
        (4, &["question 1", "question 0"][..])
    );
    assert_eq!(report.turns.len(), 2);
    for replied in &report.replies {
        let by: Vec<&str> = replied.replies.iter().map(|(by, _)| by.as_str()).collect();
        assert_eq!(by, names);
        assert!(replied.replies[1].1.starts_with("Hello!"), "{replied:?}");
    }
    // The measurement changes nothing.
    assert_eq!(rig.log.funnel(None).await.unwrap(), funnel);
    assert_eq!(world.n_runs(), n_runs);
    rig.stop().await;
}

#[tokio::test]
async fn held_out_turns_come_first_and_wishes_make_a_row() {
    let (dir, world) = (folder(), World::default());
    let library = library(dir.path());
    let agent = AgentId::default_agent();
    assert!(library.add_wish(&agent, "Answer briefly.").unwrap());
    let config = config(&json!({"mode": "skills_only"}));
    let rig = Rig::start_with(dir.path(), &world, config, Some(library)).await;
    rig.talk(&world, &[3, 4]).await;
    let held_out = TurnId { session: 1, seq: 0 };
    rig.log.hold_out(held_out).await.unwrap();
    let wanted_now = wanted(EvalTurns::HeldOutOrLast(8));
    let report = rig.learner.evaluate(&wanted_now).await.unwrap();
    assert_eq!(report.turns, [held_out]);
    let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["base", "base, told the wishes"]);
    assert_eq!(report.wishes, ["Answer briefly."]);
    assert!(report.rows[1].knowledge.is_none());
    // The reference was asked each question with the wishes after it.
    let told = world
        .prompts()
        .into_iter()
        .filter(|prompt| prompt.ends_with("\n\nAnswer briefly."));
    assert_eq!(told.count(), 16 + 1);
    let other = EvalWanted {
        wishes: vec!["Say it in French.".to_owned()],
        ..wanted(EvalTurns::Last(0))
    };
    let report = rig.learner.evaluate(&other).await.unwrap();
    assert_eq!(report.wishes, ["Say it in French."]);
    rig.stop().await;
}

#[tokio::test]
async fn what_cannot_be_measured_is_refused_in_words() {
    let (dir, world) = (folder(), World::default());
    let rig = served(dir.path(), &world, Habit::Fine).await;
    let nobody = EvalWanted {
        adapters: vec!["main-0badcafe-000001".to_owned()],
        ..wanted(EvalTurns::Last(0))
    };
    let refused = rig.learner.evaluate(&nobody).await;
    let is_so = matches!(refused, Err(EvalError::NoAdapter { .. }));
    assert!(is_so, "{refused:?}");
    let turn = TurnId {
        session: 99,
        seq: 0,
    };
    let wanted_now = wanted(EvalTurns::These(vec![turn]));
    let refused = rig.learner.evaluate(&wanted_now);
    let refused = refused.await.unwrap_err().to_string();
    assert_eq!(refused, "turn 99-0: the log has no such turn");
    // An adapter without a checkpoint is measured by its replies only.
    world.delete_checkpoints();
    let report = rig
        .learner
        .evaluate(&wanted(EvalTurns::Last(0)))
        .await
        .unwrap();
    let knowledge = report.rows[1].knowledge.unwrap();
    assert_eq!((knowledge.n_right, knowledge.n_tools), (None, 1));
    assert_eq!((report.notes.len(), report.rows[1].on_turns), (1, None));
    rig.stop().await;
}
