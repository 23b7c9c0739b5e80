//! Tests: the owner rates replies outside the chat.

use std::path::Path;

use futures_util::future::BoxFuture;
use metaclaw_chat::Message;
use metaclaw_skills::{Library, SkillsConfig, WishesConfig};
use metaclaw_turns::{TurnLog, TurnState, TurnsConfig};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    Ask, AskFailed, Listener, Parts,
    testing::{World, append, corrected_talk, parts},
};

/// A log of one conversation of three turns, and a library.
struct Room {
    dir: TempDir,
    shared: Shared,
    library: Library,
}

impl Room {
    async fn new() -> Self {
        Self::of(|_| false).await
    }

    async fn of(is_off: fn(&AgentId) -> bool) -> Self {
        Self::with(is_off, None).await
    }

    async fn with(is_off: fn(&AgentId) -> bool, listener: Option<Listener>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| -> std::path::PathBuf { Path::new(dir.path()).join(name) };
        let log = TurnLog::open(&at("turns"), &TurnsConfig::default()).unwrap();
        append(&log, &World::default(), "a", &corrected_talk(1)).await;
        let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
        let (library, _) = Library::open(at("skills"), skills, wishes);
        let parts = Parts {
            listener,
            library: Some(library.clone()),
            is_off: std::sync::Arc::new(is_off),
            ..parts(serde_json::from_str(r#"{"mode": "rl"}"#).unwrap(), &log)
        };
        let shared = Shared::new(parts, CancellationToken::new());
        Self {
            dir,
            shared,
            library,
        }
    }

    async fn rate(
        &self,
        about: About,
        score: Score,
        text: Option<&str>,
    ) -> Result<Rated, FeedbackError> {
        let feedback = Feedback {
            about,
            score,
            text: text.map(str::to_owned),
        };
        rate(&self.shared, &AgentId::default_agent(), &feedback).await
    }

    async fn turn(&self, seq: u32) -> Turn {
        let id = TurnId { session: 1, seq };
        self.shared.log.get(id).await.unwrap().unwrap()
    }

    async fn close(self) {
        self.shared.log.clone().close().await;
        self.dir.close().unwrap();
    }
}

fn session(name: &str) -> About {
    About::Session(name.parse().unwrap())
}

#[tokio::test]
async fn a_reply_is_named_by_session_turn_or_its_own_id() {
    let room = Room::new().await;
    let id = |seq| TurnId { session: 1, seq };
    for (about, seq) in [
        (session("a"), 2),
        (About::Turn(id(0)), 0),
        (About::Reply("a-11".to_owned()), 1),
    ] {
        let rated = room.rate(about, Score::Good, None).await.unwrap();
        assert_eq!((rated.turns, rated.n_overruled), (vec![id(seq)], 0));
        let turn = room.turn(seq).await;
        let verdict = turn.verdict.unwrap();
        assert_eq!((verdict.score, verdict.by), (Score::Good, JudgedBy::Owner));
        assert_eq!(turn.state, TurnState::Judged);
    }
    for about in [
        session("b"),
        About::Turn(id(9)),
        About::Reply("x".to_owned()),
    ] {
        let error = room.rate(about, Score::Good, None).await.unwrap_err();
        assert!(matches!(error, FeedbackError::Unknown { .. }), "{error}");
    }
    let agent: AgentId = "other".parse().unwrap();
    let feedback = Feedback {
        about: About::Turn(id(0)),
        score: Score::Bad,
        text: None,
    };
    let error = rate(&room.shared, &agent, &feedback).await.unwrap_err();
    assert_eq!(error.to_string(), "no turn of agent other has the id 1-0");
    room.close().await;
}

#[tokio::test]
async fn the_owner_overrules_and_one_verdict_is_in_force() {
    let room = Room::new().await;
    let judged = Verdict {
        judge_hints: vec!["Answer in one sentence.".to_owned()],
        ..Verdict::new(Score::Bad, JudgedBy::Llm)
    };
    let id = TurnId { session: 1, seq: 0 };
    room.shared.log.judge(id, judged.clone()).await.unwrap();
    let before = room.shared.n_changed_verdicts();
    let said = Some("far too  long");
    let rated = room.rate(About::Turn(id), Score::Bad, said).await.unwrap();
    assert_eq!(rated.n_overruled, 1);
    let verdict = room.turn(0).await.verdict.unwrap();
    assert_eq!(verdict.hint.as_deref(), Some("far too long"));
    assert_eq!(verdict.judge_hints, judged.judge_hints);
    room.rate(About::Turn(id), Score::Good, None).await.unwrap();
    let turn = room.turn(0).await;
    let verdict = turn.verdict.unwrap();
    assert_eq!((verdict.hint, verdict.judge_hints), (None, Vec::new()));
    assert_eq!(turn.overruled.len(), 2);
    assert_eq!(room.shared.n_changed_verdicts(), before + 2);
    assert_eq!(room.shared.log.funnel(None).await.unwrap().judged, 1);
    room.close().await;
}

#[tokio::test]
async fn a_turn_that_was_set_aside_for_want_of_a_verdict_is_free_again_and_others_stay() {
    let room = Room::new().await;
    let ids = [0, 1, 2].map(|seq| TurnId { session: 1, seq });
    let whys = [
        ExcludeReason::NoRule,
        ExcludeReason::Unclear,
        ExcludeReason::TooOld,
    ];
    for (id, why) in ids.into_iter().zip(whys) {
        room.shared.log.spend(id, why.as_str()).await.unwrap();
        room.rate(About::Turn(id), Score::Bad, None).await.unwrap();
    }
    let spent = TurnState::Spent {
        why: ExcludeReason::TooOld.to_string(),
    };
    for (seq, state) in [(0, TurnState::Judged), (1, TurnState::Judged), (2, spent)] {
        assert_eq!(room.turn(seq).await.state, state);
    }
    room.close().await;
}

#[tokio::test]
async fn what_is_said_with_it_is_heard_as_in_the_chat() {
    let room = Room::new().await;
    let said = "Please always answer in one short sentence.";
    room.rate(session("a"), Score::Bad, Some(said))
        .await
        .unwrap();
    let wishes = room.library.wishes(&AgentId::default_agent());
    assert_eq!(wishes.len(), 1, "{wishes:?}");
    let lesson = room.library.journal().unwrap().pop().unwrap();
    assert_eq!(lesson.origin.turn, Some(TurnId { session: 1, seq: 2 }));
    room.close().await;
}

#[derive(Debug)]
struct Says(&'static str);

impl Ask for Says {
    fn ask<'a>(&'a self, _: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        Box::pin(async { Ok(self.0.to_owned()) })
    }
}

/// Rules judge, and another model finds a hint, and says whether a sentence that looks like a wish is one. Rules are certain
/// about the first sentence.
#[tokio::test]
async fn a_listener_is_asked_where_the_judge_hears_nothing() {
    let certain = "Please always answer in one short sentence.";
    let likely = "Always run the tests before committing.";
    let said = &format!("{certain} {likely} I read these on my watch.");
    let both = "wish 1: one sentence\nwish 2: Run tests\nwish 3: Keep it short enough for a watch.";
    for (answer, wished) in [
        (
            both,
            &[certain, likely, "Keep it short enough for a watch."][..],
        ),
        ("none", &[certain]),
        // If the model does not answer, rules find the wishes, and propose one.
        ("I am a model.", &[certain]),
    ] {
        let listener = Listener::Model(std::sync::Arc::new(Says(answer)));
        let room = Room::with(|_| false, Some(listener)).await;
        room.rate(session("a"), Score::Bad, Some(said))
            .await
            .unwrap();
        let wishes = room.library.wishes(&AgentId::default_agent());
        let wishes: Vec<String> = wishes.into_iter().map(|wish| wish.text).collect();
        assert_eq!(wishes, wished, "{answer}");
        room.close().await;
    }
}

#[tokio::test]
async fn an_agent_that_is_only_relayed_is_not_judged() {
    let room = Room::of(|_| true).await;
    let error = room.rate(session("a"), Score::Good, None).await;
    assert!(matches!(error, Err(FeedbackError::Off { .. })));
    assert!(room.turn(2).await.verdict.is_none());
    room.close().await;
}
