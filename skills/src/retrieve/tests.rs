//! Tests of retrieval, by single cases and by labelled requests.

use metaclaw_chat::{AgentId, Utterance};
use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::{Library, SkillsConfig, WishesConfig, install_bank};

fn skills() -> Vec<Arc<Skill>> {
    let skill = |name: &str, description: &str, body: &str| {
        let text = format!("---\nname: {name}\ndescription: {description}\n---\n{body}");
        Arc::new(Skill::parse(&text).unwrap())
    };
    vec![
        skill(
            "debug-systematically",
            "Use when a program fails or has a bug",
            "Reproduce. Bisect.",
        ),
        skill(
            "professional-email-drafting",
            "Use when the user wants an email written",
            "Greeting. The capital letter.",
        ),
        skill(
            "sql-best-practices",
            "Use when writing a SQL query",
            "Name columns. A slow query has a bug.",
        ),
        skill("data-cleaning", "清洗数据时使用", "检查缺失值"),
    ]
}

fn found(query: &str) -> Vec<String> {
    found_of(&skills(), query)
}

fn found_of(skills: &[Arc<Skill>], query: &str) -> Vec<String> {
    let all = Visible {
        shared: 0..skills.len(),
        ..Visible::default()
    };
    let numbers = Index::build(skills).search(query, &all);
    numbers
        .into_iter()
        .map(|number| skills[number].name.to_string())
        .collect()
}

#[test]
fn finds_what_the_request_is_about_best_first() {
    assert_eq!(
        found("please draft two emails to my boss"),
        ["professional-email-drafting"]
    );
    assert_eq!(found("my SQL query is slow"), ["sql-best-practices"]);
    assert_eq!(found("帮我清洗数据"), ["data-cleaning"]);
}

#[test]
fn finds_nothing_for_words_in_passing() {
    assert!(found("What is the capital of France?").is_empty());
    assert!(found("use this when the user asks").is_empty());
    assert!(found("which is the best way to Leeds").is_empty());
    assert!(found("a bug flew into my eye").is_empty());
    assert!(found("").is_empty());
    let nothing = Visible::default();
    assert!(Index::build(&[]).search("bug", &nothing).is_empty());
}

#[test]
fn a_huge_paste_is_read_at_both_ends_only() {
    let paste = format!("an SQL query {} in an email", "本".repeat(1_000_000));
    assert_eq!(found(&paste).len(), 2);
    let middle = format!("{} email {}", "x ".repeat(100_000), "y ".repeat(100_000));
    assert!(found(&middle).is_empty());
}

#[derive(Debug, Deserialize)]
struct Labelled {
    text: String,
    skills: Vec<String>,
    /// Whether the rules were tuned on it, if only a part was used.
    half: Option<String>,
}

/// Makes the text that OpenClaw sends for what its owner typed.
fn as_openclaw_sends(text: &str) -> String {
    format!(
        "Conversation info: ⟦openclaw:ctx⟧\n```json\n{{\n  \"message_id\": \"7\",\n  \"sender\": {{\"name\": \"Ann\"}}\n}}\n```\n\n[Fri 2026-11-20 05:31 UTC] {text}\n\nRuntime: agent=main | session=agent:main:main | sessionId=0b3c9a52-0000-4000-8000-000000000001 | host=box | os=Linux | model=proxied/mock-model | channel=telegram | capabilities=tools"
    )
}

fn bank() -> (tempfile::TempDir, Library) {
    let dir = tempfile::tempdir().unwrap();
    install_bank(dir.path()).unwrap();
    let (library, warnings) =
        Library::open(dir.path(), SkillsConfig::default(), WishesConfig::default());
    assert_eq!(warnings, []);
    (dir, library)
}

