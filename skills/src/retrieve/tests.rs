//! What is found, by single cases and by labelled requests.

use metaclaw_chat::{AgentId, Utterance};
use serde::Deserialize;

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
    let skills = skills();
    let all = Visible {
        shared: 0..skills.len(),
        ..Visible::default()
    };
    let numbers = Index::build(&skills).search(query, &all);
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
    assert_eq!(
        found("my SQL query has a bug"),
        ["sql-best-practices", "debug-systematically"]
    );
    assert_eq!(found("帮我清洗数据"), ["data-cleaning"]);
}

#[test]
fn finds_nothing_for_words_in_passing() {
    assert!(found("What is the capital of France?").is_empty());
    assert!(found("use this when the user asks").is_empty());
    assert!(found("").is_empty());
    let nothing = Visible::default();
    assert!(Index::build(&[]).search("bug", &nothing).is_empty());
}

#[test]
fn a_huge_paste_is_read_at_both_ends_only() {
    let paste = format!("fix the bug {} in an email", "本".repeat(1_000_000));
    assert_eq!(found(&paste).len(), 2);
    let middle = format!("{} email {}", "x ".repeat(100_000), "y ".repeat(100_000));
    assert!(found(&middle).is_empty());
}

/// One line of testdata/retrieval.jsonl.
#[derive(Debug, Deserialize)]
struct Labelled {
    text: String,
    lang: String,
    skills: Vec<String>,
}

/// As OpenClaw sends what its owner typed.
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

/// What the original's default, `template`, injects: the first six general skills in the order of their paths, and the
/// first ten of the first task type one of whose words is part of the text (`metaclaw.md` 2.3).
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
        .map_or("agentic", |it| it.0);
    let of = |category: &str, most: usize| -> Vec<String> {
        let of = skills.iter().filter(|skill| skill.category == category);
        of.take(most).map(|skill| skill.name.to_string()).collect()
    };
    [of("general", 6), of(task, 10)].concat()
}

/// What share of what is wanted is there.
fn share(hits: &[String], wanted: &[String]) -> f64 {
    let n = wanted.iter().filter(|name| hits.contains(name)).count();
    n as f64 / wanted.len() as f64
}

/// How well labelled requests are served.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Measured {
    /// Of what is wanted, how much is among the first three.
    recall: f64,
    recall_chinese: f64,
    skills_a_request: f64,
    /// Requests that want none and are given some.
    needless: usize,
}

fn measure(labelled: &[Labelled], found: impl Fn(&str) -> Vec<String>) -> Measured {
    let (mut recalls, mut chinese, mut n_given, mut needless) = (Vec::new(), Vec::new(), 0, 0);
    for it in labelled {
        let names = found(&it.text);
        if it.skills.is_empty() {
            needless += usize::from(!names.is_empty());
            continue;
        }
        let recall = share(&names[..names.len().min(3)], &it.skills);
        if recall < 1.0 {
            println!("{:?} wants {:?}, finds {names:?}", it.text, it.skills);
        }
        recalls.push(recall);
        if it.lang == "zh" {
            chinese.push(recall);
        }
        n_given += names.len();
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    Measured {
        recall: mean(&recalls),
        recall_chinese: mean(&chinese),
        skills_a_request: n_given as f64 / recalls.len() as f64,
        needless,
    }
}

/// 200 labelled requests, plain and as OpenClaw sends them. They were written by somebody who had not seen the skills, and
/// say what they want in roundabout ways: keywords alone find 0.55 of it, the original's template (which has no order: all
/// that it injects counts) 0.28; with sample requests it is 0.87. Issue 10 wants 0.9: with a lower bar (`samples::LEAST`) it is 0.89, and everyday requests are given skills that they do not need.
#[test]
fn the_bank_is_found_by_what_people_ask() {
    let (_dir, library) = bank();
    let agent = AgentId::default_agent();
    let lines = include_str!("../../testdata/retrieval.jsonl").lines();
    let labelled: Vec<Labelled> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(labelled.len(), 200);
    let found = |text: &str| -> Vec<String> {
        let typed = Utterance::parse(text);
        let lessons = library.lessons(&agent, &typed.text);
        lessons
            .skills
            .iter()
            .map(|it| it.name.to_string())
            .collect()
    };
    let recalls = ["plain", "openclaw"].map(|form| {
        let send = |text: &str| match form {
            "plain" => text.to_owned(),
            _ => as_openclaw_sends(text),
        };
        let measured = measure(&labelled, |text| found(&send(text)));
        println!("{form}: {measured:?}");
        measured.recall
    });
    let skills = library.skills(&agent);
    let wanted = labelled.iter().filter(|it| !it.skills.is_empty());
    let of_template: Vec<f64> = wanted
        .map(|it| share(&template(&it.text, &skills), &it.skills))
        .collect();
    println!(
        "the original's template: recall {:.3} of all that it injects",
        of_template.iter().sum::<f64>() / of_template.len() as f64
    );
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
            assert_eq!(found(&sent), Vec::<String>::new(), "{sent}");
        }
    }
    assert!(recalls.iter().all(|recall| *recall >= 0.86), "{recalls:?}");
}
