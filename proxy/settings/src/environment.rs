//! Variables of the environment: those that secrets and addresses name, and those that somebody may have set for
//! MetaClaw and that nothing reads.

use metaclaw_chat::{is_variable, substituted};

use crate::{table, unsupported_keys};

/// The prefix of every environment variable that stands for a key.
pub const ENV_PREFIX: &str = "METACLAW__";
/// The prefix of all MetaClaw's variables, including those that stand for no key.
const PREFIX: &str = "METACLAW_";

/// Returns a variable that is set to something.
pub(crate) fn given<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = variables.iter().find(|(given, _)| given == name);
    found
        .map(|(_, value)| value.as_str())
        .filter(|value| !value.is_empty())
}

/// Puts variables in where a text names them: `${NAME}`, or `${NAME:-text}` for a text that stands for an unset one.
///
/// # Errors
/// What is wrong with a name, or that its variable is not set.
pub(crate) fn put_in(text: &str, variables: &[(String, String)]) -> Result<String, String> {
    let mut wrong = None;
    let whole = substituted(text, |inside| {
        let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = inside.split_at(end.unwrap_or(inside.len()));
        let instead = rest.strip_prefix(":-").or_else(|| rest.strip_prefix('-'));
        if !is_variable(&name.to_uppercase()) || (instead.is_none() && !rest.is_empty()) {
            wrong = Some("${..} has to name a variable, as in ${NAME} or ${NAME:-text}".to_owned());
        }
        let value = given(variables, name).or(instead);
        if value.is_none() {
            let unset = || {
                format!(
                    "the variable {name}, which ${{{name}}} stands for, is not set in the environment"
                )
            };
            wrong.get_or_insert_with(unset);
        }
        if value.is_some_and(|value| value.contains("${")) {
            wrong = Some(format!(
                "what {name} stands for names another ${{..}}, which is not put in"
            ));
        }
        value.map(str::to_owned)
    });
    let last = text.rsplit_once("${");
    if last.is_some_and(|(_, last)| !last.contains('}')) {
        wrong.get_or_insert_with(|| "${ is never closed: write ${NAME}".to_owned());
    }
    wrong.map_or(Ok(whole), Err)
}

/// Returns what to say of variables that nothing reads: those that seem to stand for a key and do not, because an underscore
/// is missing, and those of other systems, each with what says the same here.
pub(crate) fn unread_variables(variables: &[(String, String)]) -> Vec<String> {
    let plain = |text: &str| text.replace("__", "_").replace('.', "_").to_lowercase();
    let misnamed = variables.iter().filter_map(|(name, _)| {
        let given = name.strip_prefix(PREFIX)?;
        let mut keys = table::keys().filter(|_| !name.starts_with(ENV_PREFIX));
        let path = &keys.find(|key| plain(&key.path) == plain(given))?.path;
        Some(format!("{name} in the environment has no effect: {}, with two underscores each time, stands for {path}", variable_of(path)))
    });
    let foreign = variables.iter().filter_map(|(name, value)| {
        let reason = unsupported_keys::variable_reason(name).filter(|_| !value.is_empty())?;
        Some(format!("{name} in the environment has no effect: {reason}"))
    });
    misnamed.chain(foreign).collect()
}

