//! For each operation of the control listener: where it is on the page, or why it is not there.

use metaclaw_control::server::operation_paths;

#[derive(Debug, Clone, Copy)]
enum OnPage {
    /// The route of the view that shows its reply, or of the form that asks for it.
    At(&'static str),
    /// Why it is not on the page.
    Not(&'static str),
}

use OnPage::{At, Not};

struct CoveredOperation {
    path: &'static str,
    place: OnPage,
}

const fn operation(path: &'static str, place: OnPage) -> CoveredOperation {
    CoveredOperation { path, place }
}

const A_FILE: &str =
    "it reads or writes a file that the person names, which a terminal does better";

const OPERATIONS: [CoveredOperation; 42] = [
    operation("status", At("/ui/health")),
    operation(
        "stop",
        Not("it ends what shows the page, which could not start it again"),
    ),
    operation("switch", At("/ui/do/switch")),
    operation(
        "key",
        Not("`metaclaw keys` writes the key into config.yaml, and shows it once"),
    ),
    operation("agents", At("/ui/agents")),
    operation("agent", At("/ui/do/agent")),
    operation("scheduler", At("/ui/health")),
    operation("report", At("/ui/cost")),
    operation("curves", At("/ui/curves")),
    operation("login", Not("it is how a browser gets in")),
    operation("turns", At("/ui/session")),
    operation("conversations", At("/ui/sessions")),
    operation("turn", At("/ui/turns/{id}")),
    operation("rate", At("/ui/do/rate")),
    operation(
        "rollouts",
        Not("who runs an agent on tasks is at a terminal: `metaclaw rollout list`"),
    ),
    operation(
        "rollout",
        Not("its turns are on the page one by one, as those of its session are"),
    ),
    operation("export", Not(A_FILE)),
    operation("import", Not(A_FILE)),
    operation("restore", Not(A_FILE)),
    operation("lacks", Not(A_FILE)),
    operation("raise_counts", Not(A_FILE)),
    operation("skills", At("/ui/skill")),
    operation("proposals", At("/ui/lessons")),
    operation("skill", At("/ui/do/skill")),
    operation("lessons", At("/ui/lessons")),
    operation("lesson_list", At("/ui/lessons")),
    operation("journal", At("/ui")),
    operation("wish", At("/ui/do/wish")),
    operation("forget", At("/ui/do/forget")),
    operation(
        "memories",
        Not("memory is off unless its owner turns it on: `metaclaw memory list`"),
    ),
    operation(
        "memory",
        Not("memory is off unless its owner turns it on: `metaclaw memory add` and `forget`"),
    ),
    operation("adapters", At("/ui/training")),
    operation("steps", At("/ui/training")),
    operation("use_adapter", At("/ui/do/adapter")),
    operation("roll_back", At("/ui/do/roll-back")),
    operation("train_step", At("/ui/do/train")),
    operation(
        "dry_run",
        Not("it lists samples and their tokens: `metaclaw train-step --dry-run`"),
    ),
    operation(
        "turn_preview",
        Not("it lists token ids one by one: `metaclaw turns show --train`"),
    ),
    operation(
        "eval",
        Not("it measures for minutes, and decides and undoes nothing"),
    ),
    operation("compare", At("/ui/compare")),
    operation(
        "replay",
        Not("it trains for hours into weights that serve nobody, and undoes nothing"),
    ),
    operation(
        "train",
        Not("it reads a file of the machine that the proxy runs on, and trains for hours"),
    ),
];

#[test]
fn every_operation_is_on_the_page_or_has_a_reason() {
    let routes = include_str!("routes.rs");
    let mut known: Vec<&str> = OPERATIONS.iter().map(|it| it.path).collect();
    let mut all = operation_paths();
    known.sort_unstable();
    all.sort_unstable();
    assert_eq!(known, all);
    for it in &OPERATIONS {
        match it.place {
            At(route) => assert!(
                routes.contains(&format!("\"{route}\"")),
                "{}: {route}",
                it.path
            ),
            Not(why) => assert!(why.len() > 20, "{}: {why}", it.path),
        }
    }
}
