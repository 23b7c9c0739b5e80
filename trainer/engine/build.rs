//! Compiles what the bindings of libtorch lack (`aten/aten.cpp`), and lets the tests and examples of this package find
//! libtorch at run time.
//!
//! torch-sys links libtorch and sets no rpath. Its `libtorch_lib` reaches only the build scripts of direct dependants,
//! and `rustc-link-arg` only the targets of one package. Therefore every package that makes a binary with libtorch
//! needs such a script, and torch-sys as a direct dependency.

use std::path::PathBuf;

#[expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to a build script by environment"
)]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=aten/aten.cpp");
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
    // The path leads from target/<profile>/{deps,examples}/ to the link in the checkout, which may be moved.
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../../.libtorch/lib");
    let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") else {
        return;
    };
    println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    // As torch-sys finds them.
    let include = match std::env::var("LIBTORCH_INCLUDE") {
        Ok(folder) => PathBuf::from(folder).join("include"),
        Err(_) => PathBuf::from(lib).with_file_name("include"),
    };
    let abi = std::env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(include.join("torch/csrc/api/include"))
        .include(include)
        .define("_GLIBCXX_USE_CXX11_ABI", abi.as_str())
        .file("aten/aten.cpp")
        .compile("metaclaw_aten");
}
