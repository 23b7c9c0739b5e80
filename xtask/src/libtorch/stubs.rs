//! Libraries that those of the wheel need on a machine without CUDA.
//!
//! * * `libtorch.so`: the wheel's needs libtorch_cuda, and torch-sys links `-ltorch`; an empty library replaces it.
//! * `libgomp.so`: torch-sys links `-lgomp`; a link to the wheel's own.
//! * `libcudart.so.13`, `libcupti.so.13`: the profiler in libtorch_cpu.so names a few of their functions, as
//!   versioned symbols that the loader looks up. Every stub returns an error, as the real ones do without a driver.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use metaclaw_fetch::{command, writing};

const UNKNOWN_ERROR: u32 = 999;

/// Adds the missing libraries to a folder that holds the wheel's, and checks that all of them load.
pub(super) fn complete(lib: &Path) -> Result<()> {
    let torch_cpu = lib.join("libtorch_cpu.so");
    let mut nm = Command::new("nm");
    nm.args(["-D", "--undefined-only", "--with-symbol-versions"])
        .arg(&torch_cpu);
    let wanted = versioned_symbols(&command::output(&mut nm)?);
    for (library, symbols) in &wanted {
        compile(
            lib,
            library,
            &source(symbols),
            Some(&version_script(library, symbols)),
        )?;
    }
    compile(lib, "libtorch.so", "", None)?;
    let gomp = lib.join("libgomp.so");
    if !gomp.exists() {
        writing(symlink("libgomp.so.1", &gomp), &gomp)?;
    }
    check_loads(lib, &torch_cpu)
}

/// Returns the undefined symbols whose version has the name of a library (`cudaGetDeviceCount@libcudart.so.13`), by
/// library.
fn versioned_symbols(nm: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in nm.lines() {
        let Some((symbol, library)) = line.trim().trim_start_matches("U ").split_once('@') else {
            continue;
        };
        let is_library = library.starts_with("lib") && library.contains(".so.");
        let is_plain = symbol
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_library && is_plain {
            wanted
                .entry(library.to_owned())
                .or_default()
                .insert(symbol.to_owned());
        }
    }
    wanted
}

/// Returns C code without headers: the prototypes do not matter to functions that read no argument, except for the two
/// that return a text, which a caller prints.
fn source(symbols: &BTreeSet<String>) -> String {
    let mut source = String::new();
    for symbol in symbols {
        let _ = match symbol.as_str() {
            "cudaGetErrorString" => {
                writeln!(
                    source,
                    "const char *{symbol}(int e) {{ (void)e; return \"no CUDA: stand-in library\"; }}"
                )
            }
            "cuptiGetResultString" => writeln!(
                source,
                "int {symbol}(int e, const char **text) {{ (void)e; *text = \"no CUPTI: stand-in library\"; return 0; }}"
            ),
            _ => writeln!(source, "int {symbol}(void) {{ return {UNKNOWN_ERROR}; }}"),
        };
    }
    source
}

/// Returns a linker version script with one node of the library's name, like NVIDIA's own.
fn version_script(library: &str, symbols: &BTreeSet<String>) -> String {
    let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
    format!("{library} {{ global: {}; local: *; }};\n", names.join("; "))
}

/// Compiles C code to `<lib>/<name>`, with the soname `name`.
fn compile(lib: &Path, name: &str, source: &str, script: Option<&str>) -> Result<()> {
    let c = lib.join(format!("{name}.c"));
    let map = lib.join(format!("{name}.map"));
    writing(fs::write(&c, source), &c)?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(lib.join(name))
        .arg(&c);
    cc.arg(format!("-Wl,-soname,{name}"));
    if let Some(script) = script {
        writing(fs::write(&map, script), &map)?;
        cc.arg(format!("-Wl,--version-script,{}", map.display()));
    }
    command::output(&mut cc).with_context(|| format!("cannot make the stand-in {name}"))?;
    for path in [c, map] {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Checks that the loader finds every library and every versioned symbol.
fn check_loads(lib: &Path, library: &Path) -> Result<()> {
    let mut ldd = Command::new("ldd");
    let listing = command::output(ldd.arg(library).env("LD_LIBRARY_PATH", lib))?;
    let missing: Vec<&str> = listing
        .lines()
        .filter(|line| line.contains("not found"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "{} does not load here:\n{}\nan older system than the wheel is made for; set LIBTORCH to a libtorch 2.11 that fits",
        library.display(),
        missing.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NM: &str = "                 U cudaGetDeviceCount@libcudart.so.13\n\
                      \x20                U cuptiSubscribe@libcupti.so.13\n\
                      \x20                U cudaGetErrorString@libcudart.so.13\n\
                      \x20                U memcpy@GLIBC_2.14\n\
                      \x20                U _ZN3c105ErrorC1Ev\n";

    #[test]
    fn only_symbols_of_versions_named_like_libraries_get_a_stub() {
        let wanted = versioned_symbols(NM);
        let names: Vec<_> = wanted.keys().map(String::as_str).collect();
        assert_eq!(names, ["libcudart.so.13", "libcupti.so.13"]);
        assert_eq!(wanted["libcudart.so.13"].len(), 2);
    }

    #[test]
    fn stubs_have_the_versions_that_the_loader_asks_for() {
        let lib = tempfile::tempdir().unwrap();
        for (library, symbols) in &versioned_symbols(NM) {
            compile(
                lib.path(),
                library,
                &source(symbols),
                Some(&version_script(library, symbols)),
            )
            .unwrap();
        }
        let mut nm = Command::new("nm");
        nm.args(["-D", "--defined-only", "--with-symbol-versions"])
            .arg(lib.path().join("libcudart.so.13"));
        let found = command::output(&mut nm).unwrap();
        assert!(
            found.contains("cudaGetDeviceCount@@libcudart.so.13"),
            "{found}"
        );
        let left: Vec<_> = fs::read_dir(lib.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
