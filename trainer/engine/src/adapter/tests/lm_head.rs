//! Tests of an adapter with a part for the LM head, on disk.

use super::*;
use crate::lora::LoraTargets;

fn with_head(tied: bool) -> Lora {
    let spec = lora_spec(2, 32, LoraTargets::groups(false, false, true));
    let dims = BaseDims { tied, ..DIMS };
    let fresh = Lora::init(spec, dims, 2, 4).unwrap();
    fresh.try_map(Tensor::f_randn_like).unwrap()
}

#[test]
fn the_lm_head_is_saved_in_pefts_form_and_a_tied_one_with_instructions() {
    for tied in [true, false] {
        let (root, lora) = (tempfile::tempdir().unwrap(), with_head(tied));
        let saved = save(root.path(), &name("a@1"), &lora, &base("tiny"), 7).unwrap();
        let config: serde_json::Map<_, _> = from_json(&saved.folder.join(CONFIG)).unwrap();
        assert_eq!(config["target_modules"], serde_json::json!(["lm_head"]));
        let tensors = tensors::read(&saved.folder.join(TENSORS)).unwrap();
        let names: Vec<&str> = tensors.keys().map(String::as_str).collect();
        let of = |side: &str| format!("base_model.model.lm_head.lora_{side}.weight");
        assert_eq!(names, ["A", "B"].map(of));
        let mut base = spec(base("tiny"));
        base.dims.tied = tied;
        let read = load(root.path(), &name("a@1"), &base).unwrap();
        assert_eq!(read.sha256, saved.sha256);
        assert!(are_equal(read.lora.params(), lora.params()));
        assert_eq!(bytes(&saved.folder, &base).unwrap(), 4 * 2 * (8 + 20));

        let readme = fs::read_to_string(saved.folder.join("README.md"));
        assert_eq!(readme.is_ok(), tied);
        if let Ok(readme) = readme {
            assert!(readme.starts_with("# An adapter of tiny with a part for the LM head"));
            assert!(readme.contains("from_pretrained(\"tiny\")"), "{readme}");
        }
    }
    let saved = Saved::new();
    assert!(!saved.folder.join("README.md").exists(), "of layers alone");
}
