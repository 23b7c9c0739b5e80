//! Settings of other systems, and of the Python original's program code: what is said of each.
//!
//! Nobody reads them here. A person who brings them along should hear why, and not only that the key
//! is unknown.

const NO_CRITIC: &str =
    "there is no critic (GAE, value function): a verdict belongs to a whole turn";
const NO_FULL: &str = "only LoRA adapters are trained, never all weights";
const NO_LORA_OPTION: &str =
    "adapters have a rank, an alpha and targets: rl.lora_rank, rl.lora_alpha, rl.targets";
const NO_SCALE: &str = "one machine trains: no sharding, and no training over several machines";
const NO_VISION: &str = "vision is not trained";
const NO_MOE: &str = "mixture-of-experts models are not trained";
const NO_ROLLOUTS: &str = "there are no generated rollouts: it learns from the conversation";
const NO_BUDGET_OF_STEPS: &str = "rl.max_steps says how many steps are made at most";
const EPOCHS: &str = "rl.epochs says how many steps are taken on one batch";
const LOSSES: &str = "rl.method chooses what a step is made of";
const CLIPPED: &str = "rl.clip_low and rl.clip_high bound the ratio itself: distances of 0.2 and 0.28 from 1 are 0.8 and 1.28";
const ANCHORED: &str =
    "rl.anchor is the weight of the divergence from the base model with the wishes";
const JUDGED: &str = "the judge's sampling is fixed; judge.votes and judge.timeout can be set";
const RECORDED: &str =
    "turns are kept in the log (turns.*): `metaclaw turns export` writes them out";
const TEACHER: &str = "the teacher is the base model itself";
const WRITTEN: &str = "skills are found and written by rules of their own: skills.*";
const WANDB: &str = "`metaclaw metrics wandb` sends the numbers of steps through its own client when you run it; /metrics and the metrics files have them here";
const NO_MEMORY: &str = super::table::NO_MEMORY;
const OTHER_CLAW: &str =
    "only what `metaclaw start` wires is wired; point any other agent at the base URL";

/// The last part of a key's path, or its beginning up to the `*`, and why it does nothing here.
const FOREIGN: &[(&str, &str)] = &[
    ("gae_*", NO_CRITIC),
    ("gae", NO_CRITIC),
    ("lam", NO_CRITIC),
    ("gamma", NO_CRITIC),
    ("value_*", NO_CRITIC),
    ("vf_*", NO_CRITIC),
    ("cliprange_value", NO_CRITIC),
    ("critic*", NO_CRITIC),
    ("adv_estimator", LOSSES),
    ("advantage_estimator", LOSSES),
    ("algorithm", LOSSES),
    ("loss_type", LOSSES),
    ("clip_ratio*", CLIPPED),
    ("eps_clip*", CLIPPED),
    ("entropy_coef*", LOSSES),
    ("kl_*", ANCHORED),
    ("use_kl_*", ANCHORED),
    ("init_kl_coef", ANCHORED),
    ("lora_dropout", NO_LORA_OPTION),
    ("lora_bias", NO_LORA_OPTION),
    ("use_rslora", NO_LORA_OPTION),
    ("use_dora", NO_LORA_OPTION),
    ("lora_plus_*", NO_LORA_OPTION),
    ("modules_to_save", NO_LORA_OPTION),
    ("target_modules", NO_LORA_OPTION),
    ("finetuning_type", NO_FULL),
    ("full_finetuning", NO_FULL),
    ("freeze_*", NO_FULL),
    (
        "load_in_4bit",
        "trainer.dtype chooses the numbers of the base model",
    ),
    (
        "load_in_8bit",
        "trainer.dtype chooses the numbers of the base model",
    ),
    (
        "quantization*",
        "trainer.dtype chooses the numbers of the base model",
    ),
    ("deepspeed*", NO_SCALE),
    ("zero_stage", NO_SCALE),
    ("fsdp*", NO_SCALE),
    ("tensor_parallel_size", NO_SCALE),
    ("pipeline_parallel_size", NO_SCALE),
    ("tensor_model_parallel_size", NO_SCALE),
    ("pipeline_model_parallel_size", NO_SCALE),
    ("num_nodes", NO_SCALE),
    ("n_gpus_per_node", NO_SCALE),
    ("world_size", NO_SCALE),
    ("vision_*", NO_VISION),
    ("freeze_vision_tower", NO_VISION),
    ("num_experts*", NO_MOE),
    ("router_aux_loss_coef", NO_MOE),
    ("expert_*", NO_MOE),
    ("rollout*", NO_ROLLOUTS),
    ("num_generations", NO_ROLLOUTS),
    ("openclaw_env_*", NO_ROLLOUTS),
    ("reward_model*", "the judge gives verdicts: judge.*"),
    ("max_steps", NO_BUDGET_OF_STEPS),
    ("total_steps", NO_BUDGET_OF_STEPS),
    ("num_train_epochs", EPOCHS),
    ("total_epochs", EPOCHS),
    ("prm_temperature", JUDGED),
    ("prm_max_new_tokens", JUDGED),
    ("skill_update_threshold", WRITTEN),
    ("max_new_skills", WRITTEN),
    ("synergy_*", NO_MEMORY),
    ("memory_*", NO_MEMORY),
    ("record_enabled", RECORDED),
    ("record_dir", RECORDED),
    ("use_opd", LOSSES),
    ("teacher_*", TEACHER),
    ("renderer_name", "the model's own chat template is used"),
    (
        "save_weights_timeout_s",
        "rl.remote_timeout_s is the deadline of one call",
    ),
    (
        "tinker_*",
        "rl.tinker_api_key, rl.tinker_base_url and rl.tinker_project are all that is asked for",
    ),
    (
        "azure_openai_deployment",
        "upstreams.NAME.dialect: azure says it for each upstream",
    ),
    ("bedrock_*", super::table::NO_BEDROCK),
    ("aws_*", super::table::NO_BEDROCK),
    ("wechat_*", OTHER_CLAW),
    ("use_wandb", WANDB),
    ("wandb*", WANDB),
];