/// Returns what the original's default, `template`, injects: the first six general skills in the order of their paths,
/// and the first ten of the first task type of which a word is in the text.
fn template(text: &str, skills: &[Arc<Skill>]) -> Vec<String> {
    const TYPES: [(&str, &str); 8] = [
        (
            "coding",
            "code debug implement function class bug error python java javascript typescript c++ rust sql api library framework algorithm refactor test unittest lint compile build deploy dockerfile git commit review",
        ),
        (
            "research",
            "research paper arxiv study literature source cite academic journal publication evidence survey review meta-analysis",
        ),
        (
            "data_analysis",
            "data dataset csv dataframe pandas analytics metric dashboard visualize chart plot statistics aggregate pipeline etl schema database table column row query duckdb spark",
        ),
        (
            "productivity",
            "task plan schedule project workflow automate organize deadline priority todo agenda meeting goal milestone manage",
        ),
        (
            "security",
            "security vulnerability exploit auth authentication authorization password token secret encrypt decrypt ssl tls injection xss csrf audit penetration threat permission",
        ),
        (
            "communication",
            "email message slack notify announcement draft reply response newsletter outreach communicate update",
        ),
        (
            "automation",
            "automate script cron scheduled pipeline batch ci/cd workflow trigger webhook bot scrape selenium playwright headless",
        ),
        (
            "agentic",
            "agent multi-agent sub-agent orchestrate spawn delegate autonomous long-running mcp memory session agentic",
        ),
    ];
    let text = text.to_lowercase();
    let is_named = |words: &&str| words.split(' ').any(|word| text.contains(word));
    let task = TYPES
        .iter()
        .find(|(_, words)| is_named(words))
        .map_or("agentic", |known| known.0);
    let of = |category: &str, most: usize| -> Vec<String> {
        let of = skills.iter().filter(|skill| skill.category == category);
        of.take(most).map(|skill| skill.name.to_string()).collect()
    };
    [of("general", 6), of(task, 10)].concat()
}

fn share(hits: &[String], wanted: &[String]) -> f64 {
    let n = wanted.iter().filter(|name| hits.contains(name)).count();
    n as f64 / wanted.len() as f64
}

/// The results on labelled requests, over all pairs of a request and a skill.
#[derive(Debug, Default)]
struct Served {
    given: usize,
    wanted: usize,
    hits: usize,
    /// Requests that need none, and how many of them get some.
    want_none: usize,
    needless: usize,
    given_several: usize,
}

impl Served {
    fn measure<'l>(
        labelled: impl Iterator<Item = &'l Labelled>,
        found: impl Fn(&str) -> Vec<String>,
    ) -> Self {
        let mut served = Self::default();
        labelled.for_each(|it| served.add(it, &found));
        served
    }

    fn add(&mut self, it: &Labelled, found: impl Fn(&str) -> Vec<String>) {
        let names = found(&it.text);
        self.given += names.len();
        self.wanted += it.skills.len();
        self.hits += names.iter().filter(|name| it.skills.contains(name)).count();
        self.want_none += usize::from(it.skills.is_empty());
        self.needless += usize::from(it.skills.is_empty() && !names.is_empty());
        self.given_several += usize::from(names.len() > 1);
    }

    fn precision(&self) -> f64 {
        self.hits as f64 / self.given as f64
    }

    fn recall(&self) -> f64 {
        self.hits as f64 / self.wanted as f64
    }
}

