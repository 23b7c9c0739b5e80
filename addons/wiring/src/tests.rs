//! Tests of wiring, restoring, and crashes in between.

use metaclaw_test_kit::has;
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    Agent, Found, Outcome, Standing, Surroundings, Target, Wiring, WiringError, detect, document,
};

/// One home folder with an agent.
struct House {
    _folder: tempfile::TempDir,
    surroundings: Surroundings,
    file: PathBuf,
    wiring: Wiring,
}

impl House {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join(".openclaw");
        fs::create_dir(&state).unwrap();
        let file = state.join("openclaw.json");
        fs::write(&file, text).unwrap();
        let surroundings = Surroundings {
            variables: Vec::new(),
            home: folder.path().to_owned(),
        };
        let wiring = Wiring::new(folder.path().join("home/wiring"));
        Self {
            _folder: folder,
            surroundings,
            file,
            wiring,
        }
    }

    fn found(&self) -> Found {
        detect(Agent::OpenClaw, &self.surroundings)
            .unwrap()
            .unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }

    fn config(&self) -> Value {
        document::value(&self.text()).unwrap()
    }

    fn wire(&self) {
        assert_eq!(
            self.wiring.wire(&self.found(), &target(30_000)).unwrap(),
            Outcome::Wired
        );
    }
}

