mod lm_head;
mod part;

use std::fs;

use tch::Tensor;

use super::*;
use crate::lora::{BaseDims, Projection};
use crate::tests::{DIMS, are_equal, base_id as base, lora_spec, parsed as name};

fn spec(id: BaseId) -> BaseSpec {
    let (dims, n_layers) = (DIMS, 2);
    BaseSpec { id, dims, n_layers }
}

fn lora() -> Lora {
    let spec = lora_spec(2, 32, vec![Projection::V, Projection::Down]);
    Lora::init(spec, DIMS, 2, 4).unwrap()
}

/// A saved adapter, its folder, and a way to change its configuration.
struct Saved {
    root: tempfile::TempDir,
    folder: PathBuf,
}

impl Saved {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let saved = save(root.path(), &name("a@1"), &lora(), &base("tiny"), 7).unwrap();
        let folder = saved.folder;
        Self { root, folder }
    }

    fn change(&self, field: &str, value: serde_json::Value) {
        let file = self.folder.join(CONFIG);
        let mut config: serde_json::Map<_, _> = from_json(&file).unwrap();
        config.insert(field.into(), value);
        fs::write(file, pretty(&config)).unwrap();
    }

    fn load(&self) -> Result<LoadedAdapter, AdapterError> {
        load(self.root.path(), &name("a@1"), &spec(base("tiny")))
    }

    fn error(&self) -> String {
        self.error_with(&spec(base("tiny")))
    }

    /// Returns the error of loading it, without the folder.
    fn error_with(&self, base: &BaseSpec) -> String {
        let error = load(self.root.path(), &name("a@1"), base).unwrap_err();
        let folder = self.folder.to_string_lossy();
        error.to_string().replace(&*folder, "<adapter>")
    }
}

#[test]
fn comes_back_bit_for_bit() {
    let saved = Saved::new();
    let loaded = saved.load().unwrap();
    assert_eq!(loaded.step, 7);
    assert_eq!(loaded.lora.spec, lora().spec);
    assert!(are_equal(loaded.lora.params(), lora().params()));
}

#[test]
fn the_configuration_is_what_peft_writes() {
    let text = fs::read_to_string(Saved::new().folder.join(CONFIG)).unwrap();
    let wanted = r#"{
  "alpha_pattern": {},
  "auto_mapping": null,
  "base_model_name_or_path": "tiny",
  "bias": "none",
  "fan_in_fan_out": false,
  "inference_mode": true,
  "init_lora_weights": true,
  "layers_pattern": null,
  "layers_to_transform": null,
  "lora_alpha": 32,
  "lora_dropout": 0.0,
  "modules_to_save": null,
  "peft_type": "LORA",
  "r": 2,
  "rank_pattern": {},
  "revision": null,
  "target_modules": [
    "down_proj",
    "v_proj"
  ],
  "task_type": "CAUSAL_LM",
  "use_dora": false,
  "use_rslora": false
}"#;
    assert_eq!(text, wanted);
}

#[test]
fn is_known_by_what_it_holds() {
    let saved = Saved::new();
    let sha256 = |saved: &Saved| saved.load().unwrap().sha256;
    let first = sha256(&saved);
    assert_eq!(info(&saved.folder).unwrap().sha256.as_ref(), Some(&first));
    assert_eq!(first.len(), 64);
    // Neither its name, its folder's age, its base model's name nor its steps are part of the identity.
    let other = save(saved.root.path(), &name("b"), &lora(), &base("other"), 8).unwrap();
    assert_eq!(other.sha256, first);
    // Alpha is part of it, and so is a single number of a matrix.
    saved.change("lora_alpha", 16.into());
    assert_ne!(sha256(&saved), first);
    saved.change("lora_alpha", 32.into());
    assert_eq!(sha256(&saved), first);
    let nudge = |t: &Tensor| t.f_add_scalar(1e-7);
    let nudged = lora().try_map(nudge).unwrap();
    let other = save(saved.root.path(), &name("b"), &nudged, &base("tiny"), 7).unwrap();
    assert_ne!(other.sha256, first);
    // An adapter that was saved without the file is valid too.
    fs::remove_file(saved.folder.join(ORIGIN)).unwrap();
    assert_eq!(info(&saved.folder).unwrap().sha256, None);
    assert_eq!(sha256(&saved), first);
}

#[test]
fn its_bytes_are_known_before_they_are_read() {
    let saved = Saved::new();
    let tiny = spec(base("tiny"));
    let n_params = saved.load().unwrap().lora.n_params();
    fs::remove_file(saved.folder.join(TENSORS)).unwrap();
    assert_eq!(bytes(&saved.folder, &tiny).unwrap(), 4 * n_params);
    saved.change("r", 9.into());
    let error = bytes(&saved.folder, &tiny).unwrap_err().to_string();
    let wanted = format!("{CONFIG}: lora rank 9 is not allowed: 1 to 4");
    assert!(error.contains(&wanted), "{error}");
}

