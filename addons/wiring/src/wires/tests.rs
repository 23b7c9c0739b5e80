//! Every agent: wired, put back, and what others wrote meanwhile.

mod table;

use metaclaw_test_kit::has;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    PROFILES,
    format::Format,
    profile,
    settings::read,
    tests::house::{House, of, target, usual},
};

#[test]
fn every_agent_is_put_back_byte_for_byte() {
    for house in [usual(), House::new()] {
        let before = house.all();
        // OpenClaw is wired by what its file says.
        let is_there =
            |agent: &&AgentProfile| agent.id != OPENCLAW || house.surroundings.has(agent);
        for agent in PROFILES.iter().filter(is_there) {
            house.wire(&agent.id);
            assert!(house.wires.is_wired_to(&agent.id, &target()).unwrap());
            let other = Target {
                origin: "http://127.0.0.1:1".to_owned(),
                ..target()
            };
            assert!(!house.wires.is_wired_to(&agent.id, &other).unwrap());
            assert_ne!(house.all(), before, "{}", agent.name);
            let back = house.unwire(&agent.id);
            assert!(
                back.taken_back.is_empty() && back.left.is_empty(),
                "{back:?}"
            );
            assert_eq!(house.all(), before, "{}", agent.name);
            assert_eq!(
                house.standing(&agent.id),
                if back.restored.is_empty() {
                    WireStanding::Unknown
                } else {
                    WireStanding::Waits
                }
            );
            assert!(house.unwire(&agent.id).is_nothing());
            house.wires.forget(&agent.id).unwrap();
            assert_eq!(house.standing(&agent.id), WireStanding::Unknown);
        }
    }
}

#[test]
fn what_each_is_made_to_say() {
    let house = usual();
    let mut said = Vec::new();
    for agent in PROFILES.iter() {
        let plan = house
            .wires
            .plan(agent, &house.surroundings, &target())
            .unwrap();
        said.push(format!("=== {}\n{}", agent.name, plan.diff()));
        said.extend(plan.notes.iter().map(|it| format!("({it})\n")));
    }
    let said = said.concat();
    let said = said.replace(&house.folder.path().display().to_string(), "~");
    assert!(!said.contains("sk-user"), "{said}");
    insta::assert_snapshot!(said);
}

#[test]
fn an_agent_that_is_wired_is_shown_its_header_once() {
    // OpenClaw's header is none of its keys, and by its file a wired one does not say what it asks.
    for agent in PROFILES.iter().filter(|agent| agent.id != OPENCLAW) {
        let house = usual();
        let n_shown = || {
            let settings = agent.settings(&house.surroundings, &target()).unwrap();
            settings.by_hand(&target()).matches("X-Agent-Id").count()
        };
        let before = n_shown();
        house.wire(&agent.id);
        assert!(n_shown() <= before, "{}", agent.name);
    }
}

#[test]
fn a_key_of_the_proxy_is_shown_by_the_agent_and_in_no_diff() {
    let keyed = Target {
        key: Some("sk-metaclaw-1".into()),
        ..target()
    };
    for agent in PROFILES.iter() {
        let house = usual();
        let plan = house
            .wires
            .plan(agent, &house.surroundings, &keyed)
            .unwrap();
        assert!(!plan.diff().contains("sk-metaclaw-1"), "{}", plan.diff());
        let by_hand = agent
            .settings(&house.surroundings, &keyed)
            .unwrap()
            .by_hand(&keyed);
        assert!(
            !by_hand.contains("sk-metaclaw-1") && by_hand.contains("(the proxy's key)"),
            "{by_hand}"
        );
        house.try_wire(&agent.id, &keyed).unwrap();
        assert!(house.wires.is_wired_to(&agent.id, &keyed).unwrap());
        assert!(
            house
                .all()
                .iter()
                .any(|(_, text)| text.contains("sk-metaclaw-1")),
            "{}",
            agent.name
        );
        let other = Target {
            key: Some("sk-metaclaw-2".into()),
            ..target()
        };
        assert!(!house.wires.is_wired_to(&agent.id, &other).unwrap());
    }
}