fn target(port: u16) -> Target {
    Target {
        origin: format!("http://127.0.0.1:{port}"),
        key: None,
        has_provider_key: true,
        model: Some("m".to_owned()),
        upstream: None,
        context_window: None,
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
    let house = House::new(FILE);
    let narrow = Target {
        context_window: Some(32_768),
        ..target(30_000)
    };
    house.wiring.wire(&house.found(), &narrow).unwrap();
    let config = house.config();
    let ours = &config["models"]["providers"]["metaclaw"]["models"][0];
    assert_eq!(ours["contextWindow"], 32_768);
    assert_eq!(ours["maxTokens"], 4096);
}

#[test]
fn the_agent_asks_us_first_and_the_former_model_next() {
    let house = House::new(FILE);
    house.wire();
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
    let text = house.text();
    has(&text, ["// what I pay for", "/* the cheap one */"]);
    let standing = house.wiring.standing().unwrap();
    let base_url = "http://127.0.0.1:30000/v1".to_owned();
    assert_eq!(
        standing,
        Standing::Wired {
            base_url,
            has_fallback: true
        }
    );
    assert!(house.wiring.is_wired_to(&target(30_000)).unwrap());
    assert!(!house.wiring.is_wired_to(&target(30_001)).unwrap());
    let keyed = Target {
        key: Some("sk-ours".into()),
        ..target(30_000)
    };
    assert!(!house.wiring.is_wired_to(&keyed).unwrap());

    assert_eq!(house.wiring.unwire().unwrap(), Outcome::Restored);
    assert_eq!(house.text(), FILE);
    assert_eq!(house.wiring.unwire().unwrap(), Outcome::Nothing);
    assert!(
        house
            .wiring
            .record()
            .unwrap()
            .unwrap()
            .is_of(&house.found()),
        "the yes is remembered"
    );
    house.wire();
    house.wiring.unwire().unwrap();
    assert_eq!(house.text(), FILE);
}

#[test]
fn a_login_goes_on_with_its_own_provider() {
    let text = r#"{"agents": {"defaults": {"model": "anthropic/claude-x"}}}"#;
    let house = House::new(text);
    house.wire();
    let config = house.config();
    let model = &config["models"]["providers"]["anthropic"]["models"][0];
    assert_eq!(model["id"], "metaclaw-claude-x");
    assert_eq!(model["baseUrl"], "http://127.0.0.1:30000");
    assert_eq!(model["input"], json!(["text", "image"]));
    assert_eq!(
        config["agents"]["defaults"]["model"],
        json!({"primary": "anthropic/metaclaw-claude-x", "fallbacks": ["anthropic/claude-x"]})
    );
    house.wiring.unwire().unwrap();
    assert_eq!(house.text(), text);
    let bare = Target {
        has_provider_key: false,
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
        let refused = house.wiring.wire(&house.found(), &target).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

#[test]
fn what_others_wrote_since_stays() {
    let house = House::new(FILE);
    house.wire();
    let theirs = house
        .text()
        .replace("// what I pay for", "// what I pay for, still");
    let theirs = theirs.replace("\"cloud/n\"", "\"cloud/n\", \"other/o\"");
    fs::write(&house.file, theirs).unwrap();
    assert!(house.wiring.is_wired_to(&target(30_000)).unwrap());
    assert_eq!(house.wiring.unwire().unwrap(), Outcome::TakenBack);
    let text = house.text();
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
    let house = House::new(r#"{"agents":{"defaults":{"model":"openai/m"}}}"#);
    house.wire();
    let mut config = house.config();
    config["agents"]["defaults"]["model"] =
        json!({"primary": "openai/new", "fallbacks": ["openai/metaclaw-m", "openai/m"]});
    fs::write(&house.file, config.to_string()).unwrap();
    assert_eq!(house.wiring.standing().unwrap(), Standing::Changed);
    assert_eq!(house.wiring.unwire().unwrap(), Outcome::TakenBack);
    assert_eq!(
        house.config(),
        json!({"agents": {"defaults": {"model": {"primary": "openai/new", "fallbacks": ["openai/m"]}}}})
    );
}

#[test]
fn a_crash_between_record_and_change_is_settled() {
    let house = House::new(FILE);
    house.wire();
    // The record reached the disk, and the file did not.
    fs::write(&house.file, FILE).unwrap();
    assert_eq!(house.wiring.standing().unwrap(), Standing::Unwired);
    assert_eq!(house.wiring.unwire().unwrap(), Outcome::Nothing);
    assert_eq!(house.text(), FILE);
    // The file was restored, and the record does not say so.
    house.wire();
    let record = fs::read(&house.wiring.files()[0]).unwrap();
    house.wiring.unwire().unwrap();
    fs::write(&house.wiring.files()[0], record).unwrap();
    assert_eq!(house.wiring.unwire().unwrap(), Outcome::Nothing);
    assert_eq!(house.text(), FILE);
    // The copy is lost, so only our keys are removed.
    house.wire();
    fs::remove_file(&house.wiring.files()[1]).unwrap();
    assert_eq!(house.wiring.unwire().unwrap(), Outcome::TakenBack);
    assert_eq!(house.config(), document::value(FILE).unwrap());
    house.wire();
    fs::remove_file(&house.file).unwrap();
    assert_eq!(house.wiring.unwire().unwrap(), Outcome::Gone);
}

#[test]
fn mode_and_link_are_kept() {
    let house = House::new(FILE);
    let real = house.file.with_file_name("dotfiles.json");
    fs::rename(&house.file, &real).unwrap();
    std::os::unix::fs::symlink(&real, &house.file).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    house.wire();
    house.wiring.unwire().unwrap();
    assert!(fs::symlink_metadata(&house.file).unwrap().is_symlink());
    assert_eq!(
        fs::metadata(&real).unwrap().permissions().mode() & 0o777,
        0o640
    );
    let [record, _] = house.wiring.files();
    assert_eq!(
        fs::metadata(record).unwrap().permissions().mode() & 0o777,
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
        let house = House::new(&text);
        let refused = house.wiring.wire(&house.found(), &target(1)).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
        let WiringError::Layout { by_hand, .. } = refused else {
            panic!("{refused}")
        };
        has(&by_hand, ["metaclaw/m", "cloud/m"]);
        assert_eq!(house.text(), text);
        assert!(house.wiring.record().unwrap().is_none());
    }
    let house = House::new("{agents: {defaults: {$include: './d.json'}}}");
    fs::write(house.file.with_file_name("d.json"), r#"{"model": "xai/m"}"#).unwrap();
    let refused = house.wiring.wire(&house.found(), &target(1)).unwrap_err();
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
    let leaf = prop_oneof![
        Just("1".to_owned()),
        Just("'x'".to_owned()),
        Just("[1,\n2,]".to_owned()),
        Just("{}".to_owned())
    ];
    let space = prop_oneof![
        Just(""),
        Just(" "),
        Just("\n"),
        Just("\r\n\t"),
        Just(" // c\n"),
        Just("/* ü */")
    ];
    let more = proptest::collection::vec((name, leaf, space.clone()), 0..4);
    let model = prop_oneof![
        Just("'p/m'".to_owned()),
        Just("{primary: \"p/m\"}".to_owned()),
        Just("{ \"fallbacks\": ['p/n',], 'primary': 'p/m', }".to_owned()),
    ];
    let models = prop_oneof![
        Just("[{id: 'm', name: 'M',},],"),
        Just("[],"),
        Just("[\n{id:'n'}]")
    ];
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
    let house = House::new(&text);
    let bare = Target {
        has_provider_key: false,
        ..target(1)
    };
    house.wiring.wire(&house.found(), &bare).unwrap();
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
        let house = House::new(&text);
        house.wire();
        prop_assert!(house.wiring.is_wired_to(&target(30_000)).unwrap());
        // Without the copy, the edit alone restores the same meaning.
        fs::remove_file(&house.wiring.files()[1]).unwrap();
        prop_assert_eq!(house.wiring.unwire().unwrap(), Outcome::TakenBack);
        prop_assert_eq!(house.config(), document::value(&text).unwrap());
        fs::write(&house.file, &text).unwrap();
        house.wire();
        prop_assert_eq!(house.wiring.unwire().unwrap(), Outcome::Restored);
        prop_assert_eq!(house.text(), text);
    }
}
