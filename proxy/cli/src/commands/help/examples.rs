//! What may be typed.

/// Each command with examples: what to type, and what it does.
pub(super) const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "start",
        &[
            (
                "metaclaw start",
                "in this terminal, until Ctrl-C; asks once where nothing is configured",
            ),
            (
                "metaclaw start --yes",
                "relays OpenClaw's model, and points OpenClaw at the proxy, unasked",
            ),
            (
                "metaclaw start -d",
                "in the background; `metaclaw logs -f` looks on",
            ),
            (
                "metaclaw start --port 0",
                "on any free port; the banner says which",
            ),
        ],
    ),
    (
        "stop",
        &[(
            "metaclaw stop --timeout 5",
            "replies under way have five seconds",
        )],
    ),
    (
        "status",
        &[
            ("metaclaw status", "for a person"),
            ("metaclaw status --json | jq .funnel", "for a program"),
            (
                "METACLAW_HOME=/srv/other metaclaw status",
                "of another home",
            ),
        ],
    ),
    (
        "wire",
        &[
            (
                "metaclaw wire",
                "the agents of this machine, and what each asks",
            ),
            (
                "metaclaw wire codex --dry-run",
                "what would change in its files, as a diff without keys",
            ),
            (
                "metaclaw wire codex",
                "Codex asks the proxy whenever the proxy runs",
            ),
            (
                "metaclaw wire --show my-agent",
                "what to set in any other agent, by hand",
            ),
        ],
    ),
    (
        "unwire",
        &[
            (
                "metaclaw unwire codex",
                "its files are as they were, and stay so",
            ),
            ("metaclaw unwire", "all agents that were wired"),
        ],
    ),
    (
        "doctor",
        &[
            ("metaclaw doctor", "exit code 1 where something is wrong"),
            (
                "metaclaw doctor --fix",
                "mends modes of files, puts back turns that were set aside, and what a crash left in OpenClaw's file",
            ),
        ],
    ),
    (
        "service",
        &[
            (
                "metaclaw service install",
                "writes the unit and switches it on",
            ),
            ("metaclaw service remove", "takes it away again"),
        ],
    ),
    (
        "setup",
        &[
            ("metaclaw setup", "asks, tries each answer, writes it"),
            (
                "metaclaw setup --provider openai --model gpt-4o --api-key-env OPENAI_API_KEY",
                "asks nothing",
            ),
        ],
    ),
    (
        "migrate",
        &[
            (
                "metaclaw migrate ~/.metaclaw-python --dry-run",
                "says what would be taken, what not, and why",
            ),
            (
                "metaclaw migrate ~/.metaclaw-python --records ~/agent/records",
                "takes it, and the records that the old program wrote in ~/agent",
            ),
        ],
    ),
    (
        "off",
        &[
            (
                "metaclaw off",
                "from the next request on, until `metaclaw on`",
            ),
            ("metaclaw off --agent work", "for one agent"),
        ],
    ),
    ("on", &[("metaclaw on", "learns again")]),
    (
        "auth",
        &[
            (
                "metaclaw auth paste-key --provider openai",
                "asks for the key, and does not show it",
            ),
            (
                "metaclaw auth login --provider openrouter",
                "sign in in a browser",
            ),
            ("metaclaw auth status", "whose keys are kept"),
        ],
    ),
    (
        "scheduler",
        &[
            (
                "metaclaw scheduler status",
                "whether learning that costs something may run now, and why not",
            ),
            ("metaclaw scheduler next-window", "when it may next"),
        ],
    ),
    (
        "uninstall",
        &[
            ("metaclaw uninstall", "shows what goes, and asks"),
            (
                "metaclaw uninstall --keep-lessons",
                "leaves the wishes and skills",
            ),
        ],
    ),
    (
        "config",
        &[
            (
                "metaclaw config show",
                "every key, its value, and where that was set",
            ),
            (
                "metaclaw config llm.model_id gpt-x",
                "changes one in the file; comments stay",
            ),
        ],
    ),
    (
        "turns",
        &[
            (
                "metaclaw turns list --agent main -n 5",
                "the last five of OpenClaw's agent",
            ),
            (
                "metaclaw turns list --before 12-3",
                "older ones: the page behind 12-3",
            ),
            (
                "metaclaw turns show 12-3",
                "what was asked, answered and added",
            ),
            (
                "metaclaw turns show 12-3 --train",
                "what a training step would use of it, token by token",
            ),
            (
                "metaclaw turns import rollouts.jsonl",
                "turns that were had elsewhere, with their scores",
            ),
            (
                "metaclaw turns export > turns.jsonl",
                "all, a JSON object a line",
            ),
        ],
    ),
    (
        "skills",
        &[
            (
                "metaclaw skills list --agent main",
                "what this agent may be given",
            ),
            ("metaclaw skills show git-workflow", "one, whole"),
        ],
    ),
    (
        "lessons",
        &[
            (
                "metaclaw lessons",
                "ours beside the agent's own, and what of ours is held back for it",
            ),
            ("metaclaw lessons --agent main --json", "for a program"),
        ],
    ),
    (
        "wishes",
        &[
            (
                "metaclaw wishes list --agent main",
                "those in force, with their numbers",
            ),
            (
                "metaclaw wishes add --agent main \"Be brief.\"",
                "from the next session on",
            ),
            (
                "metaclaw wishes review --accept 12",
                "lets one stand that waits for you",
            ),
            (
                "metaclaw wishes review --dismiss 13",
                "it is no wish, and is not proposed again",
            ),
        ],
    ),
    (
        "memory",
        &[
            (
                "metaclaw memory list",
                "those of all agents, and what waits for your review",
            ),
            (
                "metaclaw memory search postgres",
                "those that share words with a text",
            ),
            (
                "metaclaw memory add --agent main \"The shop runs on Postgres 16.\"",
                "from the next session on, with memory.enabled",
            ),
            (
                "metaclaw memory forget 1f0c9a7be2d45863",
                "deletes one, and those that it had replaced",
            ),
        ],
    ),
    (
        "undo",
        &[
            (
                "metaclaw undo",
                "takes the newest lesson back, a wish or a learned skill",
            ),
            ("metaclaw undo 12", "takes lesson 12 back"),
        ],
    ),
    (
        "forget",
        &[
            (
                "metaclaw forget --since \"2 h\"",
                "what was said in the last two hours",
            ),
            (
                "metaclaw forget SESSION",
                "one session, as `turns list` names it",
            ),
        ],
    ),
    (
        "ui",
        &[
            ("metaclaw ui", "opens the page in your browser, signed in"),
            (
                "metaclaw ui --no-open",
                "prints the link, as for another machine",
            ),
            ("metaclaw ui --sign-out", "signs every browser out first"),
        ],
    ),
    (
        "report",
        &[
            ("metaclaw report", "today so far"),
            ("metaclaw report --day 2026-11-22", "one day"),
            ("metaclaw report --days 7 --json", "a week, for a program"),
        ],
    ),
    (
        "learn",
        &[
            (
                "metaclaw learn",
                "a picture, drawn anew each second; q leaves",
            ),
            (
                "metaclaw learn | tee learned.txt",
                "a line for each thing that happens",
            ),
        ],
    ),
    (
        "compare",
        &[
            (
                "metaclaw compare --agent main",
                "your last five questions, twice each",
            ),
            ("metaclaw compare -n 1", "cheaper: one"),
            (
                "metaclaw compare -- \"What is rain?\"",
                "a question of your own",
            ),
        ],
    ),
    (
        "eval",
        &[
            (
                "metaclaw eval --replies 3",
                "the adapter that serves beside the base model, with three replies of each kind",
            ),
            (
                "metaclaw eval main-3fa9c0d1-000002 main-3fa9c0d1-000004 --json",
                "two adapters, for a program",
            ),
            ("metaclaw eval --turns 12-0,15-0", "on these turns of yours"),
        ],
    ),
    (
        "metrics",
        &[
            (
                "WANDB_MODE=offline metaclaw metrics wandb --python venv/bin/python",
                "a run for each lineage, below ./wandb; `wandb sync` sends it later",
            ),
            (
                "metaclaw metrics wandb --project terse",
                "sends it, with the key of WANDB_API_KEY",
            ),
        ],
    ),
    (
        "train",
        &[
            (
                "metaclaw train chats.jsonl --dry-run",
                "rows, tokens, steps and cost, and nothing is trained",
            ),
            (
                "metaclaw train chats.jsonl --agent main --epochs 2 --held-out 0.2",
                "the epoch with the lowest held-out loss passes the gate, and serves",
            ),
            (
                "metaclaw train pairs.jsonl --beta 0.2 --no-serve",
                "DPO on pairs of replies; the adapter waits for `metaclaw adapters use`",
            ),
        ],
    ),
    (
        "replay",
        &[
            (
                "metaclaw replay --set rl.learning_rate=1e-4 --set rl.reuse=1 --seed 7 --name slow",
                "what these settings would have made of the log",
            ),
            (
                "metaclaw replay --since \"7 d\" --steps 4 --json",
                "of a week, four steps at most, for a program",
            ),
        ],
    ),
    (
        "rollout",
        &[
            (
                "metaclaw rollout run tasks.yaml --dry-run",
                "what would be run, with the environment of the first program",
            ),
            (
                "metaclaw rollout run tasks.yaml",
                "runs and trains; after Ctrl-C the same line goes on",
            ),
            (
                "metaclaw rollout run tasks.yaml --eval --tries 4",
                "pass@1 to pass@4 of what serves; nothing is trained",
            ),
            (
                "metaclaw rollout serve tasks.yaml --listen 127.0.0.1:30100",
                "runs the programs for a run on another machine",
            ),
        ],
    ),
    (
        "logs",
        &[
            ("metaclaw logs -f", "goes on with what comes, until Ctrl-C"),
            (
                "metaclaw logs --level warn -n 20",
                "the last twenty warnings and errors",
            ),
        ],
    ),
    (
        "keys",
        &[
            (
                "metaclaw keys add phone --agent main",
                "a key for one agent, shown once",
            ),
            ("metaclaw keys remove phone", "closes at once"),
        ],
    ),
    (
        "adapters",
        &[
            (
                "metaclaw adapters list",
                "which there are, and who is served with each",
            ),
            (
                "metaclaw adapters show main-0badcafe-000003",
                "what it was made of, and with which settings",
            ),
            (
                "metaclaw adapters rollback main",
                "the one before it serves again",
            ),
        ],
    ),
    (
        "train-step",
        &[
            (
                "metaclaw train-step --agent main",
                "now, whether or not you are away",
            ),
            (
                "metaclaw train-step --dry-run",
                "what it would be made of; nothing is touched",
            ),
        ],
    ),
    (
        "trainer",
        &[
            (
                "metaclaw trainer install --from metaclaw-trainer-0.1.0-x86_64-linux.tar.gz",
                "unpacks it into the home, checks it, and has `metaclaw start` use it",
            ),
            (
                "metaclaw trainer install --cuda",
                "gives what is installed a libtorch for NVIDIA's GPUs",
            ),
            (
                "metaclaw trainer status",
                "which one `metaclaw start` would use, and whether it runs here",
            ),
        ],
    ),
    (
        "completions",
        &[
            (
                "mkdir -p ~/.local/share/bash-completion/completions && metaclaw completions bash > ~/.local/share/bash-completion/completions/metaclaw",
                "for bash",
            ),
            (
                "mkdir -p ~/.zfunc && metaclaw completions zsh > ~/.zfunc/_metaclaw",
                "for zsh, with ~/.zfunc in fpath",
            ),
            (
                "mkdir -p ~/.config/fish/completions && metaclaw completions fish > ~/.config/fish/completions/metaclaw.fish",
                "for fish",
            ),
        ],
    ),
];