pub(crate) fn variable_of(path: &str) -> String {
    format!("{ENV_PREFIX}{}", path.replace('.', "__").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_variable_is_put_in_or_missed_by_its_name() {
        let variables = [
            ("MY_KEY", "sk-1"),
            ("lower", "sk-2"),
            ("BLANK", ""),
            ("NESTED", "${MY_KEY}"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let nested = "what NESTED stands for names another ${..}";
        for (text, expected) in [
            ("sk-0", Ok("sk-0")),
            ("${MY_KEY}", Ok("sk-1")),
            ("${lower}", Ok("sk-2")),
            ("http://${MY_KEY}:1/${lower}", Ok("http://sk-1:1/sk-2")),
            ("${MY_KEY:-sk-3}", Ok("sk-1")),
            ("${UNSET:-sk-3}", Ok("sk-3")),
            ("${BLANK:-sk-3}", Ok("sk-3")),
            ("${UNSET-sk-3}", Ok("sk-3")),
            ("${UNSET:-}", Ok("")),
            ("$${MY_KEY}", Ok("${MY_KEY}")),
            ("${UNSET}", Err("the variable UNSET,")),
            ("${BLANK}", Err("the variable BLANK,")),
            ("${MY_KEY:?no}", Err("has to name a variable")),
            ("${env:MY_KEY}", Err("has to name a variable")),
            ("${}", Err("has to name a variable")),
            ("${1}", Err("has to name a variable")),
            ("${NESTED}", Err(nested)),
            ("x-${NESTED}", Err(nested)),
            ("${UNSET:-${MY_KEY}}", Err("names another")),
            ("${MY_KEY", Err("is never closed")),
            ("${MY_KEY}${lower", Err("is never closed")),
            ("http://${", Err("is never closed")),
        ] {
            match (put_in(text, &variables), expected) {
                (Ok(is), Ok(expected)) => assert_eq!(is, expected, "{text}"),
                (Err(is), Err(expected)) => assert!(is.contains(expected), "{text}: {is}"),
                (is, _) => panic!("{text}: {is:?}"),
            }
        }
    }

    #[test]
    fn a_variable_with_one_underscore_is_told_its_right_name() {
        let given = |name: &str| (name.to_owned(), "sk-0123456789".to_owned());
        let told = unread_variables(&[
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
    fn variables_that_people_were_told_of_have_an_answer() {
        for (names, said) in [
            ("BATCH_SIZE", "rl.batch_size"),
            (
                "GRAD_ACCUM_STEPS USE_GRADIENT_CHECKPOINTING",
                "trainer.memory",
            ),
            ("LEARNING_RATE", "rl.learning_rate"),
            ("CLIP_GRAD_NORM", "rl.clip_norm"),
            ("PPO_CLIP_RATIO VALUE_CLIP", "rl.clip_high"),
            ("MAX_STEPS", "rl.max_steps"),
            ("OPENCLAW_API_KEY", "proxy.api_key"),
            ("OPENCLAW_DEBUG ROLLOUT_LOG_LEVEL", "log.level: debug"),
            (
                "TASK_TYPE TOOLS_CONFIG WORKER_URLS SWE_MAX_CONCURRENT GUI_MAX_STEPS",
                "metaclaw rollout run",
            ),
            ("NNODES NODE_RANK GPUS_PER_NODE", "trainer.devices"),
            ("USE_WANDB", "WANDB_API_KEY"),
            (
                "AZURE_OPENAI_API_KEY",
                "it is used only with judge.provider",
            ),
        ] {
            for name in names.split(' ') {
                let told = unread_variables(&[(name.to_owned(), "1".to_owned())]);
                assert!(
                    told[0].starts_with(name) && told[0].contains(said),
                    "{told:?}"
                );
            }
        }
        // Others mean these too.
        for name in ["FIREWORKS_API_KEY", "MASTER_ADDR", "WANDB_PROJECT"] {
            assert_eq!(
                unread_variables(&[(name.to_owned(), "1".to_owned())]),
                [""; 0]
            );
        }
    }

    #[test]
    fn a_variable_of_another_system_is_answered_by_its_name() {
        let given = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let told = unread_variables(&[
            given("PRM_M", "3"),
            given("OPENCLAW_TOPK_K", "4"),
            given("OPENCLAW_TOPK_W_RL", "1"),
            given("OPENCLAW_GATEWAY_TOKEN", "t"),
            given("SGLANG_API_KEY", ""),
            given("PORT", "30000"),
        ]);
        insta::assert_snapshot!(told.join("\n"), @r"
        PRM_M in the environment has no effect: judge.votes says how often the judge is asked
        OPENCLAW_TOPK_K in the environment has no effect: hybrid has these fixed, as docs/training/methods.md says; rl.clip_low and rl.clip_high bound the ratio
        OPENCLAW_TOPK_W_RL in the environment has no effect: rl.w_rl is the weight of verdicts
        ");
    }
}
