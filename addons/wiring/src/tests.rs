//! Tests of wiring, restoring, and crashes in between.

pub(crate) mod house;

use metaclaw_test_kit::has;
use std::{fs, os::unix::fs::PermissionsExt};

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use self::house::{House, OPENCLAW};
use crate::{Target, WayBack, WireStanding, WiringError, document};

fn target(port: u16) -> Target {
    Target {
        origin: format!("http://127.0.0.1:{port}"),
        model: Some("m".to_owned()),
        ..house::target()
    }
}

const ID: &str = "openclaw";
const RECORD: &str = "ours/wiring/openclaw.wired.json";
const COPY: &str = "ours/wiring/openclaw.0.before";

fn is_wired_to(house: &House, target: &Target) -> bool {
    house.wires.is_wired_to(ID, target).unwrap()
}

fn restored(house: &House) -> WayBack {
    let restored = vec![house.path(OPENCLAW)];
    WayBack {
        restored,
        ..WayBack::default()
    }
}

fn taken_back(house: &House) -> WayBack {
    let taken_back = vec![house.path(OPENCLAW)];
    WayBack {
        taken_back,
        ..WayBack::default()
    }
}

const FILE: &str = r#"{
  // what I pay for
  "models": {
    "mode": "replace",
    "providers": {
      "cloud": {
        "baseUrl": "https://cloud.example/v1", "apiKey": "sk-cloud", "api": "openai-completions",
        "headers": {"x-team": "a"},
        "models": [
          {"id": "m", "name": "M", "input": ["text"], "contextWindow": 128000, "maxTokens": 4096, "compat": {"supportsStore": false}},
          {"id": "n", "name": "N"}
        ]
      }
    }
  },
  "agents": {
    "defaults": {
      "model": { "primary": "cloud/m", /* the cheap one */ "fallbacks": ["cloud/n"] },
      "sandbox": {"mode": "all"}
    }
  }
}
"#;

#[test]
fn the_agent_is_told_the_context_window_of_the_settings() {
    let house = House::openclaw(FILE);
    let narrow = Target {
        context_window: Some(32_768),
        ..target(30_000)
    };
    house.wire_openclaw(&narrow);
    let config = house.config();
    let ours = &config["models"]["providers"]["metaclaw"]["models"][0];
    assert_eq!(ours["contextWindow"], 32_768);
    assert_eq!(ours["maxTokens"], 4096);
}

#[test]
fn hosts_with_a_memory_are_known_by_the_names_that_they_send() {
    let names: Vec<String> = crate::remembering().map(|it| it.to_string()).collect();
    assert_eq!(names, ["main", "claude-code", "hermes"]);
}

#[test]
fn the_agent_asks_us_first_and_the_former_model_next() {
    let house = House::openclaw(FILE);
    house.wire_openclaw(&target(30_000));
    let config = house.config();
    let ours = &config["models"]["providers"]["metaclaw"];
    let model = json!({"id": "m", "name": "M", "input": ["text"], "contextWindow": 128_000, "maxTokens": 4096,
        "compat": {"supportsStore": false, "sendSessionAffinityHeaders": true}});
    assert_eq!(
        *ours,
        json!({"baseUrl": "http://127.0.0.1:30000/v1", "apiKey": "metaclaw",
        "api": "openai-completions", "headers": {"x-team": "a"}, "models": [model]})
    );
    let defaults = &config["agents"]["defaults"];
    assert_eq!(
        defaults["model"],
        json!({"primary": "metaclaw/m", "fallbacks": ["cloud/m", "cloud/n"]})
    );
    assert_eq!(defaults["sandbox"], json!({"mode": "all"}));
    let text = house.text(OPENCLAW);
    has(&text, ["// what I pay for", "/* the cheap one */"]);
    assert_eq!(house.standing(ID), WireStanding::Wired);
    let record = house.wires.record(ID).unwrap().unwrap();
    let models = record.models().unwrap();
    assert_eq!((&*models.ours, &*models.former), ("metaclaw/m", "cloud/m"));
    assert!(is_wired_to(&house, &target(30_000)));
    assert!(!is_wired_to(&house, &target(30_001)));
    let keyed = Target {
        key: Some("sk-ours".into()),
        ..target(30_000)
    };
    assert!(!is_wired_to(&house, &keyed));

    assert_eq!(house.unwire(ID), restored(&house));
    assert_eq!(house.text(OPENCLAW), FILE);
    assert!(house.unwire(ID).is_nothing());
    assert!(
        house
            .wires
            .record(ID)
            .unwrap()
            .unwrap()
            .is_of(&house.found()),
        "the yes is remembered"
    );
    house.wire_openclaw(&target(30_000));
    house.unwire(ID);
    assert_eq!(house.text(OPENCLAW), FILE);
}