#[test]
fn of_another_base_is_refused_by_name() {
    let error = Saved::new().error_with(&spec(base("other")));
    let wanted = "is an adapter of tiny (tiny-0123456), this engine serves other (other-012345)";
    assert!(error.ends_with(wanted), "{error}");
}

/// Row B12 of the tests: its hash of the base model changed when a blank in config.json changed. Adapters that were
/// trained with it are not lost.
#[test]
fn of_an_older_version_is_known_by_the_name_of_its_base() {
    let saved = Saved::new();
    let file = saved.folder.join(ORIGIN);
    let write = |format: u32, base: &str| {
        let origin = serde_json::json!({"format": format, "base_name": base, "base_fingerprint": "other", "step": 7});
        fs::write(&file, origin.to_string()).unwrap();
    };
    write(1, "tiny");
    assert_eq!(saved.load().unwrap().step, 7);
    write(1, "big");
    let wanted = "<adapter> is an adapter of big (other), this engine serves tiny (tiny-0123456)";
    assert_eq!(saved.error(), wanted);
    write(3, "tiny");
    let wanted = "<adapter>/metaclaw.json: format is 3, allowed: 1 or 2";
    assert_eq!(saved.error(), wanted);
}

#[test]
fn of_peft_itself_is_known_by_the_name_of_its_base() {
    let saved = Saved::new();
    fs::remove_file(saved.folder.join(ORIGIN)).unwrap();
    assert_eq!(saved.load().unwrap().step, 0);
    saved.change("base_model_name_or_path", "someone/Tiny".into());
    saved.change("lora_alpha", 32.0.into());
    saved.change("peft_version", "0.21.2".into());
    saved.load().unwrap();
    saved.change("base_model_name_or_path", "someone/big".into());
    let wanted = "<adapter> is an adapter of someone/big, this engine serves tiny (tiny-0123456)";
    assert_eq!(saved.error(), wanted);
}

#[test]
fn settings_that_change_the_sum_are_refused() {
    let pattern = serde_json::json!({"q_proj": 4});
    let all = "\"all-linear\", allowed: a list of q_proj";
    let cases = [
        (
            "rank_pattern",
            pattern,
            r#"{"q_proj":4}, allowed: null, false or empty"#,
        ),
        (
            "ensure_weight_tying",
            true.into(),
            "true, allowed: null, false or empty",
        ),
        (
            "use_dora",
            true.into(),
            "true, allowed: null, false or empty",
        ),
        (
            "use_rslora",
            true.into(),
            "true, allowed: null, false or empty",
        ),
        ("bias", "all".into(), "\"all\", allowed: none"),
        ("peft_type", "IA3".into(), "\"IA3\", allowed: LORA"),
        ("target_modules", "all-linear".into(), all),
        (
            "lora_alpha",
            0.5.into(),
            "0.5, allowed: a whole number from 1 up",
        ),
        ("r", 0.into(), "0, allowed: a whole number from 1 up"),
    ];
    for (field, value, wanted) in cases {
        let saved = Saved::new();
        saved.change(field, value);
        let wanted = format!("<adapter>/{CONFIG}: {field} is {wanted}");
        assert!(saved.error().starts_with(&wanted), "{}", saved.error());
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let saved = Saved::new();
    saved.change("r", 3.into());
    let shape = "has shape [2, 8], this model and rank need [3, 8]";
    assert!(saved.error().ends_with(shape), "{}", saved.error());

    let saved = Saved::new();
    let mut deep = spec(base("tiny"));
    deep.n_layers = 3;
    let error = saved.error_with(&deep);
    let missing = "layers.2.self_attn.v_proj.lora_A.weight\" is missing";
    assert!(error.ends_with(missing), "{error}");

    let file = saved.folder.join(TENSORS);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let damaged = |file: &str| format!("<adapter>/{file} is damaged: ");
    assert!(saved.error().starts_with(&damaged(TENSORS)));
    fs::write(saved.folder.join(CONFIG), "{").unwrap();
    assert!(saved.error().starts_with(&damaged(CONFIG)));
}

#[test]
fn one_that_is_not_there_is_named() {
    let loaded = load(Saved::new().root.path(), &name("b"), &spec(base("tiny")));
    let error = loaded.unwrap_err().to_string();
    let wanted = "there is no adapter \"b\" in ";
    assert!(error.starts_with(wanted), "{error}");
}
