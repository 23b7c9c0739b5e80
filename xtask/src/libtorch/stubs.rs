//! Libraries that those of the wheel need on a machine without CUDA.
//!
//! * * `libtorch.so`: the wheel's needs libtorch_cuda, and torch-sys links `-ltorch`; an empty library replaces it.
//! * `libgomp.so`: torch-sys links `-lgomp`; a link to the wheel's own.
//! * `libcudart.so.13`, `libcupti.so.13`: the profiler in libtorch_cpu.so names a few of their functions, as
//!   versioned symbols that the loader looks up. Every stub returns an error, as the real ones do without a driver.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use metaclaw_fetch::{command, writing};

const UNKNOWN_ERROR: u32 = 999;

pub(super) fn complete(lib: &Path) -> Result<()> {
    let torch_cpu = lib.join("libtorch_cpu.so");
    let mut nm = Command::new("nm");
    nm.args(["-D", "--undefined-only", "--with-symbol-versions"]);
    let wanted = versioned_symbols(&command::output(nm.arg(&torch_cpu))?);
    for (library, symbols) in &wanted {
        compile_stub(lib, library, symbols)?;
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
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if is_library && symbol.chars().all(is_plain) {
            let of_library = wanted.entry(library.to_owned()).or_default();
            of_library.insert(symbol.to_owned());
        }
    }
    wanted
}

/// Returns C code without headers: the prototypes do not matter to functions that read no argument, except for the two
/// that return a text, which a caller prints.
fn source(symbols: &BTreeSet<String>) -> String {
    let line = |symbol: &String| match symbol.as_str() {
        "cudaGetErrorString" => {
            format!(
                "const char *{symbol}(int e) {{ (void)e; return \"no CUDA: stand-in library\"; }}\n"
            )
        }
        "cuptiGetResultString" => format!(
            "int {symbol}(int e, const char **text) {{ (void)e; *text = \"no CUPTI: stand-in library\"; return 0; }}\n"
        ),
        _ => format!("int {symbol}(void) {{ return {UNKNOWN_ERROR}; }}\n"),
    };
    symbols.iter().map(line).collect()
}

fn version_script(library: &str, symbols: &BTreeSet<String>) -> String {
    let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
    format!("{library} {{ global: {}; local: *; }};\n", names.join("; "))
}

fn compile_stub(lib: &Path, library: &str, symbols: &BTreeSet<String>) -> Result<()> {
    let script = version_script(library, symbols);
    compile(lib, library, &source(symbols), Some(&script))
}

fn compile(lib: &Path, name: &str, source: &str, script: Option<&str>) -> Result<()> {
    let c = lib.join(format!("{name}.c"));
    let map = lib.join(format!("{name}.map"));
    writing(fs::write(&c, source), &c)?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(lib.join(name));
    cc.arg(&c).arg(format!("-Wl,-soname,{name}"));
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

fn check_loads(lib: &Path, library: &Path) -> Result<()> {
    let mut ldd = Command::new("ldd");
    let listing = command::output(ldd.arg(library).env("LD_LIBRARY_PATH", lib))?;
    let lines = listing.lines();
    let missing: Vec<&str> = lines.filter(|line| line.contains("not found")).collect();
    let (shown, missing) = (library.display(), missing.join("\n"));
    ensure!(
        missing.is_empty(),
        "{shown} does not load here:\n{missing}\nan older system than the wheel is made for; set LIBTORCH to a libtorch 2.11 that fits"
    );
    Ok(())
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
            compile_stub(lib.path(), library, symbols).unwrap();
        }
        let mut nm = Command::new("nm");
        nm.args(["-D", "--defined-only", "--with-symbol-versions"]);
        nm.arg(lib.path().join("libcudart.so.13"));
        let found = command::output(&mut nm).unwrap();
        let symbol = "cudaGetDeviceCount@@libcudart.so.13";
        assert!(found.contains(symbol), "{found}");
        let left = fs::read_dir(lib.path()).unwrap();
        assert_eq!(left.count(), 2, "the sources are gone");
    }
}
