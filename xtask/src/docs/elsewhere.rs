//! The commands of the pages that tests run, and those that cannot be run here.

use super::entry::{DocEntry, excused, tested};

const DOCKER: &str = "it needs Docker";
const GPU: &str = "it needs a GPU of NVIDIA, and fetches 3 GB";
const ARCHIVES: &str =
    "it needs the release archives, which `cargo xtask dist` builds for half an hour";
const BARE_ROOTS: &str = "it needs the release archives; `cargo xtask bare-roots` installs them so";
const FIRST_WISH: &str = "the_first_wish_of_the_readme_is_obeyed_and_is_on_the_page";
const SKYRL: &str = "it installs SkyRL (6 GB); `cargo xtask bench tinker-peer` does this by hand";
const TINKER: &str =
    "it installs the package tinker; the_sdk_trains_saves_loads_and_samples makes the same calls";
const COOKBOOK: &str =
    "it installs the cookbook (5 GB); `cargo xtask bench cookbook` does this by hand";
const TRACKS: &str = "the_examples_of_tracks_are_shown_measured_and_trained_on";
const ROLLOUTS: &str = "tasks_are_measured_and_each_episode_is_in_the_log";
const OVER_HTTP: &str = "the_address_says_whose_turn_it_is_and_nothing_is_put_into_its_prompt";
const VERIFIERS: &str = "it installs the package verifiers (1 GB)";
const TRAINING: &str = "the_commands_of_training_do_what_the_pages_say";
const DATA_SET: &str =
    "a_data_set_lowers_the_held_out_loss_and_its_adapter_serves_if_the_gate_lets_it";
const INSTALLING: &str = "openclaw_installs_metaclaw_by_the_skill_and_removes_it";
const INSTALLING_HERE: &str = "claude_code_installs_metaclaw_by_the_skill_and_removes_it";
const FIREWORKS: &str = "it needs an account at Fireworks";
const WECHAT: &str = "it needs an account at WeChat";
const EXTENSION: &str = "the_extension_starts_metaclaw_names_sessions_and_restores_the_file";
const TWO_MACHINES: &str = "the_files_of_the_page_make_a_box_that_serves_and_learns";

