//! How long the conversations are that a model in a folder was made for.

use std::path::Path;

/// The longest sequence that a model was made for, by the config.json in its folder, or beside its tokenizer.
pub(crate) fn of_folder(folder: &Path) -> Option<u32> {
    let config = std::fs::read(folder.join("config.json")).ok()?;
    let config: serde_json::Value = serde_json::from_slice(&config).ok()?;
    let of = |config: &serde_json::Value| config["max_position_embeddings"].as_u64();
    // Models that read pictures as well have the text model's settings one level below.
    let longest = of(&config).or_else(|| of(&config["text_config"]))?;
    u32::try_from(longest).ok().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_of_a_server_that_says_none_is_the_models_own() {
        let folder = tempfile::tempdir().unwrap();
        let of = |config: &str| {
            std::fs::write(folder.path().join("config.json"), config).unwrap();
            of_folder(folder.path())
        };
        assert_eq!(of(r#"{"max_position_embeddings": 8192}"#), Some(8192));
        let below = r#"{"text_config": {"max_position_embeddings": 262144}}"#;
        assert_eq!(of(below), Some(262_144));
        for none in ["{}", "no JSON", r#"{"max_position_embeddings": -1}"#] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