fn labelled(lines: &str) -> Vec<Labelled> {
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Searches as a session does, with the skills of the bank.
fn given(library: &Library, text: &str) -> Vec<String> {
    let typed = Utterance::parse(text);
    let lessons = library.lessons(&AgentId::default_agent(), &typed.text);
    let names = lessons.skills.iter().map(|skill| skill.name.to_string());
    names.collect()
}

/// The test uses 200 labelled requests, plain and as OpenClaw sends them. Their author had not seen the skills, and
/// describes the needs in roundabout ways. The thresholds were chosen on them. The original's template (which has no
/// order: everything that it injects counts) finds 0.28 of the needed skills.
#[test]
fn the_bank_is_found_by_what_people_ask() {
    let (_dir, library) = bank();
    let labelled = labelled(include_str!("../../testdata/retrieval.jsonl"));
    assert_eq!(labelled.len(), 200);
    let plain = Served::measure(labelled.iter(), |text| given(&library, text));
    let sent = |text: &str| given(&library, &as_openclaw_sends(text));
    let openclaw = Served::measure(labelled.iter(), sent);
    for (form, served) in [("plain", plain), ("openclaw", openclaw)] {
        let (precision, recall) = (served.precision(), served.recall());
        println!("{form}: precision {precision:.3}, recall {recall:.3}, {served:?}");
        assert!(precision >= 0.9 && recall >= 0.72, "{form}: {served:?}");
        assert!(served.needless <= 1, "{form}: {served:?}");
    }
    let skills = library.skills(&AgentId::default_agent());
    let wanted = labelled.iter().filter(|request| !request.skills.is_empty());
    let of_template: Vec<f64> = wanted
        .map(|wanted| share(&template(&wanted.text, &skills), &wanted.skills))
        .collect();
    println!(
        "the original's template: recall {:.3} of all that it injects",
        of_template.iter().sum::<f64>() / of_template.len() as f64
    );
}

#[test]
fn greetings_continuations_and_questions_of_every_day_are_given_nothing() {
    let (_dir, library) = bank();
    for greeting in [
        "Hello!",
        "good morning",
        "thanks, that's all",
        "你好",
        "谢谢",
        "在吗",
        "Say hello.",
        "still there?",
        "Remember the word PLUM.",
        "Run the tool.",
        "what did you say about the second one",
        "set a timer for ten minutes",
        "how tall is the Eiffel tower",
    ] {
        for sent in [greeting.to_owned(), as_openclaw_sends(greeting)] {
            assert_eq!(given(&library, &sent), Vec::<String>::new(), "{sent}");
        }
    }
}

/// The test uses 300 labelled requests, half of which need nothing. The author of these rules wrote them before the
/// rules, tuned the rules on every second one, and did not look at the results of the others (the names of skills and
/// their descriptions were known, the sample requests were not). Thirteen that need none happen to be in the background
/// too, like "go on".
///
/// | | precision | recall | needed none, got some |
/// |---|---|---|---|
/// | tuned on | 0.82 (first: 0.34) | 0.84 (0.88) | 6 of 75 (29) |
/// | held out | 0.89 (0.36) | 0.83 (0.96) | 4 of 75 (27) |
#[test]
fn a_skill_is_given_when_it_is_clearly_wanted_and_else_none() {
    let (_dir, library) = bank();
    let all = labelled(include_str!("../../testdata/retrieval_2.jsonl"));
    assert_eq!(all.len(), 300);
    for half in ["tune", "held_out"] {
        let labelled = all.iter().filter(|r| r.half.as_deref() == Some(half));
        let served = Served::measure(labelled, |text| given(&library, text));
        let (precision, recall) = (served.precision(), served.recall());
        println!("{half}: precision {precision:.3}, recall {recall:.3}, {served:?}");
        assert!(precision >= 0.78 && recall >= 0.78, "{half}: {served:?}");
        assert_eq!(served.want_none, 75, "{half}");
        assert!(served.needless <= 8, "{half}: {served:?}");
        assert!(served.given_several <= 8, "{half}: {served:?}");
    }
}

/// The test uses 243 labelled requests, half of them Chinese. Their author knew only the names of the skills, and read
/// neither the sample requests nor these rules before. Nothing was tuned on them. Nine of them happen to be samples, like
/// "make it better".
///
/// | | precision | recall | needed none, got some |
/// |---|---|---|---|
/// | before | 0.86 | 0.93 | 11 of 120 |
/// | now | 0.91 | 0.92 | 6 of 120 |
#[test]
fn a_strangers_requests_are_given_what_they_need() {
    let (_dir, library) = bank();
    let all = labelled(include_str!("../../testdata/retrieval_3.jsonl"));
    assert_eq!(all.len(), 243);
    let served = Served::measure(all.iter(), |text| given(&library, text));
    let (precision, recall) = (served.precision(), served.recall());
    println!("precision {precision:.3}, recall {recall:.3}, {served:?}");
    assert!(precision >= 0.85 && recall >= 0.85, "{served:?}");
    assert_eq!(served.want_none, 120);
    assert!(served.needless <= 8, "{served:?}");
}

/// Returns the text of a public request, from a folder with a file for each set, by the set's name and the request's id.
fn public_text(folder: &str, set: &str, id: usize) -> Option<String> {
    let file = std::fs::read_to_string(format!("{folder}/{set}.jsonl")).ok()?;
    let mut rows = file.lines().enumerate().filter_map(|(number, line)| {
        let row: Value = serde_json::from_str(line).ok()?;
        let of_task = || row["id"].as_str()?.rsplit('_').next()?.parse().ok();
        let known = [&row["idx"], &row["question_id"]].map(Value::as_u64);
        let known = known
            .into_iter()
            .flatten()
            .find_map(|id| usize::try_from(id).ok());
        (known.or_else(of_task).unwrap_or(number) == id).then_some(row)
    });
    let row = rows.next()?;
    let fields = [
        "/turns/0/content",
        "/turns/0",
        "/question",
        "/Instruction",
        "/instruction",
    ];
    let text = fields.iter().find_map(|field| row.pointer(field)?.as_str());
    let input = row.pointer("/instances/0/input").and_then(Value::as_str);
    let input = input.filter(|input| !input.is_empty());
    Some(
        [text, input]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

/// Requests of five public sets of prompts for chat models, of which `testdata/public_requests.tsv` says what they need.
/// They are other people's, and farther from what an agent's owner asks for than our own: most are exercises. The part
/// "kept" was labelled when sample requests and rules were ready.
///
///     METACLAW_TEST_REQUESTS=FOLDER cargo test -p metaclaw-skills public_requests -- --ignored --nocapture
///
/// | part | requests | precision | recall | no skill needed, some given |
/// |---|---|---|---|---|
/// | tune | 1,040 | 0.85 (before: 0.44) | 0.79 (0.43) | 37 of 747 (121) |
/// | kept | 572 | 0.67 (0.43) | 0.65 (0.53) | 38 of 433 (83) |
#[test]
#[ignore = "needs METACLAW_TEST_REQUESTS, a folder with the files that testdata/public_requests.tsv names"]
#[expect(
    clippy::disallowed_methods,
    reason = "a tool for developers: the data cannot be here"
)]
fn public_requests_are_given_what_they_need() {
    let Ok(folder) = std::env::var("METACLAW_TEST_REQUESTS") else {
        return;
    };
    let (_dir, library) = bank();
    let table = include_str!("../../testdata/public_requests.tsv");
    for part in ["tune", "kept"] {
        let mut served = Served::default();
        let rows = table.lines().filter(|line| line.starts_with(part));
        for row in rows {
            let columns: Vec<&str> = row.split('\t').chain(["", ""]).collect();
            let names = |column: usize| columns[column].split(' ').filter(|name| !name.is_empty());
            let text = public_text(&folder, columns[1], columns[2].parse().unwrap()).unwrap();
            let labelled = Labelled {
                text,
                skills: names(3).map(str::to_owned).collect(),
                half: None,
            };
            served.add(&labelled, |text| {
                let mut given = given(&library, text);
                given.retain(|it| names(4).all(|arguable| arguable != it));
                given
            });
        }
        let (precision, recall) = (served.precision(), served.recall());
        println!("{part}: precision {precision:.3}, recall {recall:.3}, {served:?}");
        assert!(precision >= 0.6 && recall >= 0.6, "{part}: {served:?}");
    }
}

fn own(name: &str, description: &str, keywords: &str) -> Arc<Skill> {
    let text = format!(
        "---\nname: {name}\ndescription: {description}\nkeywords: [{keywords}]\n---\nDo it."
    );
    Arc::new(Skill::parse(&text).unwrap())
}

#[test]
fn an_owners_skill_is_found_by_its_keywords_and_its_name_and_not_by_a_stray_word() {
    let skills = [
        own(
            "notes-files",
            "Use when writing notes",
            r#""notes.txt", "notes""#,
        ),
        own("deploy", "Use when something goes to the server", ""),
        own(
            "weekly-report",
            "用户要写周报时使用，汇总这一周的工作",
            "周报",
        ),
        own(
            "house-style",
            "Use when writing TypeScript for the shop",
            "",
        ),
    ];
    for (request, wanted) in [
        ("please add a line to notes.txt", "notes-files"),
        ("where are my notes from monday?", "notes-files"),
        ("use notes-files for this", "notes-files"),
        ("can you deploy it now", "deploy"),
        ("帮我写周报", "weekly-report"),
        (
            "write a typescript class for the shop's cart",
            "house-style",
        ),
        ("follow the house style please", "house-style"),
        ("do this with the house-style skill", "house-style"),
    ] {
        assert_eq!(found_of(&skills, request), [wanted], "{request}");
    }
    for request in [
        "do not do that",
        "it goes well",
        "something is wrong",
        "what are you writing",
        "这一周好累",
        "今天的工作做完了",
        "when do the shops close",
        "a house with a garden",
    ] {
        assert_eq!(
            found_of(&skills, request),
            Vec::<String>::new(),
            "{request}"
        );
    }
}

#[test]
fn who_calls_a_skill_by_its_name_gets_it() {
    let (_dir, library) = bank();
    for (request, name) in [
        ("use code-review", "code-review"),
        ("Use the SQL-queries skill.", "sql-queries"),
        ("with the web scraping skill, please", "web-scraping"),
        ("用 meeting-notes 技能", "meeting-notes"),
        ("/break-down-goal", "break-down-goal"),
    ] {
        assert_eq!(given(&library, request)[0], name, "{request}");
    }
    for request in ["ls src/code-review/", "open sql-queries.old"] {
        let names = given(&library, request);
        let is_called = names.iter().any(|name| request.contains(name.as_str()));
        assert!(!is_called, "{request}: {names:?}");
    }
}

#[test]
fn a_word_that_most_skills_have_selects_none_of_them() {
    let acme = |name: &str, what: &str| own(name, &format!("Use when acme wants {what}"), "");
    let skills = [
        acme("acme-invoices", "an invoice"),
        acme("acme-sonnets", "a sonnet"),
        acme("acme-travel", "a trip"),
        acme("acme-payroll", "payroll"),
    ];
    assert_eq!(found_of(&skills, "who is acme"), Vec::<String>::new());
    assert_eq!(found_of(&skills, "a sonnet for acme"), ["acme-sonnets"]);
}