pub(super) const ELSEWHERE: &[DocEntry] = &[
    // README's first screen. The test has a home as `cargo xtask start` makes it.
    tested("cargo xtask start", FIRST_WISH),
    tested("cargo xtask test", "ci_runs_the_test_that_the_readme_names"),
    tested(
        "cargo xtask test --all",
        "ci_runs_the_test_that_the_readme_names",
    ),
    tested(
        "curl 127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{\"model\": \"default\", \"max_tokens\": 99, \"messages\": [{\"role\": \"user\", \"content\": \"How do I make tea? From now on, please answer in one short sentence.\"}]}'",
        FIRST_WISH,
    ),
    tested(
        "curl 127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{\"model\": \"default\", \"max_tokens\": 99, \"messages\": [{\"role\": \"user\", \"content\": \"How do I make coffee?\"}]}'",
        FIRST_WISH,
    ),
    tested(
        "METACLAW_HOME=~/.cache/metaclaw/demo-home metaclaw ui",
        FIRST_WISH,
    ),
    // Run by tests.
    tested(
        "npm install --global --prefix ~/.local ./metaclaw-VERSION.tgz",
        INSTALLING,
    ),
    tested("metaclaw --version", INSTALLING),
    tested("metaclaw start -d --yes", INSTALLING),
    tested("metaclaw uninstall --yes", INSTALLING),
    tested(
        "npm uninstall --global --prefix ~/.local metaclaw",
        INSTALLING,
    ),
    tested("metaclaw config llm.provider anthropic", INSTALLING_HERE),
    tested("metaclaw config llm.api_base URL", INSTALLING_HERE),
    tested("metaclaw wire claude-code --dry-run", INSTALLING_HERE),
    tested("metaclaw wire claude-code", INSTALLING_HERE),
    tested(
        "cp -r packages/skill/install-metaclaw ~/.openclaw/skills/",
        INSTALLING,
    ),
    tested(
        "cp -r packages/skill/install-metaclaw ~/.claude/skills/",
        INSTALLING_HERE,
    ),
    tested(
        "metaclaw turns export --chats --agent main > chats.jsonl",
        "good_turns_are_exported_as_chats",
    ),
    excused(
        "pipx install ./metaclaw-VERSION-py3-none-manylinux_2_28_x86_64.whl",
        BARE_ROOTS,
    ),
    excused("pipx uninstall metaclaw", BARE_ROOTS),
    excused("npx -y @tencent-weixin/openclaw-weixin-cli install", WECHAT),
    excused("openclaw channels login --channel openclaw-weixin", WECHAT),
    excused(
        "openclaw config set session.dmScope per-account-channel-peer",
        WECHAT,
    ),
    excused("mkdir fireworks-adapter", FIREWORKS),
    excused(
        "cp ~/.metaclaw/trainer/adapters/NAME/adapter_config.json ~/.metaclaw/trainer/adapters/NAME/adapter_model.safetensors fireworks-adapter/",
        FIREWORKS,
    ),
    excused(
        "firectl model create my-agent fireworks-adapter/ --base-model accounts/fireworks/models/BASE",
        FIREWORKS,
    ),
    excused(
        "firectl deployment create accounts/ACCOUNT/models/my-agent",
        FIREWORKS,
    ),
    excused(
        "metaclaw config llm.api_base https://api.fireworks.ai/inference/v1",
        FIREWORKS,
    ),
    excused(
        "metaclaw config llm.model_id accounts/ACCOUNT/models/my-agent",
        FIREWORKS,
    ),
    excused("metaclaw config llm.api_key -", FIREWORKS),
    excused("firectl dataset create my-chats chats.jsonl", FIREWORKS),
    excused(
        "firectl supervised-fine-tuning-job create --base-model accounts/fireworks/models/BASE --dataset my-chats --output-model my-agent",
        FIREWORKS,
    ),
    tested(
        "openclaw plugins install npm-pack:./metaclaw-openclaw-VERSION.tgz --force --accept-capabilities",
        EXTENSION,
    ),
    tested(
        "openclaw plugins uninstall metaclaw-openclaw --force",
        EXTENSION,
    ),
    tested("metaclaw train-step --agent main", TRAINING),
    tested("metaclaw train-step --dry-run", TRAINING),
    tested("metaclaw eval --replies 3", TRAINING),
    tested(
        "metaclaw eval main-3fa9c0d1-000002 main-3fa9c0d1-000004 --json",
        TRAINING,
    ),
    tested("metaclaw eval --turns 12-0,15-0", TRAINING),
    tested(
        "metaclaw replay --set rl.learning_rate=1e-4 --set rl.reuse=1 --seed 7 --name slow",
        TRAINING,
    ),
    tested("metaclaw replay --since \"7 d\" --steps 4 --json", TRAINING),
    tested("metaclaw train chats.jsonl --dry-run", DATA_SET),
    tested(
        "metaclaw train chats.jsonl --agent main --epochs 2 --held-out 0.2",
        DATA_SET,
    ),
    tested("metaclaw train pairs.jsonl --beta 0.2 --no-serve", DATA_SET),
    tested(
        "metaclaw setup",
        "a_person_is_asked_again_where_an_answer_fails",
    ),
    tested(
        "metaclaw migrate ~/.metaclaw-python --dry-run",
        "a_home_of_0_4_1_works_after_its_migration",
    ),
    tested(
        "metaclaw migrate ~/.metaclaw-python",
        "a_home_of_0_4_1_works_after_its_migration",
    ),
    tested(
        "metaclaw migrate ~/.metaclaw-python --records ~/agent/records",
        "records_become_turns_with_their_scores_and_times",
    ),
    tested("metaclaw service install", "a_service_unit_comes_and_goes"),
    tested("metaclaw service remove", "a_service_unit_comes_and_goes"),
    tested(
        "metaclaw adapters show main-0badcafe-000003",
        "an_adapter_is_shown_and_taken_back_to_what_it_was_trained_from",
    ),
    tested(
        "metaclaw adapters rollback main",
        "an_adapter_is_shown_and_taken_back_to_what_it_was_trained_from",
    ),
    tested(
        "metaclaw trainer install --from metaclaw-trainer-0.1.0-x86_64-linux.tar.gz",
        "what_was_installed_is_started_and_can_be_taken_away",
    ),
    tested(
        "metaclaw trainer install --from metaclaw-trainer-VERSION-x86_64-linux.tar.gz",
        "what_was_installed_is_started_and_can_be_taken_away",
    ),
    tested(
        "metaclaw trainer status",
        "what_was_installed_is_started_and_can_be_taken_away",
    ),
    tested(
        "metaclaw trainer uninstall",
        "what_was_installed_is_started_and_can_be_taken_away",
    ),
    tested(
        "metaclaw metrics wandb",
        "each_lineage_becomes_a_run_with_its_numbers",
    ),
    tested(
        "WANDB_MODE=offline metaclaw metrics wandb --python venv/bin/python",
        "each_lineage_becomes_a_run_with_its_numbers",
    ),
    tested(
        "metaclaw metrics wandb --project terse",
        "wandb_is_asked_only_with_steps_a_key_and_a_client",
    ),
    tested(
        "npm install --global ./metaclaw-VERSION.tgz",
        "npm_installs_the_program",
    ),
    tested(
        "cargo nextest run -p metaclaw-tests --run-ignored all prompts",
        "every_prompt_of_the_installed_packages_is_classified",
    ),
    tested("MODEL=/srv/models/Qwen3-4B", TWO_MACHINES),
    tested("METACLAW_API_KEY=...", TWO_MACHINES),
    tested("chmod 600 scripts/training_server.env", TWO_MACHINES),
    tested("scripts/start_training_server.sh", TWO_MACHINES),
    tested("export METACLAW__RL__REMOTE_API_KEY=...", TWO_MACHINES),
    tested(
        "metaclaw-trainer --model Qwen3-4B --inference-backend vllm --inference-python /opt/vllm/bin/python",
        "steps_are_made_of_what_vllm_sampled_and_the_next_replies_are_the_new_adapters",
    ),
    tested(
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True python -m vllm.entrypoints.openai.api_server --model Qwen3-4B --port 8001 --enable-lora --max-lora-rank 32 --max-loras 4 --enable-prompt-tokens-details",
        "a_vllm_that_runs_already_serves_each_adapter_as_it_is",
    ),
    // These cannot be run here.
    excused(
        "cargo xtask dist",
        "it builds for half an hour; `cargo xtask bare-roots` installs what it builds",
    ),
    excused(
        "METACLAW_WRITE_EXAMPLE=1 cargo nextest run -p metaclaw -p metaclaw-wiring example",
        "it writes files of the checkout, which the same tests compare",
    ),
    excused(
        "METACLAW_WRITE_EXAMPLE=1 cargo nextest run -p metaclaw-trainer documentation",
        "it writes files of the checkout, which the same tests compare",
    ),
    excused(
        "metaclaw auth login --provider openrouter",
        "it needs an account",
    ),
    excused(
        "metaclaw auth login --provider google-calendar",
        "it needs a person with an account at Google; its steps are tested with recorded replies",
    ),
    excused("cd examples/docker", DOCKER),
    excused(
        "cp proxy.env.example proxy.env && chmod 600 proxy.env",
        DOCKER,
    ),
    excused("docker compose up --detach", DOCKER),
    excused("docker compose exec proxy metaclaw status", DOCKER),
    excused(
        "cp trainer.env.example trainer.env && chmod 600 trainer.env",
        DOCKER,
    ),
    excused(
        "docker compose -f compose.yaml -f trainer.yaml up --detach",
        DOCKER,
    ),
    excused(
        "metaclaw-trainer --training-devices 0 --inference-devices 1",
        GPU,
    ),
    excused("metaclaw trainer install --cuda", GPU),
    excused("cargo xtask setup --cuda", GPU),
    excused(
        "cargo xtask gpu --device 0 --model FOLDER --python PATH",
        GPU,
    ),
    excused(
        "pipx install --force metaclaw-VERSION-py3-none-manylinux_2_28_x86_64.whl",
        BARE_ROOTS,
    ),
    excused(
        "install metaclaw-VERSION-x86_64-linux/metaclaw ~/.local/bin/metaclaw",
        ARCHIVES,
    ),
    excused(
        "cargo xtask bench learn -- --only tinker --test-questions 40 --seeds 1",
        "it trains for 15 minutes",
    ),
    excused(
        "docker compose exec -T proxy metaclaw turns export > metaclaw-turns.jsonl",
        DOCKER,
    ),
    excused("tar xzf metaclaw-VERSION-x86_64-linux.tar.gz", ARCHIVES),
    excused(
        "install -D metaclaw-VERSION-x86_64-linux/metaclaw ~/.local/bin/metaclaw",
        ARCHIVES,
    ),
    excused(
        "tar xzf metaclaw-trainer-VERSION-x86_64-linux.tar.gz",
        ARCHIVES,
    ),
    excused("cd metaclaw-trainer-VERSION-x86_64-linux", ARCHIVES),
    excused(
        "ssh -N -o ServerAliveInterval=30 -o ExitOnForwardFailure=yes -L 8000:127.0.0.1:8000 box.home",
        "it needs a second machine",
    ),
    excused(
        "export SSL_CERT_FILE=/path/to/ca.pem",
        "it needs an authority's certificate",
    ),
    excused(
        "METACLAW_API_KEY=KEY metaclaw-trainer --model PATH --port 8000",
        TINKER,
    ),
    excused("export TINKER_BASE_URL=http://127.0.0.1:8000", TINKER),
    excused("export TINKER_API_KEY=tml-KEY", TINKER),
    excused("pip install tinker jinja2", TINKER),
    excused("python examples/tinker-sdk/train.py", TINKER),
    excused(
        "metaclaw-trainer --model models/Qwen/Qwen3-4B-Instruct-2507",
        COOKBOOK,
    ),
    excused(
        "python -m tinker_cookbook.recipes.sl_loop base_url=http://127.0.0.1:8000 model_name=Qwen/Qwen3-4B-Instruct-2507 batch_size=16 max_steps=20 log_path=/tmp/sl",
        COOKBOOK,
    ),
    excused(
        "python -m tinker_cookbook.recipes.rl_loop base_url=http://127.0.0.1:8000 model_name=Qwen/Qwen3-4B-Instruct-2507 loss_fn=importance_sampling batch_size=8 group_size=8 log_path=/tmp/rl",
        COOKBOOK,
    ),
    excused(
        "metaclaw-trainer [--model PATH|NAME] [--host 127.0.0.1] [--port 8000] [--api-key KEY] [--checkpoint-dir DIR]",
        "it lists the arguments",
    ),
    excused(
        "git clone https://github.com/NovaSky-AI/SkyRL && cd SkyRL",
        SKYRL,
    ),
    excused(
        "uv venv --python 3.12 && uv sync --extra tinker --extra fsdp",
        SKYRL,
    ),
    excused(
        "uv run --extra tinker --extra fsdp -m skyrl.tinker.api --base-model Qwen/Qwen3-4B-Instruct-2507 --backend fsdp",
        SKYRL,
    ),
    excused(
        "pip install \"skyrl[jax,tinker]==0.3.0\" \"tinker==0.24.1\" torch uv",
        SKYRL,
    ),
    excused(
        "UV_PROJECT_ENVIRONMENT=VENV JAX_PLATFORMS=cpu uv run --no-sync -m skyrl.tinker.api --base-model PATH --backend jax --backend-config '{\"max_lora_adapters\": 5, \"max_lora_rank\": 16}'",
        SKYRL,
    ),
    // Tracks.
    tested(
        "python3 examples/rollouts/gui/server.py --port 8931",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/terminal/run.yaml --dry-run",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/terminal/run.yaml --eval --tries 4",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/terminal/run.yaml",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/toolcall/run.yaml --dry-run",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/toolcall/run.yaml --eval --tries 4",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/toolcall/run.yaml",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/swe/run.yaml --dry-run",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/swe/run.yaml --eval --tries 4",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/swe/run.yaml",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/gui/run.yaml --dry-run",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/gui/run.yaml --eval --tries 4",
        TRACKS,
    ),
    tested(
        "metaclaw rollout run examples/rollouts/gui/run.yaml",
        TRACKS,
    ),
    // Tasks.
    tested("metaclaw rollout run tasks.yaml --dry-run", ROLLOUTS),
    tested(
        "metaclaw rollout run tasks.yaml",
        "groups_are_run_and_trained_on_and_a_run_that_is_complete_runs_nothing_again",
    ),
    tested("metaclaw rollout run tasks.yaml --eval --tries 4", ROLLOUTS),
    tested(
        "metaclaw rollout serve tasks.yaml --listen 127.0.0.1:30100",
        "the_programs_run_in_another_process_that_serves_them",
    ),
    tested(
        "METACLAW_ENVIRONMENT_KEY=a-long-secret metaclaw rollout serve tasks.yaml --listen 10.0.0.7:30100",
        "the_programs_run_in_another_process_that_serves_them",
    ),
    excused(
        "python3 -m venv venv && venv/bin/pip install 'verifiers<0.4' ./my-environment",
        VERIFIERS,
    ),
    excused(
        "metaclaw rollout run tasks.yaml --verifiers my-environment",
        VERIFIERS,
    ),
    // Rollouts over HTTP.
    tested(
        "curl http://127.0.0.1:30000/v1/rollouts -d '{\"task\": \"count-lines\", \"group\": \"count-lines/1\", \"group_size\": 8, \"attempt\": 0}'",
        OVER_HTTP,
    ),
    excused(
        "OPENAI_BASE_URL=http://127.0.0.1:30000/rollout/ID/v1  OPENAI_API_KEY=sk-rollout-..",
        "it is no command: two variables of a program",
    ),
    excused(
        "ANTHROPIC_BASE_URL=http://127.0.0.1:30000/rollout/ID  ANTHROPIC_API_KEY=sk-rollout-..",
        "it is no command: two variables of a program",
    ),
    tested(
        "curl http://127.0.0.1:30000/v1/feedback -d '{\"rollout\": \"ID\", \"score\": 1, \"steps\": [0, 0.5, 1]}'",
        "a_rollout_is_scored_or_it_failed",
    ),
    tested(
        "curl http://127.0.0.1:30000/v1/feedback -d '{\"rollout\": \"ID\", \"failed\": \"the sandbox did not start\"}'",
        "a_rollout_is_scored_or_it_failed",
    ),
    tested(
        "python3 examples/rollouts/advantages/grpo.py 8901",
        "the_function_in_the_examples_makes_the_same_step_as_the_built_in",
    ),
    tested(
        "metaclaw config rl.advantages http://127.0.0.1:8901/",
        "the_function_in_the_examples_makes_the_same_step_as_the_built_in",
    ),
];
