use std::path::PathBuf;

use super::*;

fn files(old: &str, new: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("old/config.yaml");
    let to = folder.path().join("new/config.yaml");
    for (path, text) in [(&from, old), (&to, new)] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !text.is_empty() {
            std::fs::write(path, text).unwrap();
        }
    }
    (folder, from, to)
}

fn outcome<'a>(adopted: &'a AdoptedSettings, key: &str) -> &'a AdoptedKey {
    let mut keys = adopted.keys.iter();
    &keys
        .find(|(it, _)| it == key)
        .unwrap_or_else(|| panic!("{key}: {adopted:?}"))
        .1
}

#[test]
fn a_file_of_the_original_gives_what_works_here_and_the_rest_has_its_reason() {
    let (_folder, from, to) = files(
        "mode: madmax\nllm: {api_base: 'http://127.0.0.1:1/v1', api_key: sk-1, model_id: m, provider: custom}\n\
         proxy: {host: 0.0.0.0, port: 31000}\nrl: {prm_url: 'https://api.openai.com/v1', prm_model: gpt-5.2, prm_m: 5, batch_size: 0}\n\
         skills: {dir: skills, top_k: 3}\nmemory: {sidecar_url: 'http://h'}\nnonsense: 1\n",
        "",
    );
    let adopted = adopt(&from, &to, &[]).unwrap();
    for key in [
        "mode",
        "llm.api_key",
        "proxy.port",
        "judge.votes",
        "skills.top_k",
    ] {
        assert_eq!(outcome(&adopted, key), &AdoptedKey::Taken, "{key}");
    }
    for (key, said) in [
        ("proxy.host", "without a key"),
        ("judge.url", "it has no key"),
        ("judge.model", "it has no key"),
        ("rl.batch_size", "\"0\" is not allowed"),
        ("skills.dir", "in the old home"),
        ("memory.sidecar_url", "no second process"),
        ("nonsense", "there is no such key"),
    ] {
        let AdoptedKey::Left(why) = outcome(&adopted, key) else {
            panic!("{key} was taken")
        };
        assert!(why.contains(said), "{key}: {why}");
    }
    assert!(!to.exists(), "deciding writes nothing");
    adopted.write(&to).unwrap();
    let text = std::fs::read_to_string(&to).unwrap();
    assert!(
        text.contains("mode: auto") && text.contains("port: 31000"),
        "{text}"
    );
    Loaded::new(vec![Layer::file(to, true).unwrap()]).unwrap();
}

#[test]
fn a_second_time_adds_nothing_and_an_own_value_stays() {
    let old = "llm: {model_id: theirs, api_base: 'http://127.0.0.1:1/v1'}\nrl: {lora_rank: 16}\n";
    let (_folder, from, to) = files(old, "# mine\nllm:\n  model_id: ours\n");
    let first = adopt(&from, &to, &[]).unwrap();
    assert_eq!(outcome(&first, "llm.model_id"), &AdoptedKey::Kept);
    assert_eq!(outcome(&first, "rl.lora_rank"), &AdoptedKey::Taken);
    first.write(&to).unwrap();
    let text = std::fs::read_to_string(&to).unwrap();
    assert!(
        text.contains("# mine") && text.contains("model_id: ours"),
        "{text}"
    );
    let second = adopt(&from, &to, &[]).unwrap();
    assert_eq!(outcome(&second, "rl.lora_rank"), &AdoptedKey::Present);
    second.write(&to).unwrap();
    assert_eq!(std::fs::read_to_string(&to).unwrap(), text);
}

#[test]
fn what_a_start_would_refuse_is_left_and_what_needs_another_key_is_not() {
    let lan = "proxy: {host: 192.0.2.1}\n";
    let (_folder, from, to) = files(lan, "");
    let adopted = adopt(&from, &to, &[]).unwrap();
    let AdoptedKey::Left(why) = outcome(&adopted, "proxy.host") else {
        panic!("it was taken")
    };
    assert!(why.contains("without a key"), "{why}");
    let (_folder, from, to) = files("proxy: {host: 192.0.2.1, api_key: sk-callers}\n", "");
    let adopted = adopt(&from, &to, &[]).unwrap();
    assert_eq!(outcome(&adopted, "proxy.host"), &AdoptedKey::Taken);
}

#[test]
fn texts_of_keys_without_effect_are_found_and_a_broken_file_is_refused() {
    let (_folder, from, _) = files(
        "agents: {ana: {skills_dir: /s, mode: rl}}\nclaw_type: none\n",
        "",
    );
    let found = texts(&from).unwrap();
    assert_eq!(found["agents.ana.skills_dir"], "/s");
    assert_eq!(found["claw_type"], "none");
    std::fs::write(&from, "mode: [").unwrap();
    assert!(
        texts(&from)
            .unwrap_err()
            .to_string()
            .contains("is not YAML")
    );
    assert!(adopt(&from, &from, &[]).is_err());
}
