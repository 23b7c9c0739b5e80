//! A deletion that is interrupted after each of its steps.

use metaclaw_skills::{BufferedTurn, MemoryConfig, Origin, SkillsConfig, WishesConfig, hear};
use metaclaw_turns::TurnsConfig;

use super::*;
use crate::testing::turn;

const WISH: &str = "Please always answer in one sentence.";
const NOW_MS: u64 = 1_700_000_000_000;

struct World {
    _dir: tempfile::TempDir,
    home: Home,
    log: TurnLog,
    agent: AgentId,
}

fn a() -> SessionId {
    "a".parse().unwrap()
}

fn only_a() -> Forget {
    Forget {
        session: Some(a()),
        ..Forget::default()
    }
}

// === impl World ===

impl World {
    /// A wish was said in session a, and is in the prompt of session b.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().to_owned());
        let log = TurnLog::open(&home.turns(), &TurnsConfig::default()).unwrap();
        let agent: AgentId = "main".parse().unwrap();
        log.append(turn(&agent, "a", NOW_MS)).await.unwrap();
        let mut other = turn(&agent, "b", NOW_MS);
        other.served.system_block = Some(format!("## Standing wishes\n\n- {WISH}"));
        log.append(other).await.unwrap();
        let world = Self {
            _dir: dir,
            home,
            log,
            agent,
        };
        world.says("a", WISH);
        world.says("b", "From now on, please answer in French.");
        let memory = world.kept().memory;
        let said = BufferedTurn {
            agent: world.agent.clone(),
            session: a(),
            scope: memory.scope_of(&world.agent, &a()),
            turn: None,
            said: "I live in Rome.".to_owned(),
            at_ms: NOW_MS,
        };
        memory.buffer(said).unwrap();
        world
    }

    /// What a process finds on the disk.
    fn kept(&self) -> KeptLessons {
        let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
        KeptLessons {
            library: Library::open(self.home.skills(), skills, wishes).0,
            memory: MemoryStore::open(self.home.memory(), MemoryConfig::default()),
        }
    }

    fn says(&self, session: &str, text: &str) {
        let origin = Origin {
            agent: self.agent.clone(),
            session: Some(session.parse().unwrap()),
            turn: None,
            sender: None,
            at_ms: NOW_MS,
        };
        let library = self.kept().library;
        for heard in hear(text, true) {
            library.learn(&heard, origin.clone()).unwrap().unwrap();
        }
    }

    async fn forget(&self, what: &Forget) -> anyhow::Result<Forgotten> {
        forget(&self.log, self.kept(), &self.home, what).await
    }

    async fn n_turns(&self, session: &str) -> usize {
        let filter = TurnFilter {
            agent: Some(self.agent.clone()),
            session: Some(session.parse().unwrap()),
            ..TurnFilter::default()
        };
        self.log.list(filter).await.unwrap().len()
    }

    /// Checks that nothing of session a is left, and everything of session b.
    async fn a_is_gone(&self, what: &str) {
        let KeptLessons { library, memory } = self.kept();
        let wishes = library.own_wishes(&self.agent).into_iter();
        let wishes: Vec<String> = wishes.map(|wish| wish.text).collect();
        assert_eq!(wishes, ["From now on, please answer in French."], "{what}");
        let journal = fs::read_to_string(library.dir().join("lessons.jsonl")).unwrap();
        assert!(!journal.contains("sentence"), "{what}: {journal}");
        assert!(memory.buffered(|_| true).unwrap().is_empty(), "{what}");
        let filter = TurnFilter {
            session: Some("b".parse().unwrap()),
            ..TurnFilter::default()
        };
        let id = self.log.list(filter).await.unwrap()[0].id;
        let block = self.log.get(id).await.unwrap().unwrap().served.system_block;
        assert_eq!(
            block.unwrap(),
            "## Standing wishes\n\n- [forgotten]",
            "{what}"
        );
        assert!(!self.home.forgetting().exists(), "{what}");
    }
}

