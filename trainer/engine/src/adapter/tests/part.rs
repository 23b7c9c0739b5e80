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
    spec.dims = PART;
    let read = load(root.path(), &name("a@1"), &spec).unwrap();
    assert_eq!(read.sha256, saved.sha256);
}

/// Layers have two names: `model.layers` in a text model, and `model.language_model.layers` in one of text and images. Either is read
/// by either. The error names a tensor that is there under both names, that is of images, or of a map that is not adapted.
#[test]
fn layers_of_the_text_model_alone_are_the_same_and_what_has_no_place_is_named() {
    const OF_IMAGES: &str = "base_model.model.model.visual.blocks.0.attn.proj.lora_A.weight";
    const OF_OWN_INPUT: &str = "base_model.model.model.layers.0.per_layer_input_gate.lora_A.weight";
    for (of, read_by) in [(DIMS, PART), (PART, DIMS)] {
        let root = tempfile::tempdir().unwrap();
        let lora = Lora::init(lora_spec(2, 32, vec![Projection::V]), of, 2, 4).unwrap();
        let saved = save(root.path(), &name("a@1"), &lora, &base("tiny"), 7).unwrap();
        let mut spec = super::spec(base("tiny"));
        spec.dims = read_by;
        let read = || load(root.path(), &name("a@1"), &spec);
        let found = read().unwrap().lora;
        assert!(are_equal(found.params(), lora.params()));

        let file = saved.folder.join(TENSORS);
        let (theirs, ours) = (&lora.names()[0], &found.names()[0]);
        let added = [
            (&**ours, &**theirs),
            (OF_IMAGES, OF_IMAGES),
            (OF_OWN_INPUT, OF_OWN_INPUT),
        ];
        for (added, refused) in added {
            let names = lora.names().into_iter().chain([added.to_owned()]);
            let tensors = lora.params().chain(lora.params().take(1));
            tensors::write(&file, names.zip(tensors)).unwrap();
            let error = read().unwrap_err().to_string();
            let wanted = format!("tensor {refused:?} belongs to no adapted map of this model");
            assert!(error.ends_with(&wanted), "{error}");
        }
    }
}
