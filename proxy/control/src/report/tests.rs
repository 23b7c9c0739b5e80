//! Tests of the report of one log.

use jiff::civil::date;
use metaclaw_chat::{AgentId, JudgedBy, Score, TurnId, Usage, Verdict};
use metaclaw_skills::{EvolutionRun, Origin, SkillsConfig, WishesConfig, hear};
use metaclaw_turns::{NewTurn, StreamEnd, TurnKind, TurnsConfig};

use super::*;
use crate::testing;

/// The time is noon of 2026-11-22.
const NOON_MS: u64 = 1_795_348_800_000;
const DAY_MS: u64 = 86_400_000;

struct World {
    dir: tempfile::TempDir,
    log: TurnLog,
    library: Library,
}

fn turn(session: &str, at_ms: u64, end: StreamEnd) -> NewTurn {
    let mut turn = testing::turn(&"main".parse().unwrap(), session, at_ms);
    turn.meta.usage = (end == StreamEnd::Complete).then_some(Usage {
        prompt_tokens: 1_000,
        completion_tokens: 50,
        cached_tokens: 600,
    });
    turn.meta.end = end;
    turn.served.upstream = "llm".to_owned();
    turn.served.model = "m".to_owned();
    turn
}

fn verdict(score: Score, hint: Option<&str>) -> Verdict {
    Verdict {
        hint: hint.map(str::to_owned),
        ..Verdict::new(score, JudgedBy::Rules)
    }
}

impl World {
    /// There is one turn yesterday, and today there are seven with different outcomes, and two lessons.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = TurnLog::open(&dir.path().join("turns"), &TurnsConfig::default()).unwrap();
        let (library, _) = Library::open(
            dir.path().join("skills"),
            SkillsConfig::default(),
            WishesConfig::default(),
        );
        let world = Self { dir, log, library };
        world
            .append("old", NOON_MS - DAY_MS, StreamEnd::Complete)
            .await;
        let good = world.append("a", NOON_MS, StreamEnd::Complete).await;
        let bad = world.append("b", NOON_MS + 1, StreamEnd::Complete).await;
        world.append("c", NOON_MS + 2, StreamEnd::Complete).await;
        world.append("d", NOON_MS + 3, StreamEnd::Cut).await;
        let failed = StreamEnd::UpstreamError { status: 502 };
        world.append("e", NOON_MS + 4, failed).await;
        let mut errand = turn("f", NOON_MS + 5, StreamEnd::Complete);
        errand.meta.kind = TurnKind::Side;
        errand.meta.usage = None;
        world.log.append(errand).await.unwrap();
        let spent = world.append("g", NOON_MS + 6, StreamEnd::Complete).await;
        let judge = async |id, verdict| world.log.judge(id, verdict).await.unwrap();
        judge(good, verdict(Score::Good, None)).await;
        judge(bad, verdict(Score::Bad, Some("Answer in one sentence."))).await;
        world.log.spend(spent, "no rule fits").await.unwrap();
        for (text, at_ms) in [
            ("That is too long.", NOON_MS),
            (
                "Please always answer in <b>[German](http://x)</b>.",
                NOON_MS + 1,
            ),
            ("Please always be polite.", NOON_MS + 2),
        ] {
            world.hear(text, at_ms);
        }
        let counts = DailyCounts {
            lessons: 1,
            learning_tokens: 1_234,
            ..DailyCounts::default()
        };
        let counted = world.log.count(&AgentId::shared(), NOON_MS, counts).await;
        counted.unwrap();
        world
    }

    fn evolve(&self, at_ms: u64) {
        let run = EvolutionRun {
            agent: "main".parse().unwrap(),
            failures: Vec::new(),
            n_main: 10,
            at_ms,
            is_tried: false,
        };
        let answer = r#"[{"name": "weather", "description": "Use when asked for the weather.", "content": "1. Ask which city it is wanted for.\n2. Look it up."}]"#;
        let evolved = self.library.evolve(&run, answer).unwrap();
        assert_eq!(evolved.proposals.len(), 1, "{evolved:?}");
    }

    async fn append(&self, session: &str, at_ms: u64, end: StreamEnd) -> TurnId {
        self.log.append(turn(session, at_ms, end)).await.unwrap()
    }

    fn hear(&self, text: &str, at_ms: u64) {
        for heard in hear(text, true) {
            let origin = Origin {
                agent: "main".parse().unwrap(),
                session: Some("a".parse().unwrap()),
                turn: None,
                sender: None,
                at_ms,
            };
            self.library.learn(&heard, origin).unwrap();
        }
    }

    async fn report(&self, period: Period) -> PeriodReport {
        let prices = ModelPrices::default();
        report(&self.log, &self.library, period, prices)
            .await
            .unwrap()
    }

    /// These texts are deleted after their retention time.
    async fn forget(&self, sessions: &[&str]) {
        for session in sessions {
            let session = session.parse().unwrap();
            let n_turns = self.log.forget(&"main".parse().unwrap(), &session).await;
            assert_eq!(n_turns.unwrap(), 1);
        }
    }
}

