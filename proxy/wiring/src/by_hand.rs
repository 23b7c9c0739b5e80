//! What a person adds where the editor does not.

use serde_json::json;

use crate::openclaw::entry::{Entry, Place};

/// The keys, as JSON, with a line that says where they go.
pub(crate) fn text(entry: &Entry) -> String {
    let mut value = entry.value.clone();
    let place = match &entry.place {
        Place::Provider => "models.providers.metaclaw".to_owned(),
        Place::Model { provider } => format!("models.providers.{provider}.models (one more)"),
    };
    // Whoever reads it over a shoulder learns no key.
    if !value["apiKey"].is_null() && value["apiKey"] != "metaclaw" {
        value["apiKey"] = json!("(the proxy's key)");
    }
    let model = json!({"primary": entry.reference(), "fallbacks": [entry.former()]});
    format!("{place}: {value:#}\nagents.defaults.model: {model:#}")
}
