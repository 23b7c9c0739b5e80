//! Tests of turns that no step uses, and of the recorded reason.
//!
//! Tests of held-out sessions: none of their turns is trained on, and the gate tests adapters with them.

use super::*;
use crate::{gate::GateTest, testing::Habit};

#[tokio::test]
async fn what_is_of_no_use_is_spent_with_a_reason() {
    let (_dir, world, rig) = begin(usual()).await;
    let accepted = [said("q", "Short.", 1), said("Thanks.", "Welcome.", 2)];
    let uncorrected = [
        said("q", &"w ".repeat(50), 3),
        said("Too long.", &"w ".repeat(50), 4),
        said("Hm.", "x", 5),
    ];
    append(&rig.log, &world, "a", &accepted).await;
    append(&rig.log, &world, "b", &uncorrected).await;
    let funnel = async || rig.log.funnel(None).await.unwrap();
    let are_spent = async || funnel().await.spent.values().sum::<u64>() >= 2;
    rig.until("two turns are spent", are_spent).await;
    let spent = funnel().await.spent;
    let expected = [
        (
            "the reply was good, and no wish is in force to learn from it",
            1,
        ),
        ("no rule fits", 1),
    ];
    assert_eq!(spent, expected.map(|(why, n)| (why.to_owned(), n)).into());
    rig.stop().await;
}

#[tokio::test]
async fn what_is_older_than_rl_max_age_is_left_out() {
    let (dir, world) = (folder(), World::default());
    let none = json!({"rl": {"max_age": "0 s"}});
    let rig = Rig::start(dir.path(), &world, config(&none)).await;
    // A turn has an age only once the log has noted the clock, and only if the turn is older than that note. The note is
    // in a minute, so the turns below are older.
    let in_a_minute = now_ms() + 60_000;
    let noted = rig.log.note_clock(Duration::ZERO, in_a_minute).await;
    noted.unwrap().unwrap();
    rig.talk(&world, &[1, 2]).await;
    let left_out = async || {
        let spent = rig.log.funnel(None).await.unwrap().spent;
        spent.get("older than rl.max_age").copied().unwrap_or(0)
    };
    rig.until("four turns are too old", async || left_out().await >= 4)
        .await;
    assert!(world.asked().is_none(), "no step was made");
    rig.stop().await;
}

/// There are sixty sessions with a complaint each. Nothing is trained before the owner asks for a step.
async fn talked(dir: &Path, world: &World) -> Rig {
    let seldom = json!({"rl": {"batch_size": 1_000}, "gate": {"held_out": 0.5}});
    let rig = Rig::start(dir, world, config(&seldom)).await;
    for number in 1..=60 {
        let session = format!("h{number}");
        append(&rig.log, world, &session, &corrected_talk(number)).await;
    }
    let is_looked_at = async || rig.n(StateKind::HeldOut).await >= 12;
    rig.until("some are held out", is_looked_at).await;
    rig
}

async fn preference(rig: &Rig) -> GateTest {
    let report = rig.learner.train_now(None).await.unwrap().remove(0);
    let mut tests = report.gate.unwrap().tests.into_iter();
    tests.find(|test| test.name == "preference").unwrap()
}

#[tokio::test]
async fn what_is_held_out_is_not_learned_from_and_is_asked_about() {
    let (dir, world) = (folder(), World::default());
    let rig = talked(dir.path(), &world).await;
    let test = preference(&rig).await;
    assert_eq!(
        (test.passed, test.value),
        (Some(true), Some(0.0)),
        "{}",
        test.why
    );
    let agent = AgentId::default_agent();
    let held_out = rig.log.in_state(&agent, StateKind::HeldOut).await.unwrap();
    let sessions: BTreeSet<u64> = held_out.iter().map(|id| id.session).collect();
    assert!(sessions.iter().all(|session| *session > 32), "{sessions:?}");
    let serving = rig.log.serving().await.unwrap().remove(0).1;
    let weights = world.adapter(&serving).unwrap();
    // A turn's mark is ten times the number of its session.
    let learned = |session: &u64| weights.contains(&(10 * u32::try_from(*session).unwrap()));
    assert!(!weights.is_empty() && !sessions.iter().any(learned));
    rig.stop().await;
}

#[tokio::test]
async fn an_adapter_that_likes_less_what_was_accepted_is_declined() {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[], Habit::Sulks);
    let rig = talked(dir.path(), &world).await;
    let test = preference(&rig).await;
    assert_eq!(test.passed, Some(false), "{}", test.why);
    assert!(test.why.starts_with("preference -0.50 nat"), "{}", test.why);
    assert!(rig.log.serving().await.unwrap().is_empty());
    rig.stop().await;
}

/// Returns the marks of the turns that two asked-for steps train on, before and after another complaint, and the turns
/// that were excluded, by reason.
async fn trained_by_rule(rule: &str) -> ([Vec<u32>; 2], Vec<(String, u64)>) {
    let (dir, world) = (folder(), World::default());
    let library = library(dir.path());
    let binary = json!({"rl": {"method": "binary_rl", "batch_size": 64, "support_query": rule}});
    let heard = Some(library.clone());
    let rig = Rig::start_with(dir.path(), &world, config(&binary), heard).await;
    rig.talk(&world, &[1, 2]).await;
    rig.judged(4).await;
    let agent = AgentId::default_agent();
    let is_heard = async || !library.wishes(&agent).is_empty();
    rig.until("the second complaint is a wish", is_heard).await;
    let mut marks = Vec::new();
    for talk in [None, Some(corrected_talk(3))] {
        if let Some(talk) = talk {
            append(&rig.log, &world, "c", &talk).await;
            rig.judged(6).await;
        }
        let n_passes = world.passes().len();
        rig.learner.train_now(None).await.unwrap();
        let mut of_step: Vec<u32> = world.passes()[n_passes..].concat();
        of_step.sort_unstable();
        marks.push(of_step);
    }
    let spent = rig.log.funnel(None).await.unwrap().spent;
    rig.stop().await;
    let marks = <[Vec<u32>; 2]>::try_from(marks).unwrap();
    (marks, spent.into_iter().collect())
}

#[tokio::test]
async fn the_verdicts_that_led_to_a_wish_are_not_trained_on_beside_it() {
    let (marks, spent) = trained_by_rule("own").await;
    assert_eq!(marks, [vec![], vec![30, 31]], "{spent:?}");
    let why = "support: a lesson in force came from it (rl.support_query)";
    assert!(spent.contains(&(why.to_owned(), 4)), "{spent:?}");
}

#[tokio::test]
async fn without_separation_every_verdict_is_trained_on() {
    let (marks, spent) = trained_by_rule("off").await;
    assert_eq!(marks, [vec![10, 11, 20, 21], vec![30, 31]], "{spent:?}");
}