fn today() -> Period {
    Period::until(date(2026, 11, 22), 1)
}

#[tokio::test]
async fn a_day_is_told_in_words() {
    let world = World::new().await;
    world.evolve(NOON_MS);
    let report = world.report(today()).await;
    insta::assert_snapshot!(markdown(&report), @r#"
    # MetaClaw, 2026-11-22 (UTC)

    7 turns in 7 sessions (main 7).

    ## Heard

    - heard "That is too long." -> said once more, it is a wish: Keep answers short. (undo 1)
    - waits for your review, because it names an address or a brand, it has headings, tags or code: Please always answer in &lt;b>\[German\](http://x)&lt;/b>. (wishes review --accept 2)
    - wish: Please always be polite. (undo 3)

    ## Skills written after failures

    - skill weather of main: waits for your look (skills review)

    ## Verdicts

    1 complaint and 1 thanks in your answers to 6 replies; 1 with a hint of what would have been better.

    ## Not used

    - 1 answered with error 502
    - 1 errands of the client's own
    - 1 no rule fits
    - 1 the upstream's connection broke

    ## Tokens

    Chat: 4,000 in (2,400 of them, 60 %, from the provider's cache), 200 out; the upstream reported no count for 1 reply.

    Learning: 1,234, in and out.

    ## Upstreams

    - llm: 7 turns, 1 answered with error 502; 1 the upstream's connection broke

    ## Waiting for you

    - 1 skill that a model wrote waits for your look (metaclaw skills review)
    - 1 wish waits for your look (metaclaw wishes review --agent main)
    "#);
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<PeriodReport>(&json).unwrap(), report);
    world.log.close().await;
    drop(world.dir);
}

#[tokio::test]
async fn several_days_have_a_row_each() {
    let world = World::new().await;
    let period = Period::until(date(2026, 11, 22), 2);
    let report = world.report(period).await;
    assert_eq!(report.turns, 8);
    let text = markdown(&report);
    let days = text.split("## Days").nth(1).unwrap();
    insta::assert_snapshot!(days.trim(), @r"
    | day | turns | answered | bad | good | lessons | tokens | cached | learning |
    |---|---|---|---|---|---|---|---|---|
    | 2026-11-21 | 1 | 0 | 0 | 0 | 0 | 1,050 | 60 % | 0 |
    | 2026-11-22 | 7 | 6 | 1 | 1 | 1 | 4,200 | 60 % | 1,234 |
    ");
    world.log.close().await;
}

#[tokio::test]
async fn numbers_outlive_the_texts_of_a_day() {
    let world = World::new().await;
    let before = world.report(today()).await;
    world.forget(&["a", "f"]).await;
    let some = world.report(today()).await;
    assert_eq!((some.gone, some.sessions), (2, 5));
    world.forget(&["b", "c", "d", "e", "g"]).await;
    let none = world.report(today()).await;
    for report in [&some, &none] {
        assert_eq!(report.turns, before.turns);
        assert_eq!(report.agents, before.agents);
        assert_eq!(report.verdicts.complaints(), before.verdicts.complaints());
        assert_eq!(report.learning, 1_234);
        assert_eq!(report.chat.prompt, before.chat.prompt);
        assert_eq!(report.chat.cached, before.chat.cached);
        assert_eq!(report.chat.completion, before.chat.completion);
        assert_eq!(report.days, before.days);
    }
    insta::assert_snapshot!(markdown(&none), @r#"
    # MetaClaw, 2026-11-22 (UTC)

    7 turns in 0 sessions (main 7).

    The texts of 7 turns are deleted. They are counted here, but not their sessions, upstreams and skills, nor why they were not used.

    ## Heard

    - heard "That is too long." -> said once more, it is a wish: Keep answers short. (undo 1)
    - waits for your review, because it names an address or a brand, it has headings, tags or code: Please always answer in &lt;b>\[German\](http://x)&lt;/b>. (wishes review --accept 2)
    - wish: Please always be polite. (undo 3)

    ## Verdicts

    1 complaint and 1 thanks in your answers to 6 replies; 0 with a hint of what would have been better.

    ## Tokens

    Chat: 4,000 in (2,400 of them, 60 %, from the provider's cache), 200 out.

    Learning: 1,234, in and out.

    ## Waiting for you

    - 1 wish waits for your look (metaclaw wishes review --agent main)
    "#);
    world.log.close().await;
}

#[tokio::test]
async fn an_empty_home_has_an_empty_day() {
    let world = World::new().await;
    let report = world.report(Period::until(date(2020, 1, 1), 1)).await;
    insta::assert_snapshot!(markdown(&report), @r"
    # MetaClaw, 2020-01-01 (UTC)

    0 turns in 0 sessions.

    ## Tokens

    Chat: 0 in (0 of them from the provider's cache), 0 out.

    Learning: 0, in and out.

    ## Waiting for you

    - 1 wish waits for your look (metaclaw wishes review --agent main)
    ");
    world.log.close().await;
}

#[test]
fn steps_say_what_passed_and_what_was_declined() {
    let step = |n: u64, adapter: Option<&str>, tested: bool, declined: Option<&str>| StepTold {
        agent: "main".to_owned(),
        n,
        n_turns: 8,
        adapter: adapter.map(str::to_owned),
        tested,
        declined: declined.map(str::to_owned),
        taken_back: None,
    };
    let worse = "of 12 verdicts on replies since it answered 9 are bad, of 40 before 4";
    let report = PeriodReport {
        steps: vec![
            step(1, Some("main-a-1"), true, None),
            step(
                2,
                Some("main-a-2"),
                true,
                Some("relevance 0.31 of the reference's, at least 0.50"),
            ),
            step(1, None, false, Some("interrupted")),
            step(1, Some("main-b-1"), false, None),
            StepTold {
                taken_back: Some(worse.to_owned()),
                ..step(2, Some("main-b-2"), true, None)
            },
        ],
        ..PeriodReport::default()
    };
    let text = markdown(&report);
    let weights = text.split("## ").find(|text| text.starts_with("Weights"));
    insta::assert_snapshot!(weights.unwrap().trim(), @r"
    Weights

    - step 1 of main from 8 turns: main-a-1 passed the gate
    - step 2 of main from 8 turns: main-a-2 was declined: relevance 0.31 of the reference's, at least 0.50
    - step 1 of main from 8 turns: not made: interrupted
    - step 1 of main from 8 turns: main-b-1, which the gate did not test
    - step 2 of main from 8 turns: main-b-2 served and was taken back, as verdicts got worse: of 12 verdicts on replies since it answered 9 are bad, of 40 before 4
    ");
}

/// Without a limit of names, a program once named 20,000 agents, and the report came no more.
#[tokio::test]
async fn of_many_agents_the_report_names_those_with_the_most_turns() {
    let world = World::new().await;
    let n_agents: usize = 300;
    let agent = |n: usize| format!("agent-{n:05}").parse::<AgentId>().unwrap();
    let appended = (0..n_agents).map(|n| {
        let mut turn = turn("s", NOON_MS + 10, StreamEnd::Complete);
        let again = testing::turn(&agent(n), &format!("s{n}"), NOON_MS + 10);
        (turn.agent, turn.messages, turn.session) = (again.agent, again.messages, again.session);
        turn.meta.end = StreamEnd::Complete;
        world.log.append(turn)
    });
    for appended in futures_util::future::join_all(appended).await {
        appended.unwrap();
    }
    let report = world.report(today()).await;
    assert_eq!(report.agents.len(), n_agents + 1);
    let text = markdown(&report);
    let line = text
        .lines()
        .find(|line| line.contains("agent-00000 1"))
        .unwrap();
    assert!(
        line.contains("main 7") && line.ends_with("and 281 other agents with fewer turns)."),
        "{line}"
    );
}
