//! Text for changes that a person has to make by hand, because the editor cannot.

use serde_json::json;

use crate::openclaw::entry::{Entry, Place};

pub(crate) fn text(entry: &Entry) -> String {
    let mut value = entry.value.clone();
    let place = match &entry.place {
        Place::Provider => "models.providers.metaclaw".to_owned(),
        Place::Model { provider } => format!("models.providers.{provider}.models (one more)"),
    };
    // The key is hidden, because somebody may look over the person's shoulder.
    if !value["apiKey"].is_null() && value["apiKey"] != "metaclaw" {
        value["apiKey"] = json!("(the proxy's key)");
    }
    let model = json!({"primary": entry.reference(), "fallbacks": [entry.former()]});
    format!("{place}: {value:#}\nagents.defaults.model: {model:#}")
}
