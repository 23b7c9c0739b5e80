//! Tests of what adapters are compared with: the base model's results and the owner's wishes.

use super::{
    gate::{N_SCORED, usual},
    *,
};
use crate::testing::Habit;

/// Returns how often this text was in a prompt that replies were drawn for.
fn n_drawn(world: &World, text: &str) -> usize {
    let prompts = world.prompts();
    prompts.iter().filter(|it| it.contains(text)).count()
}

/// A tool prompt that the world's base model answers correctly, and one that it does not.
const ANSWERED: &str = "Tom is 9 years old.";
const NOT_ANSWERED: &str = "todo.txt";

#[tokio::test]
async fn what_the_base_model_comes_to_is_asked_once_and_after_a_restart_not_again() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    assert!(rig.trained(2).await);
    assert_eq!(world.most_streams(), 16, "the sixteen questions at once");
    let asked = |world: &World| [ANSWERED, NOT_ANSWERED].map(|it| n_drawn(world, it));
    assert_eq!(asked(&world), [2, 1], "the adapter passes with the first");
    let scored = world.n_forward();
    assert_eq!(scored, N_SCORED);
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 3).await;
    assert!(rig.trained(4).await);
    assert_eq!(asked(&world), [3, 1]);
    let again = world.n_forward() - scored;
    // The probes, and its replies to the questions, with the wish and without.
    let (teachers, known) = (2, 5);
    assert_eq!(again, N_SCORED + teachers - known, "what the base knows");
    rig.stop().await;
    let file = dir.path().join("learning/gate.json");
    std::fs::write(&file, "{").unwrap();
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 5).await;
    assert!(rig.trained(6).await);
    assert_eq!(asked(&world), [5, 2], "it could not be read");
    rig.stop().await;
    // Another base model is measured separately.
    world.set_base("other", "0ther");
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 7).await;
    assert!(rig.trained(8).await);
    assert_eq!(asked(&world), [7, 3]);
    rig.stop().await;
}

/// An adapter that fails at what the base model answers may succeed at others, so all prompts are asked before it is
/// declined.
#[tokio::test]
async fn tools_that_are_lost_are_looked_for_among_the_others() {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[], Habit::Chats);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    let declined = rig.declined_in_a_row(1).await;
    let why = "tools 0.00 of 16 prompts answered as agents need it, of 16 asked, at least 1.00";
    assert_eq!(declined.why, why);
    rig.stop().await;
}

/// Returns the questions that the base model was asked with this text after them.
fn asked_with(world: &World, wish: &str) -> BTreeSet<String> {
    let end = format!("?\n\n{wish}");
    let prompts = world.prompts().into_iter();
    let asked = prompts.filter_map(|it| Some(it.split_once(&end)?.0.to_owned()));
    asked.collect()
}

/// The adapter was declined for its length, compared with a base model without wishes.
#[tokio::test]
async fn a_batch_of_good_verdicts_is_held_against_what_was_taught_before() {
    let (dir, world) = (folder(), World::default());
    // There are so many steps that each batch is asked other questions.
    let verdicts =
        config(&serde_json::json!({"rl": {"method": "binary_rl", "batch_size": 4, "epochs": 4}}));
    let rig = Rig::start(dir.path(), &world, verdicts.clone()).await;
    rig.two_talks(&world, 1).await;
    assert!(rig.trained(4).await, "two complaints, two that please");
    assert_eq!(asked_with(&world, "Too long.").len(), 16);
    let please = async |rig: &Rig, first: u32| {
        for number in first..first + 4 {
            let talk = [
                said("Why?", "So.", 10 * number),
                said("Thanks.", "Fine.", 1),
            ];
            append(&rig.log, &world, &format!("p{number}"), &talk).await;
        }
    };
    please(&rig, 3).await;
    assert!(rig.trained(8).await);
    assert_eq!(asked_with(&world, "Too long.").len(), 32, "of its lineage");
    rig.stop().await;
    world.set_base("other", "0ther");
    let rig = Rig::start(dir.path(), &world, verdicts).await;
    please(&rig, 7).await;
    assert!(rig.trained(12).await);
    let n_told = world
        .prompts()
        .iter()
        .filter(|it| it.contains("?\n\nToo long."))
        .count();
    assert_eq!(n_told, 48, "of the agent's last turns, in a fresh lineage");
    rig.stop().await;
}

/// The base model answers differently with the owner's wish and without it, and both answers pass.
#[tokio::test]
async fn a_wish_stands_in_the_prompts_of_the_reference() {
    let (dir, world) = (folder(), World::default());
    let lessons = folder();
    let (library, _) = Library::open(
        lessons.path(),
        SkillsConfig::default(),
        WishesConfig::default(),
    );
    library
        .add_wish(&AgentId::default_agent(), "Answer in French.")
        .unwrap();
    // This wish differs from the complaint in the conversations, which would replace it. Only one step is made, because
    // a second one asks other questions.
    let once = config(&serde_json::json!({"rl": {"consolidate": false}}));
    let rig = Rig::start_with(dir.path(), &world, once, Some(library)).await;
    rig.two_talks(&world, 1).await;
    assert!(rig.trained(2).await);
    // The questions are drawn again after another wish.
    let questions = asked_with(&world, "Answer in French.");
    assert_eq!(
        questions.len(),
        16,
        "the reference asks these: {questions:?}"
    );
    rig.stop().await;
}
