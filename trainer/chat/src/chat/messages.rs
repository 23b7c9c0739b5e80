//! The first check of messages. The engine converts them to the template's format.

use serde_json::Value;

use crate::error::ApiError;

/// Roles that templates of chat models know. With `function`, clients called a tool before tools had ids.
const ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];

/// Refuses messages that a template would write into the prompt without understanding them.
///
/// # Errors
/// Names the message, the given value and the allowed ones.
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
