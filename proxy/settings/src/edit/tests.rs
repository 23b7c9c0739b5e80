use std::fs;

use super::*;
use crate::testing::lines;

const FILE: &str = "# mine\nmode: auto   # for now\n\nrl:\n  # small batches\n  batch_size: 4\n  prm_url: 'https://judge.example'\nllm: {api_base: 'https://a.example', api_key: sk-1}\n";

/// A file with this text, in a folder of its own.
fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    fs::write(&path, text).unwrap();
    (dir, path)
}

#[test]
fn one_value_changes_and_every_comment_stays() {
    let (after, edited) = set(FILE, "rl.batch_size", "8").unwrap();
    assert_eq!(after, FILE.replace("batch_size: 4", "batch_size: 8"));
    assert_eq!((edited.key, edited.note), ("rl.batch_size", None));
}

#[test]
fn new_keys_find_their_section() {
    let (after, _) = set(FILE, "rl.lora_rank", "16").unwrap();
    assert!(after.contains("small batches"), "{after}");
    assert_eq!(values(&after).unwrap()["rl.lora_rank"].as_u64(), Some(16));
    let (after, _) = set("", "turns.cache", "32 MiB").unwrap();
    insta::assert_snapshot!(after, @r#"
    turns:
      cache: 32 MiB
    "#);
}

#[test]
fn trees_and_texts_come_back_as_given() {
    let rules = "[{on: reply, max_words: 40, score: 1}]";
    let (after, _) = set(FILE, "judge.rules", rules).unwrap();
    assert!(values(&after).unwrap()["judge.rules"].is_array(), "{after}");
    let (after, _) = set(FILE, "llm.model_id", "yes: #no").unwrap();
    assert_eq!(
        values(&after).unwrap()["llm.model_id"],
        "yes: #no",
        "{after}"
    );
}

/// `n` came back as `false`, and `1.10` as `1.1`.
#[test]
fn a_text_is_what_was_given_whatever_yaml_would_make_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let texts = "n|y|N|off|true|null|~|1.10|0x10|1e5|22:22|1_000|-|.inf|2026-11-22|- a|#x|'q'|it's|a: b|[a]|{a}|*a|!x";
    for text in texts.split('|') {
        for key in ["llm.model_id", "judge.model"] {
            set_in_file(&path, key, text).unwrap();
            let file = fs::read_to_string(&path).unwrap();
            assert_eq!(values(&file).unwrap()[key], text, "{file}");
        }
    }
    // The file has the form in which a person writes it.
    let written = values("llm: {model_id: n}\njudge: {kind: off}\n").unwrap();
    assert_eq!(written["llm.model_id"], "n");
    assert_eq!(written["judge.kind"], "off");
}

#[test]
fn times_and_older_names_are_written_as_they_are_meant() {
    let (after, edited) = set("", "scheduler.sleep_start", "23:00").unwrap();
    assert_eq!(edited.note, None);
    assert!(after.contains("23:00"), "{after}");
    let (_, edited) = set("", "rl.resume_from_ckpt", "x").unwrap();
    assert!(edited.note.is_some(), "it does nothing");
    let (after, edited) = set("", "rl.prm_model", "judge-1").unwrap();
    assert_eq!(edited.key, "judge.model");
    assert!(after.contains("judge"), "{after}");
}

#[test]
fn what_is_not_allowed_is_not_written() {
    let asked = [
        ("rl.batchsize", "8"),
        ("rl.batch_size", "many"),
        ("judge.kind", "council"),
    ];
    let said = asked.map(|(key, given)| set(FILE, key, given).unwrap_err());
    insta::assert_snapshot!(lines(&said), @r#"
    unknown key rl.batchsize: did you mean rl.batch_size?
    rl.batch_size: "many" is not allowed: a whole number, 1 or more
    judge.kind: "council" is not allowed: llm, rules, http, base, off
    "#);
}

#[test]
fn the_file_is_its_owners_alone_and_whole() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    set_in_file(&path, "proxy.port", "31000").unwrap();
    set_in_file(&path, "mode", "madmax").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, "proxy:\n  port: 31000\nmode: auto\n");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let n_files = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(n_files, 1, "nothing left beside it");
}