#[tokio::test]
async fn a_deletion_is_finished_after_a_kill_at_any_step() {
    for n_steps in 0..=STEPS {
        for is_start in [true, false] {
            let what = format!("{n_steps} steps, start: {is_start}");
            let world = World::new().await;
            let kept = world.kept();
            let note = noted(&world.log, &kept, &world.home, &only_a())
                .await
                .unwrap();
            let note = note.unwrap();
            finish(&world.log, &kept, &world.home, note, n_steps)
                .await
                .unwrap();
            // The turns are gone, and the session goes on under its name.
            let goes_on = n_steps == 1;
            if goes_on {
                let mut next = turn(&world.agent, "a", NOW_MS + 9);
                next.served.wishes = Some("later".to_owned());
                world.log.append(next).await.unwrap();
            }
            let is_whole = n_steps == STEPS;
            if is_start {
                let (log, home) = (&world.log, &world.home);
                let done = finish_forgetting(log, world.kept(), home).await.unwrap();
                assert_eq!(done.is_none(), is_whole, "{what}");
                assert_eq!(world.n_turns("a").await, usize::from(goes_on), "{what}");
            } else {
                let again = world.forget(&only_a()).await;
                assert_eq!(again.is_err(), is_whole, "{what}: {again:?}");
                assert_eq!(world.n_turns("a").await, 0, "{what}");
            }
            world.a_is_gone(&what).await;
            let nothing = finish_forgetting(&world.log, world.kept(), &world.home).await;
            assert_eq!(nothing.unwrap(), None, "{what}");
        }
    }
}

#[tokio::test]
async fn a_session_whose_turns_are_gone_is_found_by_what_was_learned_from_it() {
    for what in [
        only_a(),
        Forget {
            agent: Some("main".parse().unwrap()),
            ..only_a()
        },
        Forget {
            since_ms: Some(NOW_MS),
            ..only_a()
        },
    ] {
        let world = World::new().await;
        world.log.forget(&world.agent, &a()).await.unwrap();
        let forgotten = world.forget(&what).await.unwrap();
        assert_eq!((forgotten.n_sessions, forgotten.n_lessons), (1, 1));
        world.a_is_gone("gone turns").await;
        let error = world.forget(&what).await.unwrap_err().to_string();
        assert!(error.starts_with("there is no session a:"), "{error}");
    }
    let world = World::new().await;
    world.log.forget(&world.agent, &a()).await.unwrap();
    for what in [
        Forget {
            agent: Some("other".parse().unwrap()),
            ..only_a()
        },
        Forget {
            since_ms: Some(NOW_MS + 1),
            ..only_a()
        },
    ] {
        world.forget(&what).await.unwrap_err();
    }
    assert_eq!(world.kept().library.journal().unwrap()[0].wish, WISH);
}

#[tokio::test]
async fn drafts_of_killed_processes_are_removed() {
    let world = World::new().await;
    let own = format!(".forgetting.json.{}.tmp", std::process::id());
    let drafts = [
        ".forgetting.json.9007.tmp",
        &own,
        "memory/..buffer.jsonl.3.tmp",
        "memory/.buffer.jsonl.new",
        "skills/.lessons.jsonl.4.tmp",
        "skills/main/.WISHES.md.5.tmp",
        "skills/main/WISHES.md.new",
    ];
    let leave = || {
        for name in drafts {
            fs::write(world.home.dir().join(name), WISH).unwrap();
        }
    };
    let exist = || {
        let names = drafts.iter();
        names
            .filter(|name| world.home.dir().join(name).exists())
            .count()
    };
    // A start removes them.
    leave();
    let n_removed = remove_drafts(&world.kept(), &world.home).await.unwrap();
    assert_eq!((n_removed, exist()), (drafts.len(), 0));
    leave();
    world.forget(&only_a()).await.unwrap();
    assert_eq!(exist(), 0);
    // A start removes them even if there is nothing else to forget.
    leave();
    world.forget(&only_a()).await.unwrap_err();
    assert_eq!(exist(), 0);
}

#[tokio::test]
async fn a_note_that_cannot_be_read_is_named() {
    let world = World::new().await;
    fs::write(world.home.forgetting(), "{").unwrap();
    let error = format!("{:#}", world.forget(&only_a()).await.unwrap_err());
    assert!(error.contains("forgetting.json"), "{error}");
    assert_eq!(world.n_turns("a").await, 1);
}
