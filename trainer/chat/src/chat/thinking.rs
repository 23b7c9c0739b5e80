//! Settings for thinking in the formats of different providers. All become variables of the model's template, which
//! alone can switch thinking.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// OpenAI's efforts, and vLLM's `max`.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ThinkingBody {
    chat_template_kwargs: Option<Map<String, Value>>,
    reasoning_effort: Option<String>,
    enable_thinking: Option<bool>,
    thinking: Option<Thinking>,
    reasoning: Option<Reasoning>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Enabled {},
    Disabled {},
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasoning {
    effort: Option<String>,
    enabled: Option<bool>,
}

// === impl ThinkingBody ===

impl ThinkingBody {
    /// Returns the template's variables. A variable that is given by name takes precedence. An effort is passed on and
    /// also switches thinking, as in vLLM.
    ///
    /// # Errors
    /// Answers 400, which names the field.
    pub(crate) fn variables(self) -> Result<Map<String, Value>, ApiError> {
        let mut variables = self.chat_template_kwargs.unwrap_or_default();
        variables.retain(|_, value| !value.is_null());
        let reasoning = self.reasoning;
        let (effort, enabled) = reasoning.map_or((None, None), |reasoning| {
            (reasoning.effort, reasoning.enabled)
        });
        let thinking = self
            .thinking
            .map(|thinking| matches!(thinking, Thinking::Enabled {}));
        let switch = self.enable_thinking.or(thinking).or(enabled);
        let effort = match (self.reasoning_effort, effort) {
            (Some(effort), _) => Some(checked(effort, "reasoning_effort")?),
            (None, Some(effort)) => Some(checked(effort, "reasoning.effort")?),
            (None, None) => None,
        };
        let mut tell = |name: &str, value: Value| {
            if !variables.contains_key(name) {
                variables.insert(name.to_owned(), value);
            }
        };
        if let Some(on) = switch {
            tell("enable_thinking", json!(on));
        }
        if let Some(effort) = effort {
            tell("enable_thinking", json!(effort != "none"));
            tell("reasoning_effort", json!(effort));
        }
        Ok(variables)
    }
}

fn checked(effort: String, field: &str) -> Result<String, ApiError> {
    if EFFORTS.contains(&effort.as_str()) {
        return Ok(effort);
    }
    let (given, allowed) = (crate::fields::cut(&effort), EFFORTS.join(", "));
    let text = format!("{field} is {given:?}: one of {allowed}");
    Err(ApiError::unsupported(field, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(body: &Value) -> Value {
        let body: ThinkingBody = serde_json::from_value(body.clone()).unwrap();
        body.variables()
            .map_or_else(|error| json!(error.to_string()), Value::Object)
    }

    #[test]
    fn every_way_to_say_it_becomes_a_variable_of_the_template() {
        let off = json!({"enable_thinking": false});
        for said in [
            json!({"chat_template_kwargs": {"enable_thinking": false}}),
            json!({"enable_thinking": false}),
            json!({"thinking": {"type": "disabled"}}),
            json!({"reasoning": {"enabled": false}}),
            json!({"chat_template_kwargs": {"enable_thinking": false}, "enable_thinking": true}),
        ] {
            assert_eq!(variables(&said), off, "{said}");
        }
        assert_eq!(variables(&json!({})), json!({}));
        assert_eq!(
            variables(&json!({"reasoning_effort": "none"})),
            json!({"enable_thinking": false, "reasoning_effort": "none"})
        );
        assert_eq!(
            variables(&json!({"reasoning": {"effort": "low"}})),
            json!({"enable_thinking": true, "reasoning_effort": "low"})
        );
    }

    #[test]
    fn an_effort_that_nobody_knows_is_refused() {
        insta::assert_snapshot!(variables(&json!({"reasoning_effort": "much"})), @r#""reasoning_effort is \"much\": one of none, minimal, low, medium, high, xhigh, max""#);
    }
}