#[test]
fn a_login_goes_on_with_its_own_provider() {
    let text = r#"{"agents": {"defaults": {"model": "anthropic/claude-x"}}}"#;
    let house = House::openclaw(text);
    house.wire_openclaw(&target(30_000));
    let config = house.config();
    let model = &config["models"]["providers"]["anthropic"]["models"][0];
    assert_eq!(model["id"], "metaclaw-claude-x");
    assert_eq!(model["baseUrl"], "http://127.0.0.1:30000");
    assert_eq!(model["input"], json!(["text", "image"]));
    assert_eq!(
        config["agents"]["defaults"]["model"],
        json!({"primary": "anthropic/metaclaw-claude-x", "fallbacks": ["anthropic/claude-x"]})
    );
    house.unwire(ID);
    assert_eq!(house.text(OPENCLAW), text);
    let bare = Target {
        has_provider_key: false,
        is_own: false,
        ..target(1)
    };
    let keyed = Target {
        key: Some("sk-ours".into()),
        ..bare.clone()
    };
    let nameless = Target {
        model: None,
        ..bare
    };
    for (target, why) in [(keyed, "set llm.api_key"), (nameless, "llm.model_id")] {
        let refused = house.try_wire(ID, &target).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

#[test]
fn what_others_wrote_since_stays() {
    let house = House::openclaw(FILE);
    house.wire_openclaw(&target(30_000));
    let theirs = house
        .text(OPENCLAW)
        .replace("// what I pay for", "// what I pay for, still");
    let theirs = theirs.replace("\"cloud/n\"", "\"cloud/n\", \"other/o\"");
    fs::write(house.path(OPENCLAW), theirs).unwrap();
    assert!(is_wired_to(&house, &target(30_000)));
    assert_eq!(house.unwire(ID), taken_back(&house));
    let text = house.text(OPENCLAW);
    has(&text, ["still", "/* the cheap one */"]);
    let config = house.config();
    assert_eq!(config["models"]["providers"]["metaclaw"], Value::Null);
    assert_eq!(
        config["agents"]["defaults"]["model"],
        json!({"primary": "cloud/m", "fallbacks": ["cloud/n", "other/o"]})
    );
}

#[test]
fn a_model_that_was_chosen_meanwhile_is_not_taken_away() {
    let house = House::openclaw(r#"{"agents":{"defaults":{"model":"openai/m"}}}"#);
    house.wire_openclaw(&target(30_000));
    let mut config = house.config();
    config["agents"]["defaults"]["model"] =
        json!({"primary": "openai/new", "fallbacks": ["openai/metaclaw-m", "openai/m"]});
    fs::write(house.path(OPENCLAW), config.to_string()).unwrap();
    assert_eq!(house.standing(ID), WireStanding::Changed);
    assert_eq!(house.unwire(ID), taken_back(&house));
    assert_eq!(
        house.config(),
        json!({"agents": {"defaults": {"model": {"primary": "openai/new", "fallbacks": ["openai/m"]}}}})
    );
}

#[test]
fn a_crash_between_record_and_change_is_settled() {
    let house = House::openclaw(FILE);
    house.wire_openclaw(&target(30_000));
    // The record reached the disk, and the file did not.
    fs::write(house.path(OPENCLAW), FILE).unwrap();
    assert_eq!(house.standing(ID), WireStanding::Waits);
    assert!(house.unwire(ID).is_nothing());
    assert_eq!(house.text(OPENCLAW), FILE);
    // The file was restored, and the record does not say so.
    house.wire_openclaw(&target(30_000));
    let record = fs::read(house.path(RECORD)).unwrap();
    house.unwire(ID);
    fs::write(house.path(RECORD), record).unwrap();
    assert!(house.unwire(ID).is_nothing());
    assert_eq!(house.text(OPENCLAW), FILE);
    // The copy is lost, so only our keys are removed.
    house.wire_openclaw(&target(30_000));
    fs::remove_file(house.path(COPY)).unwrap();
    assert_eq!(house.unwire(ID), taken_back(&house));
    assert_eq!(house.config(), document::value(FILE).unwrap());
    house.wire_openclaw(&target(30_000));
    fs::remove_file(house.path(OPENCLAW)).unwrap();
    assert_eq!(house.unwire(ID).gone, [house.path(OPENCLAW)]);
}

#[test]
fn mode_and_link_are_kept() {
    let house = House::openclaw(FILE);
    let real = house.path(OPENCLAW).with_file_name("dotfiles.json");
    fs::rename(house.path(OPENCLAW), &real).unwrap();
    std::os::unix::fs::symlink(&real, house.path(OPENCLAW)).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    house.wire_openclaw(&target(30_000));
    house.unwire(ID);
    assert!(
        fs::symlink_metadata(house.path(OPENCLAW))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(
        fs::metadata(&real).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(
        fs::metadata(house.path(RECORD))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
}

#[test]
fn what_is_beyond_the_editor_is_left_and_told() {
    let taken = FILE.replace(
        "\"cloud\": {",
        "\"metaclaw\": {\"baseUrl\": \"http://mine\"}, \"cloud\": {",
    );
    let twice = FILE.replace(
        "\"sandbox\"",
        "\"model\": {\"primary\": \"cloud/m\"}, \"sandbox\"",
    );
    let listed = FILE.replace("[\"cloud/n\"]", "\"cloud/n\"");
    for (text, why) in [
        (taken, "there already"),
        (twice, "stands twice"),
        (listed, "fallbacks is not"),
    ] {
        let house = House::openclaw(&text);
        let refused = house.try_wire(ID, &target(1)).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
        let WiringError::Layout { by_hand, .. } = refused else {
            panic!("{refused}")
        };
        has(&by_hand, ["metaclaw/m", "cloud/m"]);
        assert_eq!(house.text(OPENCLAW), text);
        assert!(house.wires.record(ID).unwrap().is_none());
    }
    let house = House::openclaw("{agents: {defaults: {$include: './d.json'}}}");
    fs::write(
        house.path(OPENCLAW).with_file_name("d.json"),
        r#"{"model": "xai/m"}"#,
    )
    .unwrap();
    let refused = house.try_wire(ID, &target(1)).unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("agents.defaults comes from another file ($include)"),
        "{refused}"
    );
}

/// Makes any JSON5 around the relevant keys.
fn files() -> impl Strategy<Value = String> {
    let name = prop_oneof!["[a-z]{1,4}", "'[a-z ]{1,4}'", "\"[a-z.]{1,4}\""];
    let leaf = select(&["1", "'x'", "[1,\n2,]", "{}"][..]).prop_map(str::to_owned);
    let space = select(&["", " ", "\n", "\r\n\t", " // c\n", "/* ü */"][..]);
    let more = proptest::collection::vec((name, leaf, space.clone()), 0..4);
    let model = select(
        &[
            "'p/m'",
            "{primary: \"p/m\"}",
            "{ \"fallbacks\": ['p/n',], 'primary': 'p/m', }",
        ][..],
    )
    .prop_map(str::to_owned);
    let models = select(&["[{id: 'm', name: 'M',},],", "[],", "[\n{id:'n'}]"][..]);
    (more, model, models, space, any::<bool>()).prop_map(|(more, model, models, space, last)| {
        let more = more.iter().fold(String::new(), |all, (name, leaf, space)| {
                all + name + space + ":" + space + leaf + "," + space
            });
            let comma = if last { "," } else { "" };
        format!(
            "{space}{{{more}{space}models:{{{space}providers: {{p: {{baseUrl: 'http://h', apiKey: 'k', models: {models}}}}}}},{space}agents: {{defaults: {{{space}model: {model}{comma}{space}}}}}{comma}}}{space}"
        )
    })
}

#[test]
fn a_key_that_we_do_not_have_is_shown_by_the_agent() {
    let text = FILE.replace(
        "\"sk-cloud\"",
        "{\"source\": \"store\", \"provider\": \"default\", \"id\": \"k\"}",
    );
    let house = House::openclaw(&text);
    let bare = Target {
        has_provider_key: false,
        is_own: false,
        ..target(1)
    };
    house.wire_openclaw(&bare);
    let config = house.config();
    let providers = &config["models"]["providers"];
    assert_eq!(
        providers["metaclaw"]["apiKey"],
        providers["cloud"]["apiKey"]
    );
    assert_eq!(providers["metaclaw"]["apiKey"]["id"], "k");
}

proptest! {
    // Each case waits for the disk a few times.
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn wired_and_put_back_it_is_as_it_was(text in files()) {
        prop_assume!(document::value(&text).is_ok());
        let house = House::openclaw(&text);
        house.wire_openclaw(&target(30_000));
        prop_assert!(is_wired_to(&house, &target(30_000)));
        // Without the copy, the edit alone restores the same meaning.
        fs::remove_file(house.path(COPY)).unwrap();
        prop_assert_eq!(house.unwire(ID), taken_back(&house));
        prop_assert_eq!(house.config(), document::value(&text).unwrap());
        fs::write(house.path(OPENCLAW), &text).unwrap();
        house.wire_openclaw(&target(30_000));
        prop_assert_eq!(house.unwire(ID), restored(&house));
        prop_assert_eq!(house.text(OPENCLAW), text);
    }
}
