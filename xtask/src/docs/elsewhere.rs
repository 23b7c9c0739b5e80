//! The commands of the pages that tests run, and those that cannot be run here.

use super::entry::{CommandGroup, excused, tested};

pub(super) const ELSEWHERE: &[CommandGroup] = &[
    tested(
        "the_first_wish_of_the_readme_is_obeyed_and_is_on_the_page",
        &[
            "cargo xtask start",
            "curl 127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{\"model\": \"default\", \"max_tokens\": 99, \"messages\": [{\"role\": \"user\", \"content\": \"How do I make tea? From now on, please answer in one short sentence.\"}]}'",
            "curl 127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{\"model\": \"default\", \"max_tokens\": 99, \"messages\": [{\"role\": \"user\", \"content\": \"How do I make coffee?\"}]}'",
            "METACLAW_HOME=~/.cache/metaclaw/demo-home metaclaw ui",
        ],
    ),
    tested(
        "ci_runs_the_test_that_the_readme_names",
        &["cargo xtask test", "cargo xtask test --all"],
    ),
    tested(
        "openclaw_installs_metaclaw_by_the_skill_and_removes_it",
        &[
            "npm install --global --prefix ~/.local ./metaclaw-VERSION.tgz",
            "metaclaw --version",
            "metaclaw start -d --yes",
            "metaclaw uninstall --yes",
            "npm uninstall --global --prefix ~/.local metaclaw",
            "cp -r packages/skill/install-metaclaw ~/.openclaw/skills/",
        ],
    ),
    tested(
        "claude_code_installs_metaclaw_by_the_skill_and_removes_it",
        &[
            "metaclaw config llm.provider anthropic",
            "metaclaw config llm.api_base URL",
            "metaclaw wire claude-code --dry-run",
            "metaclaw wire claude-code",
            "cp -r packages/skill/install-metaclaw ~/.claude/skills/",
        ],
    ),
    tested(
        "good_turns_are_exported_as_chats",
        &["metaclaw turns export --chats --agent main > chats.jsonl"],
    ),
    tested(
        "the_extension_starts_metaclaw_names_sessions_and_restores_the_file",
        &[
            "openclaw plugins install npm-pack:./metaclaw-openclaw-VERSION.tgz --force --accept-capabilities",
            "openclaw plugins uninstall metaclaw-openclaw --force",
        ],
    ),
    tested(
        "the_commands_of_training_do_what_the_pages_say",
        &[
            "metaclaw train-step --agent main",
            "metaclaw train-step --dry-run",
            "metaclaw eval --replies 3",
            "metaclaw eval main-3fa9c0d1-000002 main-3fa9c0d1-000004 --json",
            "metaclaw eval --turns 12-0,15-0",
            "metaclaw replay --set rl.learning_rate=1e-4 --set rl.reuse=1 --seed 7 --name slow",
            "metaclaw replay --since \"7 d\" --steps 4 --json",
        ],
    ),
    tested(
        "a_data_set_lowers_the_held_out_loss_and_its_adapter_serves_if_the_gate_lets_it",
        &[
            "metaclaw train chats.jsonl --dry-run",
            "metaclaw train chats.jsonl --agent main --epochs 2 --held-out 0.2",
            "metaclaw train pairs.jsonl --beta 0.2 --no-serve",
        ],
    ),
    tested(
        "a_person_is_asked_again_where_an_answer_fails",
        &["metaclaw setup"],
    ),
    tested(
        "a_home_of_0_4_1_works_after_its_migration",
        &[
            "metaclaw migrate ~/.metaclaw-python --dry-run",
            "metaclaw migrate ~/.metaclaw-python",
        ],
    ),
    tested(
        "a_service_unit_comes_and_goes",
        &["metaclaw service install", "metaclaw service remove"],
    ),
    tested(
        "an_adapter_is_shown_and_taken_back_to_what_it_was_trained_from",
        &[
            "metaclaw adapters show main-0badcafe-000003",
            "metaclaw adapters rollback main",
        ],
    ),
    tested(
        "what_was_installed_is_started_and_can_be_taken_away",
        &[
            "metaclaw trainer install --from metaclaw-trainer-0.1.0-x86_64-linux.tar.gz",
            "metaclaw trainer install --from metaclaw-trainer-VERSION-x86_64-linux.tar.gz",
            "metaclaw trainer status",
            "metaclaw trainer uninstall",
        ],
    ),
    tested(
        "each_lineage_becomes_a_run_with_its_numbers",
        &[
            "metaclaw metrics wandb",
            "WANDB_MODE=offline metaclaw metrics wandb --python venv/bin/python",
        ],
    ),
    tested(
        "wandb_is_asked_only_with_steps_a_key_and_a_client",
        &["metaclaw metrics wandb --project terse"],
    ),
    tested(
        "npm_installs_the_program",
        &["npm install --global ./metaclaw-VERSION.tgz"],
    ),
    tested(
        "every_prompt_of_the_installed_packages_is_classified",
        &["cargo nextest run -p metaclaw-tests --run-ignored all prompts"],
    ),
    tested(
        "the_files_of_the_page_make_a_box_that_serves_and_learns",
        &[
            "MODEL=/srv/models/Qwen3-4B",
            "METACLAW_API_KEY=...",
            "chmod 600 scripts/training_server.env",
            "scripts/start_training_server.sh",
            "export METACLAW__RL__REMOTE_API_KEY=...",
        ],
    ),
    tested(
        "steps_are_made_of_what_vllm_sampled_and_the_next_replies_are_the_new_adapters",
        &[
            "metaclaw-trainer --model Qwen3-4B --inference-backend vllm --inference-python /opt/vllm/bin/python",
        ],
    ),
    tested(
        "a_vllm_that_runs_already_serves_each_adapter_as_it_is",
        &[
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True python -m vllm.entrypoints.openai.api_server --model Qwen3-4B --port 8001 --enable-lora --max-lora-rank 32 --max-loras 4 --enable-prompt-tokens-details",
        ],
    ),
    tested(
        "the_examples_of_tracks_are_shown_measured_and_trained_on",
        &[
            "python3 examples/rollouts/gui/server.py --port 8931",
            "metaclaw rollout run examples/rollouts/terminal/run.yaml --dry-run",
            "metaclaw rollout run examples/rollouts/terminal/run.yaml --eval --tries 4",
            "metaclaw rollout run examples/rollouts/terminal/run.yaml",
            "metaclaw rollout run examples/rollouts/toolcall/run.yaml --dry-run",
            "metaclaw rollout run examples/rollouts/toolcall/run.yaml --eval --tries 4",
            "metaclaw rollout run examples/rollouts/toolcall/run.yaml",
            "metaclaw rollout run examples/rollouts/swe/run.yaml --dry-run",
            "metaclaw rollout run examples/rollouts/swe/run.yaml --eval --tries 4",
            "metaclaw rollout run examples/rollouts/swe/run.yaml",
            "metaclaw rollout run examples/rollouts/gui/run.yaml --dry-run",
            "metaclaw rollout run examples/rollouts/gui/run.yaml --eval --tries 4",
            "metaclaw rollout run examples/rollouts/gui/run.yaml",
        ],
    ),
    tested(
        "tasks_are_measured_and_each_episode_is_in_the_log",
        &[
            "metaclaw rollout run tasks.yaml --dry-run",
            "metaclaw rollout run tasks.yaml --eval --tries 4",
        ],
    ),
    tested(
        "groups_are_run_and_trained_on_and_a_run_that_is_complete_runs_nothing_again",
        &["metaclaw rollout run tasks.yaml"],
    ),
    tested(
        "the_programs_run_in_another_process_that_serves_them",
        &[
            "metaclaw rollout serve tasks.yaml --listen 127.0.0.1:30100",
            "METACLAW_ENVIRONMENT_KEY=a-long-secret metaclaw rollout serve tasks.yaml --listen 10.0.0.7:30100",
        ],
    ),
    tested(
        "the_address_says_whose_turn_it_is_and_nothing_is_put_into_its_prompt",
        &[
            "curl http://127.0.0.1:30000/v1/rollouts -d '{\"task\": \"count-lines\", \"group\": \"count-lines/1\", \"group_size\": 8, \"attempt\": 0}'",
        ],
    ),
    tested(
        "a_rollout_is_scored_or_it_failed",
        &[
            "curl http://127.0.0.1:30000/v1/feedback -d '{\"rollout\": \"ID\", \"score\": 1, \"steps\": [0, 0.5, 1]}'",
            "curl http://127.0.0.1:30000/v1/feedback -d '{\"rollout\": \"ID\", \"failed\": \"the sandbox did not start\"}'",
        ],
    ),
    tested(
        "the_function_in_the_examples_makes_the_same_step_as_the_built_in",
        &[
            "python3 examples/rollouts/advantages/grpo.py 8901",
            "metaclaw config rl.advantages http://127.0.0.1:8901/",
        ],
    ),
    excused(
        "it needs the release archives; `cargo xtask bare-roots` installs them so",
        &[
            "pipx install ./metaclaw-VERSION-py3-none-manylinux_2_28_x86_64.whl",
            "pipx uninstall metaclaw",
            "pipx install --force metaclaw-VERSION-py3-none-manylinux_2_28_x86_64.whl",
        ],
    ),
    excused(
        "it needs an account at WeChat",
        &[
            "npx -y @tencent-weixin/openclaw-weixin-cli install",
            "openclaw channels login --channel openclaw-weixin",
            "openclaw config set session.dmScope per-account-channel-peer",
        ],
    ),
    excused(
        "it needs an account at Fireworks",
        &[
            "mkdir fireworks-adapter",
            "cp ~/.metaclaw/trainer/adapters/NAME/adapter_config.json ~/.metaclaw/trainer/adapters/NAME/adapter_model.safetensors fireworks-adapter/",
            "firectl model create my-agent fireworks-adapter/ --base-model accounts/fireworks/models/BASE",
            "firectl deployment create accounts/ACCOUNT/models/my-agent",
            "metaclaw config llm.api_base https://api.fireworks.ai/inference/v1",
            "metaclaw config llm.model_id accounts/ACCOUNT/models/my-agent",
            "metaclaw config llm.api_key -",
            "firectl dataset create my-chats chats.jsonl",
            "firectl supervised-fine-tuning-job create --base-model accounts/fireworks/models/BASE --dataset my-chats --output-model my-agent",
        ],
    ),
    excused(
        "it builds for half an hour; `cargo xtask bare-roots` installs what it builds",
        &["cargo xtask dist"],
    ),
    excused(
        "it writes files of the checkout, which the same tests compare",
        &[
            "METACLAW_WRITE_EXAMPLE=1 cargo nextest run -p metaclaw -p metaclaw-wiring example",
            "METACLAW_WRITE_EXAMPLE=1 cargo nextest run -p metaclaw-trainer documentation",
        ],
    ),
    excused(
        "it needs an account",
        &["metaclaw auth login --provider openrouter"],
    ),
    excused(
        "it needs a person with an account at Google; its steps are tested with recorded replies",
        &["metaclaw auth login --provider google-calendar"],
    ),
    excused(
        "it needs Docker",
        &[
            "cd examples/docker",
            "cp proxy.env.example proxy.env && chmod 600 proxy.env",
            "docker compose up --detach",
            "docker compose exec proxy metaclaw status",
            "cp trainer.env.example trainer.env && chmod 600 trainer.env",
            "docker compose -f compose.yaml -f trainer.yaml up --detach",
            "docker compose exec -T proxy metaclaw turns export > metaclaw-turns.jsonl",
        ],
    ),
    excused(
        "it needs a GPU of NVIDIA, and fetches 3 GB",
        &[
            "metaclaw-trainer --training-devices 0 --inference-devices 1",
            "metaclaw trainer install --cuda",
            "cargo xtask setup --cuda",
            "cargo xtask gpu --device 0 --model FOLDER --python PATH",
        ],
    ),
    excused(
        "it needs the release archives, which `cargo xtask dist` builds for half an hour",
        &[
            "install metaclaw-VERSION-x86_64-linux/metaclaw ~/.local/bin/metaclaw",
            "tar xzf metaclaw-VERSION-x86_64-linux.tar.gz",
            "install -D metaclaw-VERSION-x86_64-linux/metaclaw ~/.local/bin/metaclaw",
            "tar xzf metaclaw-trainer-VERSION-x86_64-linux.tar.gz",
            "cd metaclaw-trainer-VERSION-x86_64-linux",
        ],
    ),
    excused(
        "it trains for 15 minutes",
        &["cargo xtask bench learn -- --only tinker --test-questions 40 --seeds 1"],
    ),
    excused(
        "it needs a second machine",
        &[
            "ssh -N -o ServerAliveInterval=30 -o ExitOnForwardFailure=yes -L 8000:127.0.0.1:8000 box.home",
        ],
    ),
    excused(
        "it needs an authority's certificate",
        &["export SSL_CERT_FILE=/path/to/ca.pem"],
    ),
    excused(
        "it installs the package tinker; the_sdk_trains_saves_loads_and_samples makes the same calls",
        &[
            "METACLAW_API_KEY=KEY metaclaw-trainer --model PATH --port 8000",
            "export TINKER_BASE_URL=http://127.0.0.1:8000",
            "export TINKER_API_KEY=tml-KEY",
            "pip install tinker jinja2",
            "python examples/tinker-sdk/train.py",
        ],
    ),
    excused(
        "it installs the cookbook (5 GB); `cargo xtask bench cookbook` does this by hand",
        &[
            "metaclaw-trainer --model models/Qwen/Qwen3-4B-Instruct-2507",
            "python -m tinker_cookbook.recipes.sl_loop base_url=http://127.0.0.1:8000 model_name=Qwen/Qwen3-4B-Instruct-2507 batch_size=16 max_steps=20 log_path=/tmp/sl",
            "python -m tinker_cookbook.recipes.rl_loop base_url=http://127.0.0.1:8000 model_name=Qwen/Qwen3-4B-Instruct-2507 loss_fn=importance_sampling batch_size=8 group_size=8 log_path=/tmp/rl",
        ],
    ),
    excused(
        "it lists the arguments",
        &[
            "metaclaw-trainer [--model PATH|NAME] [--host 127.0.0.1] [--port 8000] [--api-key KEY] [--checkpoint-dir DIR]",
        ],
    ),
    excused(
        "it installs SkyRL (6 GB); `cargo xtask bench tinker-peer` does this by hand",
        &[
            "git clone https://github.com/NovaSky-AI/SkyRL && cd SkyRL",
            "uv venv --python 3.12 && uv sync --extra tinker --extra fsdp",
            "uv run --extra tinker --extra fsdp -m skyrl.tinker.api --base-model Qwen/Qwen3-4B-Instruct-2507 --backend fsdp",
            "pip install \"skyrl[jax,tinker]==0.3.0\" \"tinker==0.24.1\" torch uv",
            "UV_PROJECT_ENVIRONMENT=VENV JAX_PLATFORMS=cpu uv run --no-sync -m skyrl.tinker.api --base-model PATH --backend jax --backend-config '{\"max_lora_adapters\": 5, \"max_lora_rank\": 16}'",
        ],
    ),
    excused(
        "it installs the package verifiers (1 GB)",
        &[
            "python3 -m venv venv && venv/bin/pip install 'verifiers<0.4' ./my-environment",
            "metaclaw rollout run tasks.yaml --verifiers my-environment",
        ],
    ),
    excused(
        "it is no command: two variables of a program",
        &[
            "OPENAI_BASE_URL=http://127.0.0.1:30000/rollout/ID/v1  OPENAI_API_KEY=sk-rollout-..",
            "ANTHROPIC_BASE_URL=http://127.0.0.1:30000/rollout/ID  ANTHROPIC_API_KEY=sk-rollout-..",
        ],
    ),
];
