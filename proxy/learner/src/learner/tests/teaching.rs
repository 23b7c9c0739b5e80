//! Tests of redo with a teacher: what it trains on, and what it does not.

use metaclaw_chat::Message;
use metaclaw_skills::{SkillsConfig, WishesConfig};
use metaclaw_turns::Served;
use serde_json::json;

use super::*;
use crate::testing::new_turn;

const WISH: &str = "Please answer in one short sentence.";

pub(super) fn with_wish(dir: &Path) -> Library {
    let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
    let (library, _) = Library::open(dir.join("skills"), skills, wishes);
    let agent = AgentId::default_agent();
    assert!(library.add_wish(&agent, WISH).unwrap());
    library
}

/// A question and thanks, served with the wish instead of the failed turn.
async fn wished(rig: &Rig, world: &World, number: u32, served: Served) {
    let session = format!("w{number}");
    let mut messages = Vec::new();
    for (at, said) in [format!("question {number}"), "Thanks.".to_owned()]
        .into_iter()
        .enumerate()
    {
        messages.push(Message::user(said));
        let reply_id = format!("{session}-{at}");
        let reply = Message::assistant("It is a short one.");
        let sampled = crate::testing::sampled(&reply_id, &messages, &reply.text());
        world.remember(sampled);
        let mut turn = new_turn(&session, &reply_id, &messages, reply.clone());
        turn.served = Served {
            upstream: turn.served.upstream,
            ..served.clone()
        };
        rig.log.append(turn).await.unwrap();
        messages.push(reply);
    }
}

/// The wish counts as learned only if the adapter follows it without the wish in its prompt.
#[tokio::test]
async fn a_wish_is_taught_by_every_turn_without_its_line() {
    let block = format!("## Standing wishes of the user\n\n- {WISH}");
    let places = [
        Served {
            user_line: Some(WISH.to_owned()),
            wishes: Some("v".to_owned()),
            ..Served::default()
        },
        Served {
            system_block: Some(block),
            wishes: Some("v".to_owned()),
            ..Served::default()
        },
    ];
    for served in places {
        let (dir, world) = (folder(), World::default());
        let library = Some(with_wish(dir.path()));
        let log = dir.path().join("log");
        let rig = Rig::start_with(&log, &world, again(1), library).await;
        wished(&rig, &world, 1, served.clone()).await;
        wished(&rig, &world, 2, served).await;
        assert!(rig.trained(2).await);
        for told in world.told() {
            assert!(told.ends_with(WISH), "{told:?}");
        }
        let taught = world.taught();
        let expected = [1, 2].map(|n| {
            let reply = format!("question {n} is answered.");
            (format!("question {n}"), reply)
        });
        assert_eq!(taught, expected);
        // The prompt is rendered again, because the turn's own ids contained the wish. The server recognises the reply
        // by its first letter.
        let q = u32::from(b'q');
        assert_eq!(world.passes()[0], [q, q]);
        rig.stop().await;
    }
}

/// The weights are not trained on what they already do.
#[tokio::test]
async fn a_reply_that_obeyed_without_the_line_is_left_alone() {
    let (dir, world) = (folder(), World::default());
    let library = Some(with_wish(dir.path()));
    // For this judge, the model's own five words are too many in one case and allowed in the other.
    for (most, is_taught) in [(5, false), (4, true)] {
        let rules = json!([
            {"on": "next", "pattern": "Thanks", "score": 1},
            {"on": "reply", "max_words": most, "score": 1},
        ]);
        let judged = config(&json!({"judge": {"rules": rules}}));
        let log = dir.path().join(format!("log-{most}"));
        let rig = Rig::start_with(&log, &world, judged, library.clone()).await;
        for number in [1, 2] {
            wished(&rig, &world, number, Served::default()).await;
        }
        if is_taught {
            assert!(rig.trained(2).await);
        } else {
            let why = "does what is wished without being told".to_owned();
            assert_eq!(rig.spent(2).await, [(why, 2)]);
            assert!(world.told().is_empty());
        }
        rig.stop().await;
    }
}

