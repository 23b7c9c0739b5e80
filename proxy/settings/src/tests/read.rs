//! Every key of the table is read by somebody, or says why it does nothing.

use std::collections::BTreeSet;

use super::*;
use crate::{
    key::{Key, KeyState},
    kind::{ValueForm, ValueKind},
    testing::lines,
};

/// What a key with a chosen name in its path needs beside it.
const BESIDE: &str = "proxy: {keys: {other: {key: k0, agents: [base]}}}\nupstreams: {other: {url: 'http://base.example/v1'}}\n";
/// The default method has one teacher only.
const BESIDE_TEACHER: &str = "rl: {method: opd}\n";

/// What stands beside a key.
fn beside(key: &Key) -> &'static str {
    if key.path == "rl.teacher" {
        BESIDE_TEACHER
    } else {
        BESIDE
    }
}

/// A value that a key may have, and that is not its default; none where there is only one.
fn other(key: &'static Key) -> Option<Value> {
    let default = key.default.parse::<f64>().ok();
    let form = match &key.kind {
        ValueKind::Tree(_) => return Some("[{on: reply, max_words: 40, score: 1}]".into()),
        // The first words may be names of the default.
        ValueKind::Joined(words) => return last_other(words, |word| *word != key.default),
        ValueKind::List(ValueForm::Word(words), _) => {
            return Some(vec![last_other(words, |_| true)?].into());
        }
        ValueKind::List(ValueForm::Calendar, _) => {
            return Some(vec!["https://calendar.example/other.ics"].into());
        }
        ValueKind::List(ValueForm::Text, _) if key.path == "budget.prices" => {
            return Some(vec!["other 1 2"].into());
        }
        ValueKind::List(ValueForm::Text, _) => return Some(vec!["llm"].into()),
        ValueKind::List(form, _) | ValueKind::One(form) => form,
    };
    Some(match form {
        ValueForm::Text => "other".into(),
        ValueForm::Provider => "openai".into(),
        ValueForm::Secret | ValueForm::CallersKey => "sk-other".into(),
        ValueForm::Url => "http://other.example/v1".into(),
        ValueForm::Host => "::1".into(),
        ValueForm::Path | ValueForm::Calendar => "/other".into(),
        ValueForm::Bool => (key.default != "true").into(),
        &ValueForm::Count(low, high) | &ValueForm::Minutes(low, high) => {
            let one_more = format!("{}", default.unwrap_or(0.0) + 1.0).parse().unwrap();
            if (low..=high).contains(&one_more) {
                one_more
            } else {
                low
            }
            .into()
        }
        &ValueForm::Number(low, high) => {
            let more = default.unwrap_or(low) / 2.0 + 0.2;
            more.clamp(low, high).into()
        }
        ValueForm::Span => "77 h".into(),
        ValueForm::Size => "77 MiB".into(),
        ValueForm::Time => "01:23".into(),
        ValueForm::Word(words) => {
            let is_like = |word: &str| match key.state {
                KeyState::WithoutEffect(_) => {
                    matches!(key.state_of(word), KeyState::WithoutEffect(_))
                }
                KeyState::Works | KeyState::Refused(_) | KeyState::SameAs(_) => {
                    *key.state_of(word) == KeyState::Works
                }
            };
            last_other(words, |word| *word != key.default && is_like(word))?
        }
    })
}

fn last_other(words: &[String], is_other: impl Fn(&String) -> bool) -> Option<Value> {
    words
        .iter()
        .rfind(|word| is_other(word))
        .map(|word| word.as_str().into())
}

fn with(key: &Key, value: &Value) -> Loaded {
    let mut layer = file(beside(key));
    let path = key.path.replace('*', "other");
    layer.set(&path, value);
    Loaded::new(vec![layer]).unwrap_or_else(|error| panic!("{}: {error}", key.path))
}

#[test]
fn every_key_that_works_is_read_by_somebody() {
    let mut unread = Vec::new();
    for key in table::working() {
        let Some(value) = other(key) else {
            // It can be nothing else, so nobody needs it.
            unread.push(&*key.path);
            continue;
        };
        let changed = with(key, &value);
        changed
            .check()
            .unwrap_or_else(|error| panic!("{}: {error}", key.path));
        if changed.config == loaded(beside(key)).config {
            unread.push(&*key.path);
        }
    }
    assert_eq!(unread, Vec::<&str>::new(), "keys that nobody reads");
}

