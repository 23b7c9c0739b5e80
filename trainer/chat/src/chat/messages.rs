//! The first look at messages. Bringing them into the template's form is the engine's work.

use serde_json::Value;

use crate::error::ApiError;

/// What templates of chat models know; `function` is how clients called a tool before tools had ids.
const ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];

/// Refuses what a template would write into the prompt without understanding it.
///
/// # Errors
/// Names the message, what was given and what is allowed.
pub(crate) fn check(messages: &[Value]) -> Result<(), ApiError> {
    if messages.is_empty() {
        let text = "messages is empty: at least one message is needed";
        return Err(ApiError::field("messages", text));
    }
    for (at, message) in messages.iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str);
        if let Some(role) = role.filter(|role| !ROLES.contains(role)) {
            let field = format!("messages[{at}].role");
            let (role, all) = (crate::fields::cut(role), ROLES.join(", "));
            let text = format!("{field} is {role:?}: one of {all}");
            return Err(ApiError::unsupported(field, text));
        }
    }
    Ok(())
}
