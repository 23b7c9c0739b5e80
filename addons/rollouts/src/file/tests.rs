use super::{entries::FileEntries, *};
use metaclaw_test_kit::has;

fn read(text: &str) -> Result<RolloutFile, String> {
    let entries = FileEntries::parse(Path::new("/a/file.yaml"), text);
    let file = entries.and_then(|entries| entries.file(None));
    file.map_err(|error| error.to_string())
}

#[test]
fn a_short_file_has_the_defaults_that_the_page_tells() {
    let file = read("tasks: tasks.jsonl\ncommand: [python3, agent.py, 3]\n").unwrap();
    assert_eq!(file.tasks.as_deref(), Some(Path::new("/a/tasks.jsonl")));
    let words = ["python3", "agent.py", "3"].map(str::to_owned);
    assert_eq!(file.program, Some(EpisodeProgram::Command(words.to_vec())));
    assert_eq!(file.reward, RewardSource::ExitCode);
    let sizes = [
        u64::from(file.group_size),
        file.tasks_per_step as u64,
        file.at_once as u64,
        file.resample as u64,
    ];
    assert_eq!(sizes, [8, 4, 8, 3]);
    assert_eq!(file.timeout, Span::mins(5));
}

#[test]
fn a_track_writes_its_reward_itself() {
    let file = read("tasks: t\ntrack: terminal\n").unwrap();
    assert_eq!(file.program, Some(EpisodeProgram::Track(Track::Terminal)));
    assert_eq!(file.reward, RewardSource::File);
}

#[test]
fn rewards_are_read_in_each_of_their_forms() {
    let reward = |text: &str| read(&format!("command: [a]\nreward: {text}")).map(|it| it.reward);
    assert_eq!(reward("file"), Ok(RewardSource::File));
    assert_eq!(reward("judge"), Ok(RewardSource::Judge));
    let Ok(RewardSource::Function(function)) = reward("{url: 'http://f.example/r', timeout: 5 s}")
    else {
        panic!("no function");
    };
    assert_eq!(function.timeout, Span::secs(5));
    let judge = reward("{judge: {base_url: 'http://j.example/v1', model: m}}");
    assert!(matches!(judge, Ok(RewardSource::JudgeModel(it)) if it.model == "m"));
    let error = reward("{judge: {base_url: 'http://j.example/v1', modle: m}}").unwrap_err();
    has(&error, ["line 2", "modle"]);
}

#[test]
fn errors_name_line_key_value_and_what_is_allowed() {
    for (text, said) in [
        (
            "command: [a]\ngroupsize: 4\n",
            "/a/file.yaml, line 2: unknown key groupsize: did you mean group_size?",
        ),
        (
            "command: [a]\n\ngroup_size: 1\n",
            "/a/file.yaml, line 3: group_size: 1 is not allowed: a whole number from 2 to 256",
        ),
        (
            "command: python agent.py\n",
            "/a/file.yaml, line 1: command: \"python agent.py\" is not allowed: a list of words, as in `[python3, agent.py]`, or with `shell: true` a text",
        ),
        (
            "command: [a]\ntimeout: soon\n",
            "/a/file.yaml, line 2: timeout: \"soon\" is not allowed: a duration from 1 s to 23 h, as in `5 min`",
        ),
        // The proxy keeps a rollout open for a day at most, and its reward takes time after the program's end.
        (
            "command: [a]\ntimeout: 24 h\n",
            "/a/file.yaml, line 2: timeout: \"24 h\" is not allowed: a duration from 1 s to 23 h, as in `5 min`",
        ),
        (
            "tasks: a\n",
            "/a/file.yaml: there is nothing to run: set one of command, track, verifiers, environments",
        ),
        (
            "command: [a]\ntrack: swe\n",
            "/a/file.yaml: only one of command, track, verifiers may be set",
        ),
        (
            "environments: ['ftp://a']\n",
            "/a/file.yaml, line 1: environments: [\"ftp://a\"] is not allowed: a list of addresses of `metaclaw rollout serve`, as in `[http://10.0.0.7:30100]`",
        ),
        (
            "command: [a]\neval_every: 2\n",
            "/a/file.yaml: eval_every needs eval_tasks: a JSONL file of held-out tasks",
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), said);
    }
    let error = read("command: [a]\nxyzzy: 1\n").unwrap_err();
    assert!(error.contains("the keys are agent, tasks"), "{error}");
    let error = read("command: [a\n").unwrap_err();
    has(&error, ["is not YAML", "line"]);
}

#[test]
fn every_key_is_on_its_page() {
    let page = include_str!("../../../../docs/training/rollouts.md");
    for (key, _) in keys() {
        assert!(page.contains(&format!("| `{key}` |")), "{key}");
    }
}
