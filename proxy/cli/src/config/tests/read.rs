//! Every key of the table is read by somebody, or says why it does nothing.

use std::{collections::BTreeSet, net::SocketAddr};

use metaclaw_gateway::RelayOnly;
use metaclaw_learner::LearnerConfig;

use super::*;
use crate::{
    banner::{Banner, First, JudgedWith, about},
    config::{
        key::{Key, State},
        kind::Kind,
    },
};

/// What a key with a chosen name in its path needs beside it.
const BESIDE: &str = "proxy: {keys: {other: {key: k0, agents: [base]}}}\nupstreams: {other: {url: 'http://base.example/v1'}}\n";

/// A value that a key may have, and that is not its default; none where there is only one.
fn other(key: &Key) -> Option<Value> {
    let default = key.default.parse::<f64>().ok();
    Some(match key.kind {
        Kind::Text => "other".into(),
        Kind::Secret | Kind::CallersKey => "sk-other".into(),
        Kind::Url => "http://other.example/v1".into(),
        Kind::Host => "::1".into(),
        Kind::Path => "/other".into(),
        Kind::Bool => (key.default != "true").into(),
        Kind::Count(low, high) | Kind::Minutes(low, high) => {
            let one_more = format!("{}", default.unwrap_or(0.0) + 1.0).parse().unwrap();
            if (low..=high).contains(&one_more) {
                one_more
            } else {
                low
            }
            .into()
        }
        Kind::Number(low, high) => {
            let more = default.unwrap_or(low) / 2.0 + 0.2;
            more.clamp(low, high).into()
        }
        Kind::Span => "77 s".into(),
        Kind::Size => "77 MiB".into(),
        Kind::Time => "01:23".into(),
        Kind::OneOf(words) => {
            let is_like = |word: &str| match key.state {
                State::Inert(_) => matches!(key.state_of(word), State::Inert(_)),
                State::Done | State::Refused(_) | State::Alias(_) => {
                    key.state_of(word) == State::Done
                }
            };
            let is_other = |word: &&&str| **word != key.default && is_like(word);
            Value::from(*words.iter().rfind(is_other)?)
        }
        // The first words may be names of the default.
        Kind::SomeOf(words) => Value::from(*words.iter().rfind(|word| **word != key.default)?),
        Kind::AnyOf(words) | Kind::Among(words) => vec![words[0]].into(),
        Kind::Calendars => vec!["https://calendar.example/other.ics"].into(),
        Kind::Texts | Kind::OneOrMore => vec!["llm"].into(),
        Kind::Secrets => vec!["sk-other"].into(),
        Kind::Tree(_) => "[{on: reply, max_words: 40, score: 1}]".into(),
    })
}

fn with(key: &Key, value: &Value) -> Loaded {
    let mut layer = file(BESIDE);
    layer.set(&key.path.replace('*', "other"), value);
    Loaded::new(vec![layer]).unwrap_or_else(|error| panic!("{}: {error}", key.path))
}

#[test]
fn every_key_that_works_is_read_by_somebody() {
    let before = loaded(BESIDE);
    let before = (before.rooms().unwrap(), before.config);
    let mut unread = Vec::new();
    for key in table::keys().filter(|key| key.state == State::Done) {
        let Some(value) = other(key) else {
            // It can be nothing else, so nobody needs it.
            unread.push(key.path);
            continue;
        };
        let changed = with(key, &value);
        let rooms = changed.rooms();
        let rooms = rooms.unwrap_or_else(|error| panic!("{}: {error}", key.path));
        if (rooms, changed.config) == before {
            unread.push(key.path);
        }
    }
    assert_eq!(unread, Vec::<&str>::new(), "keys that nobody reads");
}

#[test]
fn every_key_that_does_nothing_is_named_with_its_reason() {
    let config = Config::default();
    let about = about(
        &config,
        &Policy::None,
        &JudgedWith::Unused,
        &LearnerConfig::default(),
    );
    for key in table::keys() {
        if !matches!(key.state, State::Inert(_)) {
            continue;
        }
        let value = other(key).unwrap();
        let State::Inert(reason) = key.state_of(value.as_str().unwrap_or_default()) else {
            panic!("{} has an effect", key.path);
        };
        let inert = with(key, &value).inert;
        let path = key.path.replace('*', "other");
        let banner = Banner {
            proxy: SocketAddr::from(([127, 0, 0, 1], 30_000)),
            keyed: false,
            about: &about,
            off: &RelayOnly::default(),
            inert: &inert,
            config: "config.yaml",
            agent: None,
            first: First::Nothing,
        };
        let said = format!("no effect {path}: {reason}");
        assert!(banner.text().contains(&said), "{said}");
    }
}

/// The keys that stand in the example, those too that are commented out there.
fn in_example() -> BTreeSet<String> {
    let text = example::example();
    let mut all = BTreeSet::new();
    // The headings that are open, by how far they are indented.
    let mut open: Vec<(usize, &str)> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        let bare = content.strip_prefix("# ").unwrap_or(content);
        let key = bare.trim_start();
        let indent = line.len() - content.len() + bare.len() - key.len();
        let Some((name, value)) = key.split_once(':') else {
            continue;
        };
        // A key that is commented out has no default; what has more to say is a meaning.
        let is_meaning = bare != content && !value.is_empty();
        if is_meaning || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            continue;
        }
        open.retain(|(above, _)| *above < indent);
        open.push((indent, if name == "NAME" { "*" } else { name }));
        let path: Vec<&str> = open.iter().map(|(_, name)| *name).collect();
        all.insert(path.join("."));
    }
    all
}

#[test]
fn the_example_has_every_key_that_works_and_no_other() {
    let example = in_example();
    for key in table::keys() {
        let is_there = example.contains(key.path);
        assert_eq!(is_there, key.state == State::Done, "{}", key.path);
    }
}

/// Rows of other systems' files: not one is met with silence, and none stops the start but by asking our own learner for what
/// it does not do.
#[test]
fn settings_of_other_systems_are_answered_in_words() {
    let given = loaded(
        "rl: {lora_dropout: 0, kl_loss_coef: 0.01}\ngae_lambda: 0.95\n\
         critic: {lr: 1e-5}\ntrainer: {deepspeed_config: ds.json}\nrecord_dir: records\n",
    );
    assert_eq!(given.unknown, []);
    let mut told: Vec<String> = given.inert.iter().map(ToString::to_string).collect();
    told.sort();
    insta::assert_snapshot!(told.join("\n"));
    let refused = edit::set("", "rl.gae_lambda", "0.95").unwrap_err();
    insta::assert_snapshot!(refused, @"rl.gae_lambda is no key here: there is no critic (GAE, value function): a verdict belongs to a whole turn");
}

#[test]
fn what_the_learner_does_not_do_stops_the_start() {
    let asked = file(
        "rl: {gae_lambda: 0.95, value_clip: 0.2, lora_dropout: 0.05, full_finetuning: true}\n",
    );
    let error = Loaded::new(vec![asked]).err().unwrap().to_string();
    for said in [
        "rl.gae_lambda in /etc/it/config.yaml: \"0.95\" is not allowed: there is no critic",
        "rl.value_clip in /etc/it/config.yaml: \"0.2\" is not allowed: there is no critic",
        "rl.lora_dropout in /etc/it/config.yaml: \"0.05\" is not allowed: adapters are trained without dropout",
        "rl.full_finetuning in /etc/it/config.yaml",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
}
