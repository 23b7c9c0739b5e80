//! Finds environment variables that somebody may have set for MetaClaw, and that nothing reads.

use super::{layer::ENV_PREFIX, table, unsupported_keys};

/// The prefix of all MetaClaw's variables, including those that stand for no key.
const PREFIX: &str = "METACLAW_";

/// Returns variables that seem to stand for a key and do not, because an underscore is missing.
pub(super) fn misnamed_variables(variables: &[(String, String)]) -> Vec<String> {
    let plain = |text: &str| text.replace("__", "_").replace('.', "_").to_lowercase();
    let told = variables.iter().filter_map(|(name, _)| {
        let given = name.strip_prefix(PREFIX)?;
        if name.starts_with(ENV_PREFIX) {
            return None;
        }
        let key = table::keys().find(|key| plain(&key.path) == plain(given))?;
        let right = key.path.replace('.', "__").to_uppercase();
        Some(format!(
            "{name} in the environment has no effect: {ENV_PREFIX}{right}, with two underscores each time, stands for {}",
            key.path
        ))
    });
    told.collect()
}

/// Returns the variables of other systems that are set, each with what says the same here.
pub(super) fn foreign_variables(variables: &[(String, String)]) -> Vec<String> {
    let told = variables.iter().filter_map(|(name, value)| {
        let reason = unsupported_keys::variable_reason(name).filter(|_| !value.is_empty())?;
        Some(format!("{name} in the environment has no effect: {reason}"))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_with_one_underscore_is_told_its_right_name() {
        let given = |name: &str| (name.to_owned(), "sk-0123456789".to_owned());
        let told = misnamed_variables(&[
            given("METACLAW_LLM_API_BASE"),
            given("METACLAW_RL__BATCH_SIZE"),
            given("METACLAW_MODE"),
            given("METACLAW_HOME"),
            given("METACLAW__LLM__API_KEY"),
            given("LLM_API_KEY"),
        ]);
        insta::assert_snapshot!(told.join("\n"), @r"
        METACLAW_LLM_API_BASE in the environment has no effect: METACLAW__LLM__API_BASE, with two underscores each time, stands for llm.api_base
        METACLAW_RL__BATCH_SIZE in the environment has no effect: METACLAW__RL__BATCH_SIZE, with two underscores each time, stands for rl.batch_size
        METACLAW_MODE in the environment has no effect: METACLAW__MODE, with two underscores each time, stands for mode
        ");
    }

    #[test]
    fn a_variable_of_another_system_is_answered_by_its_name() {
        let given = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let told = foreign_variables(&[
            given("PRM_M", "3"),
            given("OPENCLAW_TOPK_K", "4"),
            given("OPENCLAW_TOPK_W_RL", "1"),
            given("OPENCLAW_GATEWAY_TOKEN", "t"),
            given("SGLANG_API_KEY", ""),
            given("PORT", "30000"),
        ]);
        insta::assert_snapshot!(told.join("\n"), @r"
        PRM_M in the environment has no effect: judge.votes says how often the judge is asked
        OPENCLAW_TOPK_K in the environment has no effect: hybrid has these fixed, as docs/training/hybrid.md says; rl.clip_low and rl.clip_high bound the ratio
        OPENCLAW_TOPK_W_RL in the environment has no effect: rl.w_rl is the weight of verdicts
        ");
    }
}