#[test]
fn without_a_key_of_ours_the_agents_own_stays() {
    let bare = Target {
        has_provider_key: false,
        is_own: false,
        ..target()
    };
    let house = usual();
    house.try_wire("claude-code", &bare).unwrap();
    let env = read(&house.path(".claude/settings.json"), Format::Json).unwrap()["env"].clone();
    assert!(env["ANTHROPIC_AUTH_TOKEN"].is_null(), "{env}");
    let notes = house.try_wire("codex", &bare).unwrap();
    assert!(
        house
            .text(".codex/config.toml")
            .contains("env_key = \"OPENAI_API_KEY\"")
    );
    assert!(notes[0].ends_with("https://api.openai.com/v1"), "{notes:?}");
}

#[test]
fn what_somebody_writes_elsewhere_stays() {
    for case in [
        "claude-code | .claude/settings.json | Bash(ls:*) | Bash(cat:*)",
        "codex | .codex/config.toml | # mine | # mine, and more\napproval_policy = \"never\"",
        "opencode | .config/opencode/opencode.jsonc | // mine | // mine\n  \"theme\": \"x\",",
        "hermes | .hermes/config.yaml | max_turns: 90 | max_turns: 91\n  more: true",
        "nanobot | .nanobot/config.json | \"maxTokens\": 4096 | \"maxTokens\": 4097",
        "aider | .aider.conf.yml | auto-commits: false | auto-commits: true # now",
    ] {
        let columns: Vec<&str> = case.split(" | ").collect();
        let [agent, path, mine, theirs] = columns[..] else {
            panic!("{case}")
        };
        let house = usual();
        let before = house.text(path);
        house.wire(agent);
        let wired = house.text(path);
        assert!(wired.contains(mine), "{wired}");
        house.put(path, &wired.replace(mine, theirs));
        assert_eq!(
            house.standing(agent),
            WireStanding::Wired,
            "{agent} {}",
            house.text(path)
        );
        let back = house.unwire(agent);
        assert_eq!(back.taken_back, [house.path(path)], "{agent}");
        assert!(back.left.is_empty());
        assert_eq!(house.text(path), before.replace(mine, theirs), "{agent}");
    }
}

#[test]
fn a_file_that_the_agent_wrote_anew_loses_our_keys_alone() {
    let house = usual();
    let path = ".nanobot/config.json";
    let mut wanted = read(&house.path(path), Format::Json).unwrap();
    house.wire("nanobot");
    let mut config = read(&house.path(path), Format::Json).unwrap();
    config["tools"] = json!({"web": true});
    config["providers"]["metaclaw"]["displayName"] = Value::Null;
    house.put(path, &config.to_string());
    assert_eq!(
        house.standing("nanobot"),
        WireStanding::Wired,
        "it may add to what is ours"
    );
    house.unwire("nanobot");
    wanted["tools"] = json!({"web": true});
    assert_eq!(read(&house.path(path), Format::Json).unwrap(), wanted);
}

#[test]
fn what_somebody_chose_meanwhile_is_left_and_told() {
    let house = usual();
    house.wire("codex");
    let path = ".codex/config.toml";
    let text = house
        .text(path)
        .replace("model_provider = \"metaclaw\"", "model_provider = \"work\"");
    house.put(path, &text);
    assert_eq!(house.standing("codex"), WireStanding::Changed);
    let back = house.unwire("codex");
    assert_eq!(back.left, ["model_provider"]);
    let text = house.text(path);
    assert!(
        text.contains("model_provider = \"work\"") && !text.contains("metaclaw"),
        "{text}"
    );
}

#[test]
fn a_name_of_ours_that_is_somebody_elses_is_refused() {
    let house = House::with(
        ".codex/config.toml",
        "[model_providers.metaclaw]\nbase_url = 'http://mine'\n",
    );
    let refused = house.try_wire("codex", &target()).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("model_providers.metaclaw is there already"),
        "{refused}"
    );
    let WiringError::Layout { by_hand, .. } = refused else {
        panic!("{refused}")
    };
    has(&by_hand, ["base_url = \"http://127.0.0.1:30000/v1\""]);
    assert_eq!(house.standing("codex"), WireStanding::Unknown);
}

#[test]
fn a_model_has_to_be_named() {
    let house = House::new();
    let unnamed = Target {
        model: None,
        ..target()
    };
    let refused = house.try_wire("hermes", &unnamed).unwrap_err();
    assert!(refused.to_string().contains("llm.model_id"), "{refused}");
    let house = usual();
    house.try_wire("hermes", &unnamed).unwrap();
    assert!(
        house
            .text(".hermes/config.yaml")
            .contains("default: \"claude-opus-5\"")
    );
}