/// With `rl.consolidate: false`, the prompt keeps the wish, and only failed turns are answered again.
#[tokio::test]
async fn without_consolidation_what_was_accepted_is_left_alone() {
    let (dir, world) = (folder(), World::default());
    let library = Some(with_wish(dir.path()));
    let off = config(&json!({"rl": {"consolidate": false}, "judge": {"rules": [
        // The message contains nothing that counts as a wish.
        {"on": "next", "pattern": "no good", "score": -1},
        {"on": "reply", "max_words": 40, "score": 1},
    ]}}));
    let rig = Rig::start_with(&dir.path().join("log"), &world, off, library).await;
    wished(&rig, &world, 1, Served::default()).await;
    for number in [3, 4] {
        let talk = [
            said(&format!("question {number}"), "One two three.", 10 * number),
            said("That was no good.", "Four five six.", 10 * number + 1),
        ];
        append(&rig.log, &world, &format!("s{number}"), &talk).await;
    }
    assert!(rig.trained(2).await);
    assert_eq!(world.passes()[0], [30, 40], "by their own ids");
    // The teacher gets the wish, and what was said about this turn.
    let told = format!("question 3\n\n{WISH} That was no good.");
    assert_eq!(world.told()[0], told);
    rig.stop().await;
}

/// This is the degenerate case: a reply that satisfies the rule and answers nothing.
#[tokio::test]
async fn what_no_draw_passes_is_not_taught_and_says_why() {
    type Says = crate::testing::Answers;
    let greets: Says = |_, _| ("Hello!".to_owned(), true);
    let goes_round: Says = |said, _| (format!("{said} {}", "and on ".repeat(12)), false);
    let is_vague: Says = |said, k| match k {
        0 => ("That may well be so.".to_owned(), true),
        _ => (format!("{said} {}", "word ".repeat(60)), true),
    };
    let relevant = "no draw of the teacher answers the question well enough";
    let obeys = "no draw of the teacher does what is wished";
    for (answers, why) in [(greets, obeys), (goes_round, obeys), (is_vague, relevant)] {
        let (dir, world) = (folder(), World::default());
        world.set_answers(answers);
        let rig = Rig::start(dir.path(), &world, again(1)).await;
        // There is no correction, because it would be one more reply to choose from.
        append(&rig.log, &world, "a", &corrected_talk(1)[..2]).await;
        append(&rig.log, &world, "b", &corrected_talk(2)[..2]).await;
        assert_eq!(rig.spent(2).await, [(why.to_owned(), 2)]);
        assert!(world.passes().is_empty());
        // The status changes a moment after the log.
        let is_told = async || {
            let status = rig.learner.status().await.unwrap();
            status.agents[0].not_taught.get(why) == Some(&2)
        };
        rig.until("the status says why", is_told).await;
        rig.stop().await;
    }
}

/// The session's own reply is checked by the same rules.
#[tokio::test]
async fn an_accepted_reply_is_taught_only_if_it_is_the_best() {
    let (dir, world) = (folder(), World::default());
    world.set_answers(|said, _| (format!("{said} {}", "word ".repeat(60)), true));
    // Nothing is drawn before a step is asked for.
    let auto = config(&json!({"mode": "auto"}));
    let rig = Rig::start(dir.path(), &world, auto).await;
    let long = "word ".repeat(60);
    for (number, reply) in [(1, "It is a short one."), (2, "question 2 is over.")] {
        let talk = [
            said(&format!("question {number}"), &long, 10 * number),
            said("Too long.", reply, 10 * number + 1),
            said("Thanks.", "You are welcome.", 10 * number + 2),
        ];
        append(&rig.log, &world, &format!("s{number}"), &talk).await;
    }
    rig.judged(4).await;
    let reports = rig.learner.train_now(None).await.unwrap();
    let taught = world.taught();
    assert_eq!(taught.len(), 1, "{taught:?} {reports:?}");
    assert_eq!(taught[0].1, "question 2 is over.");
    rig.stop().await;
}
