use std::collections::BTreeMap;

use serde_json::json;

use super::{old_home::real, *};

struct Homes {
    folder: tempfile::TempDir,
}

impl Homes {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let homes = Self { folder };
        fs::create_dir(homes.old()).unwrap();
        for (path, text) in files {
            homes.put(path, text.as_bytes());
        }
        homes
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.old().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn old(&self) -> PathBuf {
        self.folder.path().join("old")
    }

    fn new_home(&self) -> Home {
        Home::at(self.folder.path().join("new"))
    }

    fn migrate(&self, dry_run: bool) -> anyhow::Result<MigrationReport> {
        let request = MigrationRequest {
            from: self.old(),
            adapters: Vec::new(),
            agent: None,
            dry_run,
        };
        let home = self.new_home();
        migrate(&request, &home, &|| Ok(home.trainer()))
    }

    fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else {
                    found.insert(entry.path(), fs::read(entry.path()).unwrap());
                }
            }
        }
        found
    }
}

fn names(report: &MigrationReport, outcome: &MigrationOutcome) -> Vec<String> {
    let items = report.items.iter().filter(|item| item.outcome == *outcome);
    items
        .map(|item| format!("{} {}", item.kind, item.name))
        .collect()
}

fn why(report: &MigrationReport, name: &str) -> String {
    let mut items = report.items.iter();
    let item = items.find(|item| item.name == name);
    let item = item.unwrap_or_else(|| panic!("{name} is not in {report:?}"));
    match &item.outcome {
        MigrationOutcome::Left(why) | MigrationOutcome::Kept(why) => why.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn skill(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: Use when: asked\n---\n\n{body}\n")
}

fn full_home() -> Homes {
    Homes::new(&[
        (
            "config.yaml",
            "mode: skills_only\nllm: {api_base: 'http://127.0.0.1:1/v1', model_id: m}\nskills: {dir: /home/owner/.metaclaw/skills}\n",
        ),
        (
            "auth-profiles.json",
            r#"{"profiles": [{"provider": "kimi", "profile_id": "kimi:default", "method": "api_key", "api_key": "sk-kimi"}]}"#,
        ),
        ("skills/short/SKILL.md", &skill("short", "Be short.")),
        ("skills/short/table.md", "a table\n"),
        ("skills/evil/SKILL.md", &skill("../evil", "x")),
        ("skills/ana/_private/SKILL.md", &skill("_private", "x")),
        ("skills/_shared/polite/SKILL.md", &skill("polite", "x")),
        (
            "skills/evolution_history.jsonl",
            "{\"timestamp\": \"2026-03-24T10:00:00\"}\n",
        ),
        ("conversation_skills.json", "{}"),
        ("records/conversations.jsonl", "{}"),
        ("memory/memory.db", "SQLite"),
        ("metaclaw.pid", "4000000000"),
        ("notes.txt", "mine"),
    ])
}

#[test]
fn a_home_is_taken_over_once_and_never_changed() {
    let homes = full_home();
    let before = Homes::tree(&homes.old());
    let tried = homes.migrate(true).unwrap();
    assert!(!homes.new_home().dir().exists(), "a dry run writes nothing");
    let report = homes.migrate(false).unwrap();
    assert_eq!(Homes::tree(&homes.old()), before);
    assert_eq!(
        names(&tried, &MigrationOutcome::Taken),
        names(&report, &MigrationOutcome::Taken)
    );
    assert_eq!(
        names(&report, &MigrationOutcome::Taken),
        [
            "setting llm.api_base",
            "setting llm.model_id",
            "setting mode",
            "key kimi:default",
            "skill _shared/polite",
            "skill ana/_private",
            "skill short",
        ]
    );
    for (name, said) in [
        ("skills.dir", "copied into the new home"),
        ("evil", "\"../evil\" is not allowed"),
        (
            "skills/evolution_history.jsonl",
            "`metaclaw skills log --file FILE` shows it",
        ),
        ("conversation_skills.json", "skills/NAME/SKILL.md"),
        ("records", "records of chats are not taken"),
        ("memory", "its database is not read"),
        ("metaclaw.pid", "a process of the old program"),
        ("notes.txt", "no file of the Python MetaClaw"),
    ] {
        let why = why(&report, name);
        assert!(why.contains(said), "{name}: {why}");
    }
    let library = homes.new_home().skills();
    let short = fs::read_to_string(library.join("short/SKILL.md"));
    assert_eq!(short.unwrap(), skill("short", "Be short."));
    assert!(library.join("short/table.md").exists());
    let new = Homes::tree(homes.new_home().dir());
    let again = homes.migrate(false).unwrap();
    assert_eq!(
        names(&again, &MigrationOutcome::Taken),
        Vec::<String>::new()
    );
    assert_eq!(Homes::tree(homes.new_home().dir()), new);
}

#[test]
fn what_the_new_home_has_stays() {
    let homes = Homes::new(&[
        ("config.yaml", "llm: {model_id: theirs}\n"),
        (
            "auth-profiles.json",
            r#"{"profiles": [{"provider": "kimi", "profile_id": "kimi:default", "method": "api_key", "api_key": "sk-theirs"}]}"#,
        ),
        ("skills/short/SKILL.md", &skill("short", "theirs")),
        ("skills/polite/SKILL.md", &skill("polite", "theirs")),
    ]);
    let own = [
        ("config.yaml", "llm: {model_id: ours} # mine\n".to_owned()),
        ("auth-profiles.json", r#"{"profiles": [{"provider": "kimi", "profile_id": "kimi:default", "method": "api_key", "api_key": "sk-ours"}]}"#.to_owned()),
        ("skills/short/SKILL.md", skill("short", "ours")),
        ("skills/_shared/polite/SKILL.md", skill("polite", "ours")),
    ];
    for (path, text) in &own {
        let path = homes.new_home().dir().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let report = homes.migrate(false).unwrap();
    for (name, said) in [
        ("llm.model_id", "has another value"),
        ("kimi:default", "another one"),
        ("short", "short is another one"),
        ("polite", "_shared/polite is another one"),
    ] {
        let why = why(&report, name);
        assert!(why.contains(said), "{name}: {why}");
    }
    for (path, text) in &own {
        assert_eq!(
            &fs::read_to_string(homes.new_home().dir().join(path)).unwrap(),
            text
        );
    }
}

#[test]
fn folders_that_cannot_be_migrated_are_refused_in_words_and_nothing_is_written() {
    let refusal = |homes: &Homes| {
        let error = homes.migrate(false).unwrap_err();
        assert!(!homes.new_home().config().exists());
        format!("{error:#}").replace(&*real(homes.folder.path()).to_string_lossy(), "T")
    };
    let foreign = Homes::new(&[("notes.txt", "mine")]);
    insta::assert_snapshot!(refusal(&foreign), @"T/old is no home of the Python MetaClaw: it has none of config.yaml, skills, auth-profiles.json, memory");
    let ours = Homes::new(&[("config.yaml", ""), ("metaclaw.lock", "")]);
    insta::assert_snapshot!(refusal(&ours), @"T/old is already a home of this program, and works as it is: `metaclaw --home T/old start`");
    let broken = Homes::new(&[("config.yaml", "mode: [")]);
    assert!(refusal(&broken).contains("T/old/config.yaml is not YAML"));
    let keys = Homes::new(&[("config.yaml", "mode: rl"), ("auth-profiles.json", "[")]);
    assert!(!refusal(&keys).is_empty());
    let gone = Homes::new(&[]);
    fs::remove_dir(gone.old()).unwrap();
    assert!(refusal(&gone).starts_with("cannot read T/old: No such file"));
}

fn safetensors(tensors: &[(&str, [u64; 2])]) -> Vec<u8> {
    let mut header = json!({"__metadata__": {"format": "pt"}});
    let mut end = 0;
    for (name, shape) in tensors {
        let bytes = shape[0] * shape[1] * 2;
        header[name] = json!({"dtype": "BF16", "shape": shape, "data_offsets": [end, end + bytes]});
        end += bytes;
    }
    let header = header.to_string().into_bytes();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(vec![0; usize::try_from(end).unwrap()]);
    bytes
}

#[test]
fn an_adapter_of_the_fork_is_registered_with_a_checkpoint_that_saw_nothing() {
    const PEFT: &str = r#"{"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-4B", "r": 2, "lora_alpha": 32, "target_modules": ["q_proj"], "bias": "none"}"#;
    let homes = Homes::new(&[
        ("config.yaml", "agents: {ana: {lora_output: loras}}\n"),
        ("adapters/step_5/adapter_config.json", PEFT),
        ("adapters/old/adapter_config.json", PEFT),
        ("adapters/old/adapter_model.bin", "pickle"),
        ("adapters/step_6/adapter_config.json", PEFT),
        ("loras/adapter_config.json", PEFT),
    ]);
    let a = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    let weights = safetensors(&[(a, [2, 4])]);
    homes.put("adapters/step_5/adapter_model.safetensors", &weights);
    homes.put("adapters/step_6/adapter_model.safetensors", &weights);
    homes.put(
        "loras/adapter_model.safetensors",
        &safetensors(&[(a, [2, 8])]),
    );
    let report = homes.migrate(false).unwrap();
    let adapters = real(&homes.old()).join("adapters");
    for (name, said) in [("old", "is a pickle"), ("step_6", "the same content as")] {
        let name = adapters.join(name).display().to_string();
        let why = why(&report, &name);
        assert!(why.contains(said), "{name}: {why}");
    }
    let taken = names(&report, &MigrationOutcome::Taken);
    assert_eq!(taken.len(), 2, "{taken:?}");
    let there = crate::adapters::on_disk(&homes.new_home().trainer()).unwrap();
    let [ana, main] = &there[..] else {
        panic!("{there:?}")
    };
    assert!(ana.view.name.starts_with("ana-") && main.view.name.starts_with("main-"));
    let manifest = main.manifest.as_ref().unwrap();
    assert_eq!(manifest["shape"]["base"], "Qwen/Qwen3-4B");
    assert_eq!(
        (&manifest["agent"], &manifest["turns"]),
        (&json!("main"), &json!([]))
    );
    let checkpoint = homes
        .new_home()
        .trainer()
        .join("checkpoints")
        .join(&*main.view.name);
    assert_eq!(
        fs::read(checkpoint.join("adapter_model.safetensors")).unwrap(),
        weights
    );
    let moments = fs::read(checkpoint.join("optimizer.safetensors")).unwrap();
    let n_header = u64::from_le_bytes(moments[..8].try_into().unwrap());
    let header: serde_json::Value =
        serde_json::from_slice(&moments[8..][..usize::try_from(n_header).unwrap()]).unwrap();
    let second = &header[format!("exp_avg_sq.{a}")];
    assert_eq!(
        second,
        &json!({"dtype": "F32", "shape": [2, 4], "data_offsets": [32, 64]})
    );
    assert_eq!(moments.len() as u64, 8 + n_header + 64);
    let again = homes.migrate(false).unwrap();
    assert_eq!(
        names(&again, &MigrationOutcome::Taken),
        Vec::<String>::new()
    );
}

#[test]
fn links_of_skills_are_left_and_named() {
    const SKILL: &str = "---\nname: NAME\ndescription: What it does.\n---\n\nDo it.\n";
    let text = |name: &str| SKILL.replace("NAME", name);
    let homes = Homes::new(&[
        ("skills/one/SKILL.md", &text("one")),
        ("skills/one/scripts/own.sh", "own"),
        ("skills/two/notes.md", "its file is a link"),
        ("skills/main/three/SKILL.md", &text("three")),
    ]);
    let outside = homes.folder.path().join("outside");
    fs::create_dir_all(outside.join("four")).unwrap();
    for (file, text) in [
        ("key", "secret"),
        ("SKILL.md", &text("two")),
        ("four/SKILL.md", &text("four")),
    ] {
        fs::write(outside.join(file), text).unwrap();
    }
    let skills = homes.old().join("skills");
    for (at, to) in [
        ("one/key", "key"),
        ("one/scripts/deep", "key"),
        ("one/folder", "four"),
        ("one/gone", "nothing"),
        ("two/SKILL.md", "SKILL.md"),
        ("four", "four"),
        ("main/four", "four"),
    ] {
        std::os::unix::fs::symlink(outside.join(to), skills.join(at)).unwrap();
    }
    for dry_run in [true, false] {
        let report = homes.migrate(dry_run).unwrap();
        assert_eq!(
            names(&report, &MigrationOutcome::Taken),
            ["skill main/three", "skill one"]
        );
        for name in [
            "one/key",
            "one/scripts/deep",
            "one/folder",
            "one/gone",
            "two",
            "four",
            "main/four",
        ] {
            assert!(why(&report, name).contains("it is a link"), "{name}");
        }
    }
    let new = homes.new_home().skills();
    let taken: Vec<_> = Homes::tree(&new).into_keys().collect();
    assert_eq!(
        taken,
        ["main/three/SKILL.md", "one/SKILL.md", "one/scripts/own.sh"].map(|one| new.join(one))
    );
}
