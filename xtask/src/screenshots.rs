//! `cargo xtask screenshots` takes the pictures in docs/using/gallery anew.

use std::fs;
use std::process::Command;

use anyhow::Result;
use metaclaw_fetch::{command, writing};

use crate::cargo::cargo;
use crate::clients;
use crate::places::Places;

const TEST: &str = "page::gallery::each_view_has_its_picture";
/// Makes a PNG file smaller without changing a pixel; without it the files are a tenth larger.
const OPTIMISER: &str = "optipng";

pub(crate) fn run(places: &Places) -> Result<()> {
    let variables = {
        let _lock = places.lock()?;
        clients::browser_alone(places)?
    };
    command::run(&mut cargo(places, &["build", "-p", "metaclaw"]))?;
    let folder = places.root.join("docs").join("using").join("gallery");
    writing(fs::create_dir_all(&folder), &folder)?;
    let package = ["test", "-p", "metaclaw-tests", "--test", "it"];
    let test = ["--", "--ignored", "--exact", TEST];
    let mut test = cargo(places, &[&package[..], &test].concat());
    test.envs(variables)
        .env("METACLAW_TEST_BIN_DIR", places.target.join("debug"))
        .env("METACLAW_TEST_SCREENSHOTS", &folder);
    command::run(&mut test)?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "png") {
            continue;
        }
        let mut optimiser = Command::new(OPTIMISER);
        match optimiser.args(["-quiet", "-o5"]).arg(&path).status() {
            Ok(_) => println!("{} ({} bytes)", path.display(), fs::metadata(&path)?.len()),
            Err(error) => println!(
                "{} is as Chromium wrote it: {OPTIMISER}: {error}",
                path.display()
            ),
        }
    }
    Ok(())
}
