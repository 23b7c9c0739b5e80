//! Tests of an adapter, on disk, of a text model that is a part of a model of text and images.

use super::*;
use crate::lora::IN_PART;

const PART: BaseDims = BaseDims {
    layers_at: IN_PART,
    ..DIMS
};

#[test]
fn layers_of_a_part_are_named_as_peft_names_them_and_the_images_part_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    let spec = lora_spec(2, 32, vec![Projection::V]);
    let lora = Lora::init(spec, PART, 2, 4).unwrap();
    let saved = save(root.path(), &name("a@1"), &lora, &base("tiny"), 7).unwrap();
    let config: serde_json::Map<_, _> = from_json(&saved.folder.join(CONFIG)).unwrap();
    let excluded = ".*(vision_tower|multi_modal_projector).*";
    assert_eq!(config["exclude_modules"], excluded);
    let tensors = tensors::read(&saved.folder.join(TENSORS)).unwrap();
    let first = tensors.keys().next().unwrap();
    let wanted = "base_model.model.model.language_model.layers.0.self_attn.v_proj.lora_A.weight";
    assert_eq!(first, wanted);
    let mut spec = super::spec(base("tiny"));
    let error = load(root.path(), &name("a@1"), &spec).unwrap_err();
    assert!(error.to_string().contains("model.layers.0"), "{error}");
    spec.dims = PART;
    let read = load(root.path(), &name("a@1"), &spec).unwrap();
    assert_eq!(read.sha256, saved.sha256);
}