#[test]
fn a_key_goes_and_its_default_stands_again() {
    let (_dir, path) = written(FILE);
    assert!(unset_in_file(&path, "rl.batch_size").unwrap());
    assert!(unset_in_file(&path, "rl.prm_url").unwrap());
    assert!(!unset_in_file(&path, "rl.lora_rank").unwrap());
    let text = fs::read_to_string(&path).unwrap();
    let is_left = |line: &str| text.contains(line);
    assert!(
        !is_left("batch_size: 4") && !is_left("judge.example"),
        "{text}"
    );
    assert!(is_left("mode: auto   # for now"), "{text}");
    assert!(
        is_left("llm: {api_base: 'https://a.example', api_key: sk-1}"),
        "{text}"
    );
}

#[test]
fn what_a_start_would_refuse_is_not_written() {
    let (_dir, path) = written(FILE);
    let error = set_in_file(&path, "judge.rules", "[{on: nxt, score: 1}]").unwrap_err();
    insta::assert_snapshot!(error, @r#"judge.rules.0.on in config.yaml: "nxt" is not allowed: reply, next"#);
    let error = set_in_file(&path, "agents.work.upstream", "[nobody]").unwrap_err();
    let said = error.to_string();
    assert!(said.contains("\"nobody\" is no upstream"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), FILE);
    // A file that would not start is repaired line by line.
    fs::write(&path, "mode: fast\nproxy: {port: 70000}\n").unwrap();
    set_in_file(&path, "mode", "auto").unwrap();
    set_in_file(&path, "proxy.port", "30000").unwrap();
    set_in_file(&path, "mode", "rl").unwrap();
}

#[test]
fn answers_are_written_with_what_they_are_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let answers = [
        ("mode", Some("skills_only")),
        ("llm.api_base", Some("https://a.example/v1")),
        ("llm.api_key", Some("sk-1")),
    ];
    let owned = |(key, value): (&str, Option<&str>)| (key.to_owned(), value.map(str::to_owned));
    answer_in_file(&path, &answers.map(owned)).unwrap();
    insta::assert_snapshot!(fs::read_to_string(&path).unwrap(), @r#"
    # When weights are trained: skills_only never trains, rl trains whenever a batch is ready, and auto trains when a batch is ready and you are away.
    mode: skills_only
    llm:
      # The address of an OpenAI-compatible API, as in `https://api.openai.com/v1`.
      api_base: https://a.example/v1
      # The key. Without it, the key that `metaclaw auth` keeps is used. Without any, the caller's own authorization is passed on and never kept.
      api_key: sk-1
    "#);
    // With another answer and one fewer, no comment is repeated, and unknown keys stay.
    let more = fs::read_to_string(&path).unwrap() + "mine: {a: 1} # my own\n";
    fs::write(&path, &more).unwrap();
    let answers = [("mode", Some("auto")), ("llm.api_key", None)].map(owned);
    answer_in_file(&path, &answers).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("mine: {a: 1} # my own") && !text.contains("sk-1"),
        "{text}"
    );
    assert_eq!(
        text.matches("# When weights are trained").count(),
        1,
        "{text}"
    );
}

#[test]
fn a_section_goes_and_every_other_line_stays() {
    let file = "proxy:\n  port: 1 # mine\n  keys:\n    # of the phone\n    phone:\n      key: sk-1\n      agents: [main]\n    desk: {key: sk-2, agents: [work]}\nllm: {api_base: 'https://a.example'}\n";
    let after = remove(file, "proxy.keys.phone").unwrap();
    assert!(
        after.contains("port: 1 # mine") && after.contains("desk: {key: sk-2"),
        "{after}"
    );
    assert!(!after.contains("sk-1"), "{after}");
    let after = remove(&after, "proxy.keys.desk").unwrap();
    assert!(!after.contains("sk-2"), "{after}");
    assert!(
        after.contains("llm: {api_base: 'https://a.example'}"),
        "{after}"
    );
    // The file can be changed again.
    set(&after, "proxy.keys.new.key", "sk-3").unwrap();
}