#[test]
fn an_agent_that_an_earlier_release_wired_is_put_back() {
    let (env, before) = (".ironclaw/.env", "# mine\nLLM_BACKEND=anthropic\n");
    let after = "# mine\nLLM_BACKEND=openai_compatible\nLLM_BASE_URL=http://127.0.0.1:30000/v1\n";
    for (now, wanted) in [
        (after.to_owned(), before.to_owned()),
        (format!("{after}# theirs\n"), format!("{before}# theirs\n")),
    ] {
        let house = House::with(env, &now);
        let copy = "ours/wiring/ironclaw.0.before";
        house.put(copy, before);
        let key = |name: &str, value: &str, before: Value| json!({"key": {"path": [name], "value": {"is": value}}, "before": before, "made": []});
        let record = json!({
            "version": 1, "agent": "ironclaw", "origin": "http://127.0.0.1:30000",
            "files": [{
                "path": house.path(env), "format": "env", "copy": house.path(copy), "folders": [],
                "before": files::hash(before.as_bytes()), "after": files::hash(after.as_bytes()),
                "done": [
                    key("LLM_BACKEND", "openai_compatible", json!("anthropic")),
                    key("LLM_BASE_URL", "http://127.0.0.1:30000/v1", Value::Null),
                ],
            }],
        });
        house.put("ours/wiring/ironclaw.wired.json", &record.to_string());
        assert_eq!(house.wires.agents().unwrap(), ["ironclaw"]);
        assert_eq!(house.standing("ironclaw"), WireStanding::Wired);
        house.unwire("ironclaw");
        assert_eq!(house.text(env), wanted);
        house.wires.forget("ironclaw").unwrap();
        assert!(house.wires.agents().unwrap().is_empty());
    }
}

#[test]
fn a_variable_names_the_place_of_settings() {
    let mut house = House::new();
    house.put(".copaw/x", "");
    let path = |house: &House, agent: &str| {
        let settings = of(agent).settings(&house.surroundings, &target()).unwrap();
        let home = house.folder.path().display().to_string();
        settings.files[0]
            .path
            .display()
            .to_string()
            .replace(&home, "~")
    };
    assert_eq!(path(&house, "opencode"), "~/.config/opencode/opencode.json");
    assert_eq!(
        path(&house, "qwenpaw"),
        "~/.copaw.secret/providers/custom/metaclaw.json"
    );
    for (variable, value, agent, wanted) in [
        ("CODEX_HOME", "~/c/", "codex", "~/c/config.toml"),
        (
            "XDG_CONFIG_HOME",
            "/x",
            "llm",
            "/x/io.datasette.llm/extra-openai-models.yaml",
        ),
        ("LLM_USER_PATH", "/l", "llm", "/l/extra-openai-models.yaml"),
        (
            "XDG_CONFIG_HOME",
            "/x",
            "opencode",
            "/x/opencode/opencode.json",
        ),
        ("OPENCODE_CONFIG", "/o.jsonc", "opencode", "/o.jsonc"),
        (
            "QWENPAW_WORKING_DIR",
            "/q",
            "qwenpaw",
            "/q.secret/providers/custom/metaclaw.json",
        ),
        (
            "QWENPAW_SECRET_DIR",
            "/s",
            "qwenpaw",
            "/s/providers/custom/metaclaw.json",
        ),
    ] {
        house
            .surroundings
            .variables
            .push((variable.to_owned(), value.to_owned()));
        assert_eq!(path(&house, agent), wanted);
    }
}