#[test]
fn every_key_that_does_nothing_is_named_with_its_reason() {
    for key in table::keys() {
        if !matches!(key.state, KeyState::WithoutEffect(_)) {
            continue;
        }
        let value = other(key).unwrap();
        let KeyState::WithoutEffect(reason) = key.state_of(value.as_str().unwrap_or_default())
        else {
            panic!("{} has an effect", key.path);
        };
        let inert = with(key, &value).inert;
        let path = key.path.replace('*', "other");
        assert_eq!(lines(&inert), format!("{path}: {reason}"));
    }
}

#[test]
fn the_example_has_every_key_that_works_and_no_other() {
    let example = example::example();
    let names = example.lines().filter_map(|line| {
        let bare = line.trim_start_matches(['#', ' ']);
        bare.split_once(':').map(|(name, _)| name)
    });
    let names: BTreeSet<&str> = names.collect();
    let works =
        |name: &str| table::working().any(|key| key.path.split('.').any(|part| part == name));
    for key in table::keys() {
        let name = key.path.rsplit('.').next().unwrap();
        assert_eq!(names.contains(name), works(name), "{}", key.path);
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
    let error = refusal(
        "rl: {gae_lambda: 0.95, value_clip: 0.2, lora_dropout: 0.05, full_finetuning: true}\n",
    );
    for said in [
        "rl.gae_lambda in /etc/it/config.yaml: \"0.95\" is not allowed: there is no critic",
        "rl.value_clip in /etc/it/config.yaml: \"0.2\" is not allowed: there is no critic",
        "rl.lora_dropout in /etc/it/config.yaml: \"0.05\" is not allowed: adapters are trained without dropout",
        "rl.full_finetuning in /etc/it/config.yaml",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
}

/// The paths of all leaves of a file, by our own reader of YAML.
fn leaves(path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(below) => {
            for (name, value) in below {
                let path = [path, name.as_str()].join(".");
                leaves(path.trim_start_matches('.'), value, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

/// Each key of OpenClaw-RL's files, from the first to the last, is answered by its own name, and what is named as the key
/// here exists.
#[test]
fn every_key_of_openclaw_rls_files_is_answered_by_its_name() {
    for (text, n_keys) in [
        (include_str!("openclaw_rl/training_config.yaml"), 25),
        (include_str!("openclaw_rl/rollout_config.json"), 9),
    ] {
        let mut keys = Vec::new();
        let parsed = crate::yaml::parse(text, &|_| false).unwrap();
        leaves("", &parsed, &mut keys);
        assert_eq!(keys.len(), n_keys, "{keys:?}");
        let given = loaded(text);
        assert_eq!(given.unknown, []);
        for key in keys {
            let answer = given.inert.iter().find(|inert| inert.key == key);
            let answer = answer.unwrap_or_else(|| panic!("nobody answers {key}"));
            let words = answer.reason.split([' ', ',', ':', ';', '(', ')', '`']);
            for word in words.filter(|word| word.contains('.')) {
                let word = word.trim_end_matches('.');
                let is_known = word.is_empty()
                    || !word.contains('.')
                    || word.parse::<f64>().is_ok()
                    || table::find(word).is_some_and(|key| key.state == KeyState::Works);
                assert!(is_known, "{key}: {word} is no key: {}", answer.reason);
            }
        }
    }
}

#[test]
fn a_section_that_nobody_knows_is_one_warning_and_a_mixed_one_names_each_key() {
    let given = loaded("skils: {top_k: 3, dir: x}\n");
    let [section] = &given.unknown[..] else {
        panic!()
    };
    assert_eq!(section.key, "skils");
    let given = loaded("training: {learning_rate: 1e-6, of_somebody: 1}\n");
    let [mixed] = &given.unknown[..] else {
        panic!()
    };
    assert_eq!(mixed.key, "training.of_somebody");
    assert_eq!(given.inert[0].key, "training.learning_rate");
}
