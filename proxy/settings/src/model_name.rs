//! Names of models at a hub, as in the Python original's configuration: `Qwen/Qwen3-4B`. The trainer downloads a model
//! with such a name in `trainer.model`.

use std::path::Path;

const FILES: [&str; 2] = ["gguf", "safetensors"];

/// Returns whether a path looks like a name at a hub: two plain parts, and no model file at its end.
pub(super) fn is_name(path: &Path) -> bool {
    let Some(text) = path.to_str() else {
        return false;
    };
    let plain = |part: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(legal)
    };
    let ending = path.extension().and_then(|ending| ending.to_str());
    let is_file = ending.is_some_and(|ending| FILES.contains(&ending.to_lowercase().as_str()));
    let parts = text.split_once('/');
    parts.is_some_and(|(owner, name)| plain(owner) && plain(name)) && !is_file
}

/// Returns whether this may be a model's name at a server: one plain part, and no model file.
pub(super) fn is_word(text: &str) -> bool {
    !text.contains('/') && is_name(&Path::new("owner").join(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_at_a_hub_is_no_path() {
        for name in ["Qwen/Qwen3-4B", "moonshotai/Kimi-K2.5"] {
            assert!(is_name(Path::new(name)), "{name}");
        }
        for path in [
            "demo",
            "./a/b",
            "/a/b",
            "models/small.gguf",
            "a/b/c",
            "../a",
        ] {
            assert!(!is_name(Path::new(path)), "{path}");
        }
        assert!(is_word("SmolLM2-135M-Instruct.Q4_1"));
        for path in ["small.gguf", "Qwen/Qwen3-4B", "~", ".", ""] {
            assert!(!is_word(path), "{path}");
        }
    }
}