#[test]
fn a_crash_at_any_point_is_settled() {
    let house = usual();
    let before = house.all();
    house.wire("copaw");
    let records: Vec<_> = fs::read_dir(house.path("ours/wiring"))
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    let kept: Vec<_> = records
        .iter()
        .map(|it| (it.clone(), fs::read(it).unwrap()))
        .collect();
    // The record reached the disk, and one of the two files did not.
    fs::remove_dir_all(house.path(".copaw.secret/providers/custom")).unwrap();
    assert_eq!(house.standing("copaw"), WireStanding::Changed);
    house.unwire("copaw");
    assert_eq!(house.all(), before);
    // The files were put back, and the record did not hear of it.
    for (path, bytes) in kept {
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(house.standing("copaw"), WireStanding::Waits);
    assert!(house.unwire("copaw").is_nothing());
    assert_eq!(house.all(), before);
    // The copy is lost: our keys alone are taken out.
    house.wire("hermes");
    for index in 0..1 {
        fs::remove_file(house.path(&format!("ours/wiring/hermes.{index}.before"))).unwrap();
    }
    assert_eq!(house.unwire("hermes").taken_back.len(), 1);
    let text = house.text(".hermes/config.yaml");
    assert!(
        !text.contains("metaclaw") && text.contains("# mine"),
        "{text}"
    );
    // The file itself is gone.
    house.wire("aider");
    fs::remove_file(house.path(".aider.conf.yml")).unwrap();
    assert_eq!(house.unwire("aider").gone, [house.path(".aider.conf.yml")]);
}

#[test]
fn modes_and_links_are_kept_and_ours_are_private() {
    let house = usual();
    let (link, real) = (
        house.path(".codex/config.toml"),
        house.path("dotfiles.toml"),
    );
    fs::rename(&link, &real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    house.wire("codex");
    house.wire("copaw");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        mode(&house.path(".copaw.secret/providers/custom/metaclaw.json")),
        0o600
    );
    for entry in fs::read_dir(house.path("ours/wiring")).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    house.unwire("codex");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(mode(&real), 0o640);
}

#[test]
fn agents_are_found_by_what_they_leave() {
    let house = usual();
    for agent in PROFILES
        .iter()
        .filter(|it| !["qwenpaw", "copaw"].contains(&it.id.as_str()))
    {
        assert!(house.surroundings.has(agent), "{}", agent.name);
        assert!(!House::new().surroundings.has(agent), "{}", agent.name);
    }
    let mut house = House::with("bin/codex", "");
    let path = format!("/nowhere:{}", house.path("bin").display());
    house.surroundings.variables = vec![("PATH".to_owned(), path)];
    assert!(house.surroundings.has(of("codex")) && !house.surroundings.has(of("opencode")));
}

#[test]
fn ids_are_headers_and_differ() {
    let mut ids: Vec<&str> = PROFILES.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids.len(), 10, "data/agents.yaml is read whole");
    assert!(
        ids.iter()
            .all(|id| id.chars().all(|c| c.is_ascii_lowercase() || c == '-')),
        "{ids:?}"
    );
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), PROFILES.len());
    assert!(profile("nobody").is_none());
}

proptest! {
    // Each case has some waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_file_is_put_back_or_refused(text in "([a-z_]{1,12} ?[:=] ?(\"[a-z]{0,4}\"|[0-9]|\\{\\}|\\[\\])? ?(# [a-zü]{0,4})?\r?\n|\\[[a-z]{2,9}\\]\n|  [a-z]{2}: x\n|\n){0,6}") {
        for (agent, path) in [("codex", ".codex/config.toml"), ("hermes", ".hermes/config.yaml"), ("aider", ".aider.conf.yml")] {
            let house = House::with(path, &text);
            let before = house.all();
            if house.try_wire(agent, &target()).is_ok() {
                prop_assert_eq!(house.standing(agent), WireStanding::Wired);
                house.unwire(agent);
            }
            prop_assert_eq!(house.all(), before);
        }
    }
}

#[test]
fn codex_goes_on_with_its_own_login_at_its_own_provider() {
    let own = Target {
        has_provider_key: false,
        is_own: true,
        model: None,
        ..target()
    };
    let own = Target { key: None, ..own };
    for (text, expected) in [
        (
            "model = \"gpt-5.5\"\n",
            json!({"requires_openai_auth": true, "http_headers": {"X-Agent-Id": "codex"}}),
        ),
        (
            "model_provider = \"work\"\n[model_providers.work]\nbase_url = \"http://w/v1\"\nenv_key = \"WORK\"\nhttp_headers = { \"X-Team\" = \"a\" }\n",
            json!({"env_key": "WORK", "http_headers": {"X-Team": "a", "X-Agent-Id": "codex"}}),
        ),
    ] {
        let house = House::with(".codex/config.toml", text);
        house
            .wires
            .wire(profile("codex").unwrap(), &house.surroundings, &own)
            .unwrap();
        let path = house.folder.path().join(".codex/config.toml");
        let mut entry = read(&path, Format::Toml).unwrap()["model_providers"]["metaclaw"].clone();
        for field in ["name", "base_url", "wire_api"] {
            assert!(
                entry.as_object_mut().unwrap().remove(field).is_some(),
                "{field}"
            );
        }
        assert_eq!(entry, expected);
        house.unwire("codex");
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    }
}
