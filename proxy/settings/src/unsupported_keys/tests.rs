use super::*;
use serde_json::json;

use crate::{kind::ValueForm, table, testing::cases};

#[test]
fn what_readme_says_is_left_out_is_answered_in_words() {
    for (path, said) in cases(
        "
        rl.gae_lambda => no critic
        rl.value_clip => no critic
        critic.learning_rate => no critic
        rl.lora_dropout => rl.lora_rank
        finetuning_type => only LoRA
        rl.num_experts => mixture-of-experts
        vision_tower.lr => vision
        deepspeed.zero_stage => several machines
        bedrock_model => llm.bedrock_region
        max_steps => rl.max_steps
        rl.kl_coef => rl.anchor
        record_dir => turns export
        use_wandb => metaclaw metrics wandb
        rl.wandb_project => WANDB_API_KEY
        wandb.entity => metaclaw metrics wandb
        wechat_auto_install => channel of OpenClaw
        rollout.num_workers => metaclaw rollout run
        rollout.parallel_envs => metaclaw rollout run
        rollout_batch_size => metaclaw rollout run
        openclaw_env_data_dir => metaclaw rollout run
        azure_openai_deployment => evolver.provider azure
        use_skills => skills.enabled
        enable_skill_evolution => skills.auto_evolve
        ",
    ) {
        let told = reason(path).unwrap_or_default();
        assert!(told.contains(said), "{path}: {told:?}");
    }
    assert_eq!(reason("rl.batchsize"), None);
    assert_eq!(reason("llmm.api_base"), None);
}

#[test]
fn what_the_learner_does_not_do_is_refused_unless_it_is_off() {
    for (path, given, said) in [
        ("rl.gae_lambda", "0.95", "no critic"),
        ("rl.value_clip", "0.2", "Allowed: false, 0"),
        ("rl.cliprange_value", "0.2", "no clip of its values"),
        ("rl.lora_dropout", "0.1", "without dropout"),
        ("rl.dropout", "0.1", "Allowed: 0"),
        ("rl.full_finetuning", "true", "never all weights"),
        ("rl.finetuning_type", "full", "Allowed: lora"),
    ] {
        let told = refusal(path, given).unwrap_or_default();
        assert!(told.contains(said), "{path}: {told:?}");
    }
    for (path, given) in [
        ("rl.lora_dropout", "0.0"),
        ("rl.use_gae", "true"),
        ("rl.gae", "false"),
        ("rl.finetuning_type", "LoRA"),
        ("critic.value_clip", "0.2"),
    ] {
        assert_eq!(refusal(path, given), None, "{path}");
    }
}

#[test]
fn the_file_is_read_and_names_keys_of_ours_and_kinds_that_there_are() {
    let read = read().unwrap();
    let is_ours = |path: &str| table::find(path).is_some_and(|key| key.state == KeyState::Works);
    for (older, target) in &read.older_names {
        assert!(is_ours(target) && !is_ours(older), "{older}: {target}");
    }
    let groups = read.without_effect.iter().chain(&read.refused_keys);
    for (path, schema) in groups.flat_map(|it| &it.keys) {
        let is_text = ValueKind::from_schema(schema) == ValueKind::One(ValueForm::Text);
        assert_eq!(is_text, *schema == json!({}), "{path}: {schema} is no kind");
    }
    for path in read.values.keys() {
        assert!(table::find(path).is_some(), "{path}");
    }
    for (path, said) in &read.whole_paths {
        assert!(table::find(path).is_none(), "{path} is a key of ours");
        let named = said.strip_suffix(" says it");
        assert!(named.is_none_or(is_ours), "{path}: {said}");
    }
    for key in table::keys() {
        let section = key.path.split('.').next().unwrap_or_default();
        let is_whole = |it: &ForeignNames| it.names.iter().any(|name| name == section);
        assert!(!read.other_systems.iter().any(is_whole), "{}", key.path);
    }
}

/// The most keys of the original that may do nothing, besides those of the memory store and of other programs.
const MOST_WITHOUT_EFFECT: usize = 4;

#[test]
fn few_keys_do_nothing_and_each_says_why() {
    let elsewhere = |path: &str| {
        path.starts_with("memory.") || path == "rl.support_query" || path == "wechat.enabled"
    };
    let keys = UNSUPPORTED
        .without_effect
        .iter()
        .flat_map(|it| it.keys.keys());
    let keys: Vec<&String> = keys.filter(|path| !elsewhere(path)).collect();
    assert!(keys.len() <= MOST_WITHOUT_EFFECT, "{keys:?}");
    for group in UNSUPPORTED
        .without_effect
        .iter()
        .chain(&UNSUPPORTED.refused_keys)
    {
        assert!(group.reason.len() > 10, "{}", group.reason);
    }
}

#[test]
fn a_key_that_somebody_would_rely_on_stops_the_start() {
    for (path, given) in [
        ("gate.max_kl", "0.5"),
        ("serving.max_adapters", "8"),
        ("agents.work.rl", "{learning_rate: 1e-3}"),
        ("embeddings.model", "e5"),
    ] {
        let mut layer = crate::Layer::empty(crate::Origin::Flags);
        layer.set(path, &given.into());
        let told = layer.problems.iter().map(ToString::to_string);
        let told: String = told.collect();
        assert!(
            told.contains(path) && told.to_lowercase().contains("leave it out"),
            "{told}"
        );
    }
}
