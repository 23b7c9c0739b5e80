use super::*;

fn read(json: &str) -> Result<LearnerConfig, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn nothing_given_is_the_defaults() {
    assert_eq!(read("{}").unwrap(), LearnerConfig::default());
    let json = serde_json::to_string(&LearnerConfig::default()).unwrap();
    assert_eq!(read(&json).unwrap(), LearnerConfig::default());
}

#[test]
fn methods_are_words_joined_by_plus_or_a_list() {
    let method =
        |json: &str| read(&format!("{{\"rl\":{{\"method\":{json}}}}}")).map(|c| c.rl.method);
    assert_eq!(method("\"redo\"").unwrap().to_string(), "redo");
    let both = method("[\"binary_rl\",\"redo\",\"opd\"]").unwrap();
    assert!(both.redo && both.binary_rl);
    assert_eq!(both.later, ["opd"]);
    assert!(
        method("\"grpo\"")
            .unwrap_err()
            .contains("rl.method grpo is not built yet")
    );
    assert!(
        method("\"redo+magic\"")
            .unwrap_err()
            .contains("\"magic\" is not known")
    );
}

#[test]
fn the_originals_names_are_read() {
    let config = read(r#"{"mode":"madmax"}"#).unwrap();
    assert_eq!(config.mode, Mode::Auto);
}
