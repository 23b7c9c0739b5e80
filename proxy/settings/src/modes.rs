//! The mode where `mode` is not set: older configurations of the Python original said it in two other keys.

use serde_json::Value;

use crate::{
    layer::{Layer, Origin},
    providers::text,
};

const MODE: &str = "mode";
const TRAINS: &str = "rl.enabled";
const WAITS: &str = "scheduler.enabled";

/// Returns what `rl.enabled` and `scheduler.enabled` stand for if `mode` is not set, as a layer below `layers`.
pub(super) fn layer(layers: &[Layer]) -> Option<Layer> {
    if text(layers, MODE).is_some() {
        return None;
    }
    let (mode, key) = match (flag(layers, TRAINS), flag(layers, WAITS)) {
        (Some(false), _) => ("skills_only", TRAINS),
        (_, Some(true)) => ("auto", WAITS),
        (_, Some(false)) => ("rl", WAITS),
        (_, None) => return None,
    };
    let mut layer = Layer::empty(Origin::Key(key));
    layer.set(MODE, &Value::from(mode));
    Some(layer)
}

fn flag(layers: &[Layer], path: &str) -> Option<bool> {
    let mut given = layers.iter().rev().filter_map(|it| it.values().get(path));
    given.find_map(Value::as_bool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_older_keys_stand_for_a_mode_where_none_is_set() {
        let mode = |text: &str| {
            let file = Layer::text("config.yaml".into(), text).unwrap();
            let layer = layer(&[file])?;
            layer.values()[MODE].as_str().map(str::to_owned)
        };
        let says = |trains: &str, waits: &str| {
            let text = format!("rl: {{enabled: {trains}}}\nscheduler: {{enabled: {waits}}}\n");
            mode(&text).unwrap()
        };
        assert_eq!(says("false", "true"), "skills_only");
        assert_eq!(says("true", "true"), "auto");
        assert_eq!(says("true", "false"), "rl");
        assert_eq!(mode("rl: {enabled: false}\n").unwrap(), "skills_only");
        assert_eq!(mode("rl: {enabled: true}\n"), None);
        assert_eq!(mode("mode: rl\nrl: {enabled: false}\n"), None);
    }
}
