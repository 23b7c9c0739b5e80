//! The commands that `cargo xtask docs` runs, in this order, in one scratch home. An entry for a new command is
//! [`runs`], or a line in a group of `elsewhere.rs`.

use super::entry::{DocEntry, prepares, runs, runs_as};

/// In a home of its own, because it changes settings.
const APART: (&str, &str) = ("metaclaw ", "METACLAW_HOME=$HOME/apart metaclaw ");

pub(super) const RUN: &[DocEntry] = &[
    // Nothing runs.
    runs_as(
        "METACLAW_HOME=/srv/other metaclaw status",
        &[],
        3,
        &["not running in /srv/other"],
    ),
    runs_as(
        "metaclaw start",
        &[(
            "metaclaw start",
            "timeout --preserve-status -s INT 5 metaclaw start",
        )],
        0,
        &["base URL", "leaves", "try"],
    ),
    runs_as(
        "metaclaw start --yes",
        &[(
            "metaclaw start",
            "timeout --preserve-status -s INT 5 metaclaw start",
        )],
        0,
        &["base URL"],
    ),
    runs_as(
        "metaclaw start --port 0",
        &[(
            "metaclaw start",
            "timeout --preserve-status -s INT 5 metaclaw start",
        )],
        0,
        &["base URL", "from the command line: proxy.port"],
    ),
    // A proxy runs, two agents have chatted, and three wishes were said, of which two wait for review.
    runs("metaclaw start -d", &["in the background"]),
    prepares(
        r#"curl -sfN $PROXY/v1/chat/completions -d '{"stream": true, "messages": [{"role": "user", "content": "In one sentence: why do we need sleep?"}]}' | grep -q 'Sleep repairs'"#,
    ),
    prepares(
        r#"say() { curl -sf $PROXY/v1/chat/completions -H "x-session-id: $1" -H 'x-agent-id: main' -d "{\"messages\": [{\"role\": \"user\", \"content\": \"$2\"}]}"; }
        say s1 'What is rain?' && say s2 'Please always answer in German.' &&
        say s3 'Please always answer in <b>[German](http://x)</b>.' && say s4 'Please always answer in <b>[French](http://y)</b>.'
        for i in $(seq 200); do [ "$(metaclaw wishes review | grep -c 'accept [23]')" = 2 ] && exit; sleep 0.1; done; metaclaw wishes review; exit 1"#,
    ),
    runs("metaclaw status", &["MetaClaw: running", "cache:   64 %"]),
    runs_as(
        "metaclaw status --json | jq .funnel",
        // Not every machine has jq.
        &[(
            "jq .funnel",
            "(command -v jq > /dev/null && jq .funnel || cat)",
        )],
        0,
        &["\"turns\": 5"],
    ),
    runs("metaclaw doctor", &["ok    settings", "ok    proxy"]),
    runs("metaclaw doctor --fix", &["ok    settings"]),
    runs("metaclaw config show", &["llm.model_id"]),
    runs(
        "metaclaw config llm.model_id gpt-x",
        &["llm.model_id is set"],
    ),
    runs_as(
        "metaclaw config max_context_tokens 50000",
        &[APART],
        0,
        &["is set"],
    ),
    runs_as(
        "metaclaw auth paste-key --provider openai",
        &[("metaclaw auth", "echo sk-pasted | metaclaw auth")],
        0,
        &["openai:default"],
    ),
    runs("metaclaw auth status", &["openai"]),
    runs_as(
        "metaclaw config scheduler.calendar.credentials_path ~/google-client.json",
        &[APART],
        0,
        &["is set"],
    ),
    runs_as(
        "metaclaw config scheduler.calendar.enabled true",
        &[APART],
        0,
        &["is set"],
    ),
    runs("metaclaw turns list --agent main -n 5", &["What is rain?"]),
    runs_as(
        "metaclaw turns list --before 12-3",
        &[("12-3", "2-0")],
        0,
        &["In one sentence"],
    ),
    runs_as(
        "metaclaw turns show 12-3",
        &[("12-3", "2-0")],
        0,
        &["What is rain?", "Sleep repairs"],
    ),
    runs_as(
        "metaclaw turns show 12-3 --train",
        &[("12-3", "2-0")],
        0,
        &["no step uses it"],
    ),
    runs("metaclaw turns export > turns.jsonl", &[]),
    runs("metaclaw turns export > metaclaw-turns.jsonl", &[]),
    runs_as(
        "metaclaw turns import rollouts.jsonl",
        &[(
            "metaclaw turns",
            "echo '{\"agent\": \"main\", \"session\": \"run-7\", \"prompt\": \"What is ice?\", \"response\": \"Cold water.\", \"score\": 1}' > rollouts.jsonl; metaclaw turns",
        )],
        0,
        &["1 turn"],
    ),
    runs("metaclaw skills list --agent main", &["git-workflow"]),
    runs("metaclaw skills show git-workflow", &["# git-workflow"]),
    runs("metaclaw lessons", &["ours"]),
    runs(
        "metaclaw lessons --agent main --json",
        &["\"agent\": \"main\""],
    ),
    runs(
        "metaclaw wishes list --agent main",
        &["Please always answer in German."],
    ),
    runs(
        "metaclaw wishes add --agent main \"Be brief.\"",
        &["in force from the next session on: Be brief."],
    ),
    runs_as(
        "metaclaw wishes review --accept 12",
        &[("12", "2")],
        0,
        &["German"],
    ),
    runs_as(
        "metaclaw wishes review --dismiss 13",
        &[("13", "3")],
        0,
        &["French"],
    ),
    runs_as(
        "metaclaw config memory.enabled true",
        &[APART],
        0,
        &["is set"],
    ),
    runs(
        "metaclaw memory add --agent main \"The shop runs on Postgres 16.\"",
        &["The shop runs on Postgres 16."],
    ),
    runs("metaclaw memory list", &["The shop runs on Postgres 16."]),
    runs("metaclaw memory search postgres", &["Postgres 16"]),
    runs_as(
        "metaclaw memory forget 1f0c9a7be2d45863",
        &[(
            "1f0c9a7be2d45863",
            "$(metaclaw memory list --json | grep -o '\"memory_id\": *\"[0-9a-f]*' | grep -o '[0-9a-f]*$')",
        )],
        0,
        &["forgotten: The shop runs on Postgres 16."],
    ),
    runs("metaclaw undo", &["undone: "]),
    runs_as(
        "metaclaw undo 12",
        &[("12", "1")],
        0,
        &["undone: Please always answer in German."],
    ),
    runs(
        "metaclaw report",
        &["## Tokens", "64 %, from the provider's cache"],
    ),
    runs(
        "metaclaw report --day 2026-11-22",
        &["# MetaClaw, 2026-11-22"],
    ),
    runs("metaclaw report --days 7 --json", &["\"prefix\""]),
    runs(
        "metaclaw compare --agent main",
        &["without", "with wishes and skills"],
    ),
    runs("metaclaw compare -n 1", &["spent:"]),
    runs(
        "metaclaw compare -- \"What is rain?\"",
        &["> What is rain?"],
    ),
    runs_as(
        "metaclaw logs -f",
        &[("metaclaw", "timeout 2 metaclaw")],
        124,
        &["metaclaw starts"],
    ),
    runs("metaclaw logs --level warn -n 20", &[]),
    runs("metaclaw scheduler status", &["window:"]),
    runs("metaclaw scheduler next-window", &["in "]),
    runs("metaclaw off --agent work", &["work"]),
    runs("metaclaw off", &["for everyone"]),
    runs("metaclaw on", &["on again"]),
    runs("metaclaw keys add phone --agent main", &["sk-"]),
    runs("metaclaw keys remove phone", &["in force now"]),
    runs("metaclaw adapters list", &["adapter"]),
    runs_as(
        "metaclaw forget SESSION",
        &[("SESSION", "s1")],
        0,
        &["forgotten: 1 turn"],
    ),
    runs("metaclaw forget --since \"2 h\"", &["forgotten: "]),
    runs_as(
        "python3 examples/reward/score.py",
        &[("python3", "timeout 2 python3"), ("score.py", "score.py 0")],
        124,
        &["/score"],
    ),
    runs("metaclaw wire", &["known: openclaw, claude-code, codex"]),
    runs("metaclaw wire codex --dry-run", &["+model_provider"]),
    runs("metaclaw wire codex", &["Codex asks MetaClaw at"]),
    runs("metaclaw unwire codex", &["Codex: "]),
    runs("metaclaw unwire", &["nothing is wired"]),
    runs(
        "metaclaw wire --show my-agent",
        &["X-Agent-Id: my-agent", "OPENAI_BASE_URL"],
    ),
    runs("metaclaw keys add codex --agent codex", &["sk-"]),
    runs_as(
        "metaclaw ui",
        &[(
            "metaclaw",
            "PATH=$(dirname $(command -v metaclaw)) metaclaw",
        )],
        0,
        &["/ui/login?code="],
    ),
    runs("metaclaw ui --no-open", &["/ui/login?code="]),
    runs("metaclaw ui --sign-out", &["signed out"]),
    runs(
        "tar -C ~/.metaclaw --exclude='./turns' --exclude='./instances/*/turns' --exclude='./programs' --exclude='run.json' --exclude='metaclaw.lock' -cf metaclaw-home.tar .",
        &[],
    ),
    runs("metaclaw stop", &["stopped"]),
    runs("cp -a ~/.metaclaw ~/metaclaw-backup", &[]),
    runs("metaclaw turns import turns.jsonl", &["turn"]),
    prepares("metaclaw start -d"),
    runs("metaclaw stop --timeout 5", &["stopped"]),
    runs_as(
        "metaclaw uninstall --keep-lessons",
        &[("--keep-lessons", "--keep-lessons --yes")],
        0,
        &["removes from"],
    ),
    runs_as(
        "metaclaw uninstall",
        &[("uninstall", "uninstall --yes")],
        0,
        &[],
    ),
    // What was saved comes back.
    runs_as(
        "mkdir -m 700 ~/.metaclaw",
        &[("mkdir", "rm -rf ~/.metaclaw && mkdir")],
        0,
        &[],
    ),
    runs("tar -C ~/.metaclaw -xf metaclaw-home.tar", &[]),
    runs("metaclaw turns import metaclaw-turns.jsonl", &["turn"]),
    // Settings of other homes.
    prepares("mkdir -p -m 700 apart setup"),
    runs_as(
        "metaclaw config set rl.tinker_api_key -",
        &[(
            "metaclaw ",
            "echo tml-k | METACLAW_HOME=$HOME/apart metaclaw ",
        )],
        0,
        &["is set"],
    ),
    runs_as(
        "metaclaw config rl.backend tinker",
        &[APART],
        0,
        &["is set"],
    ),
    runs_as(
        "metaclaw config rl.model Qwen/Qwen3-8B",
        &[APART],
        0,
        &["is set"],
    ),
    runs_as("metaclaw config mode auto", &[APART], 0, &["is set"]),
    runs_as("metaclaw config judge.kind base", &[APART], 0, &["is set"]),
    runs_as(
        "metaclaw setup --provider openai --model gpt-4o --api-key-env OPENAI_API_KEY",
        &[
            ("metaclaw", "METACLAW_HOME=$HOME/setup metaclaw"),
            ("KEY", "KEY --no-check"),
        ],
        0,
        &["config.yaml"],
    ),
    runs_as(
        "pass show kimi | metaclaw setup --provider kimi --model kimi-k2.5 --api-key-stdin --port 30001 --mode skills_only",
        &[
            (
                "pass show kimi | ",
                "echo sk-kimi | METACLAW_HOME=$HOME/setup ",
            ),
            ("skills_only", "skills_only --no-check"),
        ],
        0,
        &["config.yaml"],
    ),
    runs(
        "mkdir -p ~/.local/share/bash-completion/completions && metaclaw completions bash > ~/.local/share/bash-completion/completions/metaclaw",
        &[],
    ),
    runs(
        "mkdir -p ~/.zfunc && metaclaw completions zsh > ~/.zfunc/_metaclaw",
        &[],
    ),
    runs(
        "mkdir -p ~/.config/fish/completions && metaclaw completions fish > ~/.config/fish/completions/metaclaw.fish",
        &[],
    ),
];