/// Keys of `rl.*` by which our own learner is asked for what it does not do, why, and what is allowed. Silently training
/// otherwise would be worse than not to start.
const REFUSED: &[(&str, &str)] = &[
    (
        "gae*",
        "there is no critic, so no GAE: a verdict belongs to a whole turn. Allowed: false, 0, or leave it out",
    ),
    (
        "value_*",
        "there is no critic, so no value function and no clip of its values. Allowed: false, 0, or leave it out",
    ),
    (
        "vf_*",
        "there is no critic, so no value function and no clip of its values. Allowed: false, 0, or leave it out",
    ),
    (
        "cliprange_value",
        "there is no critic, so no value function and no clip of its values. Allowed: false, 0, or leave it out",
    ),
    (
        "*dropout",
        "adapters are trained without dropout, which would have the samples' log-probabilities differ from what they were sampled at. Allowed: 0, or leave it out",
    ),
    (
        "full_*",
        "only LoRA adapters are trained, never all weights. Allowed: false, or leave it out",
    ),
    (
        "finetuning_type",
        "only LoRA adapters are trained, never all weights. Allowed: lora, or leave it out",
    ),
];

/// What is written where such a setting is off.
const OFF: &[&str] = &["", "0", "0.0", "false", "no", "none", "off", "lora"];

/// Why a setting cannot be, with what is allowed; none where it is off, or is none of those.
pub(super) fn refusal(path: &str, given: &str) -> Option<&'static str> {
    let name = path.strip_prefix("rl.")?;
    let found = REFUSED.iter().find(|(word, _)| fits(word, name));
    let (_, reason) = found.filter(|_| !OFF.contains(&given.trim().to_lowercase().as_str()))?;
    Some(reason)
}

/// Whether a name is a word of a list, in which `*` stands for any beginning or end.
fn fits(word: &str, name: &str) -> bool {
    match (word.strip_suffix('*'), word.strip_prefix('*')) {
        (Some(start), _) => name.starts_with(start),
        (None, Some(end)) => name.ends_with(end),
        (None, None) => name == word,
    }
}

/// Why a setting of another system does nothing here; none where nobody knows it at all.
pub(super) fn reason(path: &str) -> Option<&'static str> {
    let name = path.rsplit('.').next().unwrap_or(path);
    let top = path.split('.').next().unwrap_or(path);
    let mut all = FOREIGN.iter();
    let found = all.find(|(word, _)| fits(word, name) || fits(word, top));
    found.map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readme_says_is_left_out_is_answered_in_words() {
        for (path, said) in [
            ("rl.gae_lambda", "no critic"),
            ("rl.value_clip", "no critic"),
            ("critic.learning_rate", "no critic"),
            ("rl.lora_dropout", "rl.lora_rank"),
            ("finetuning_type", "only LoRA"),
            ("rl.num_experts", "mixture-of-experts"),
            ("vision_tower.lr", "vision"),
            ("deepspeed.zero_stage", "several machines"),
            ("bedrock_model", "Bedrock"),
            ("max_steps", "rl.max_steps"),
            ("rl.kl_coef", "rl.anchor"),
            ("record_dir", "turns export"),
            ("use_wandb", "metaclaw metrics wandb"),
            ("rl.wandb_project", "metaclaw metrics wandb"),
            ("wandb.entity", "metaclaw metrics wandb"),
        ] {
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
    fn no_key_of_ours_is_called_foreign() {
        for key in super::super::table::keys() {
            let section = key.path.split('.').next().unwrap_or_default();
            let is_whole = FOREIGN.iter().any(|(word, _)| *word == section);
            assert!(!is_whole, "{}", key.path);
        }
    }
}
