//! `cargo xtask golden`: computes the engine's golden values again, with PyTorch, transformers and PEFT.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use metaclaw_fetch::{command, pip};

use crate::cargo::cargo;
use crate::places::Places;
use crate::report::StageReport;

const PACKAGES: [&str; 5] = [
    "torch==2.11.0",
    "transformers",
    "peft",
    "safetensors",
    "numpy",
];

/// It writes to `trainer/engine/golden/`; changes there are committed by hand. Then PEFT loads adapters that the engine
/// trained and saved, and must compute the same logits: of the demo model, whose LM head is its embedding, of `small`,
/// which has two matrices, of `images`, whose layers are a part of another model, and of `nets`, which has gated delta nets.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    let python = python(places, &mut report)?;
    let folder = places.root.join("trainer/engine/golden");
    let [small, images, nets] = ["small", "images", "nets"].map(|name| folder.join(name));
    let pairs = [
        ("ours", &model),
        ("ours-untied", &small),
        ("ours-images", &images),
        ("ours-nets", &nets),
    ];
    let pairs = pairs.map(|(name, base)| (places.cache.join("golden").join(name), base));
    report.stage("the engine's side", |_| {
        pairs.iter().try_for_each(|(ours, base)| {
            let mut engine = cargo(places, &["run", "--package", "metaclaw-engine"]);
            engine.args(["--example", "golden", "--"]);
            command::run(engine.args([base, &places.cache, ours]))
        })
    })?;
    let script = |name: &str| {
        let mut script = Command::new(&python);
        script.arg(folder.join(name)).current_dir(&folder);
        script.env("PYTHONDONTWRITEBYTECODE", "1");
        script.env("METACLAW_CACHE", &places.cache);
        script.env("METACLAW_TEST_MODEL", &model);
        script
    };
    report.stage("golden values", |_| command::run(&mut script("make.py")))?;
    report.stage("our adapters in PEFT", |_| {
        let mut check = pairs
            .iter()
            .map(|(ours, _)| command::run(script("check.py").arg(ours)));
        check.try_for_each(|checked| checked)
    })?;
    report.print();
    Ok(())
}

pub(crate) fn python(places: &Places, report: &mut StageReport) -> Result<PathBuf> {
    report.stage("PyTorch", |stage| {
        stage.note = PACKAGES.join(", ");
        let _lock = places.lock()?;
        pip::environment(&places.cache.join("golden").join("venv"), &PACKAGES)
    })
}
