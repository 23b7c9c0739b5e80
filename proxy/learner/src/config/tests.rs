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
    for name in ["redo", "context_distillation"] {
        let named = method(&format!("\"{name}\"")).unwrap();
        assert_eq!(named.to_string(), "context_distillation");
    }
    let three = method("[\"binary_rl\",\"redo\",\"opd\"]").unwrap();
    assert_eq!(three.to_string(), "context_distillation+binary_rl+opd");
    assert!(method("\"grpo\"").unwrap().has_advantages());
    assert!(!method("\"hybrid\"").unwrap().has_advantages());
    for (given, said) in [
        (
            "redo+magic",
            "rl.method \"magic\" is not known: context_distillation (or redo), opd, and one of",
        ),
        (
            "binary_rl+metaclaw",
            "rl.method binary_rl and metaclaw both say what a verdict does",
        ),
        ("opd+hybrid", "rl.method hybrid has opd in it"),
        ("", "rl.method \"\" is not known"),
    ] {
        let error = method(&format!("\"{given}\"")).unwrap_err();
        assert!(error.contains(said), "{given}: {error}");
    }
    assert!(method("[]").unwrap_err().contains("rl.method is empty"));
}

#[test]
fn the_originals_names_are_read() {
    let config = read(r#"{"mode":"madmax"}"#).unwrap();
    assert_eq!(config.mode, Mode::Auto);
}
