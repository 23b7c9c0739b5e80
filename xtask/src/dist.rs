//! `cargo xtask dist`: what is handed out to people who have no compiler.
//!
//! The proxy is linked against an old C library, and is packed three times: as an archive, as a Python wheel and as an npm
//! package. OpenClaw's extension is packed beside it. The training server is an archive with its libtorch, which `metaclaw trainer install` unpacks. `SHA256SUMS`
//! has a line for each file, and a bill of materials lies beside each program.

mod binary;
mod build;
mod notices;
mod npm_package;
mod openclaw_extension;
mod sbom;
mod wheel;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use indicatif::DecimalBytes;
use metaclaw_fetch::{Packed, pack, sha256_of, unpacked_size, writing};

use crate::places::Places;
use crate::report::StageReport;

/// What the two programs run on.
const PLATFORM: &str = "x86_64-linux";
/// The most that the proxy's archive may take.
const PROXY_BYTES: u64 = 20_000_000;
/// Parts of libtorch that the training server loads on a CPU.
const LIBTORCH: [&str; 6] = [
    "libtorch.so",
    "libtorch_cpu.so",
    "libc10.so",
    "libgomp.so.1",
    "libcudart.so.13",
    "libcupti.so.13",
];
/// What goes from the checkout into both.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// Files of an example that go into the training server's archive, and where.
const SCRIPTS: [&str; 4] = [
    "start_training_server.sh",
    "training_server.env",
    "nginx.conf",
    "Caddyfile",
];
const PROXY_README: &str = include_str!("dist/README-proxy.md");
const TRAINER_README: &str = include_str!("dist/README-trainer.md");

/// What is to be made.
#[derive(Debug, PartialEq, Eq)]
struct DistOptions {
    profile: &'static str,
    proxy: bool,
    trainer: bool,
}

/// Builds and packs into `target/dist`: `proxy`, `trainer`, or both where none is named; `--quick` without the pass over all
/// crates at once, which takes long.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let options = DistOptions::from_args(args)?;
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "archives are made on Linux on x86-64, for that alone"
    );
    let mut report = StageReport::default();
    let _lock = places.lock()?;
    let out = Dist::new(places)?;
    if options.proxy {
        let built = report.stage("build proxy", |_| build::proxy(places, options.profile))?;
        report.stage("pack proxy", |stage| {
            stage.note = out.proxy(&built)?;
            Ok(())
        })?;
    }
    if options.trainer {
        report.stage("libtorch", |stage| crate::libtorch::ensure(places, stage))?;
        let built = report.stage("build trainer", |_| build::trainer(places, options.profile))?;
        report.stage("pack trainer", |stage| {
            stage.note = out.trainer(&built)?;
            Ok(())
        })?;
    }
    out.sums()?;
    report.print();
    println!("{}", out.folder.display());
    Ok(())
}

// === impl Options ===

impl DistOptions {
    fn from_args(args: &[String]) -> Result<Self> {
        let named = |name: &str| args.iter().any(|it| it == name);
        if let Some(stray) = args
            .iter()
            .find(|it| !["--quick", "proxy", "trainer"].contains(&it.as_str()))
        {
            bail!("takes proxy, trainer and --quick, was given `{stray}`");
        }
        let all = !named("proxy") && !named("trainer");
        Ok(Self {
            profile: if named("--quick") {
                "release"
            } else {
                "archive"
            },
            proxy: all || named("proxy"),
            trainer: all || named("trainer"),
        })
    }
}

/// The folder of archives that is being filled.
struct Dist<'a> {
    places: &'a Places,
    folder: PathBuf,
    /// Files that are made for an archive.
    stage: PathBuf,
}

impl<'a> Dist<'a> {
    fn new(places: &'a Places) -> Result<Self> {
        let folder = places.target.join("dist");
        let stage = folder.join("stage");
        if stage.exists() {
            let removed = fs::remove_dir_all(&stage);
            removed.with_context(|| format!("cannot remove {}", stage.display()))?;
        }
        writing(fs::create_dir_all(&stage), &stage)?;
        Ok(Self {
            places,
            folder,
            stage,
        })
    }

    /// Packs the proxy; what is to be said of it.
    fn proxy(&self, built: &Path) -> Result<String> {
        let program = self.stripped(built, "metaclaw")?;
        let glibc = binary::glibc(&program)?;
        ensure!(
            glibc <= build::GLIBC,
            "{} needs glibc {glibc}, and {} is promised",
            built.display(),
            build::GLIBC
        );
        let mut files = self.common("metaclaw", PROXY_README, glibc)?;
        files.push(Packed::program(program.clone(), "metaclaw"));
        files.push(self.of_checkout("config.example.yaml"));
        let (archive, size) = self.pack("metaclaw", &files)?;
        let wheel = self.wheel(&program, glibc)?;
        let npm = npm_package::write(&self.folder, &self.stage, glibc, files)?;
        let extension = openclaw_extension::write(&self.folder, &self.places.root)?;
        ensure!(
            size <= PROXY_BYTES,
            "{archive} has {}, more than {}",
            DecimalBytes(size),
            DecimalBytes(PROXY_BYTES)
        );
        Ok(format!(
            "{archive}, {}, for glibc {glibc}; {wheel}; {npm}; {extension}",
            DecimalBytes(size)
        ))
    }

    /// Packs the proxy for pip.
    fn wheel(&self, program: &Path, glibc: binary::Version) -> Result<String> {
        let readme = self.stage.join("metaclaw-README.md");
        let readme = fs::read_to_string(&readme)
            .with_context(|| format!("cannot read {}", readme.display()))?;
        let licences: Vec<PathBuf> = LICENCES
            .iter()
            .map(|name| self.places.root.join(name))
            .chain([self.stage.join("metaclaw-THIRD-PARTY.txt")])
            .collect();
        let licences: Vec<&Path> = licences.iter().map(PathBuf::as_path).collect();
        wheel::write(&self.folder, program, glibc, &readme, &licences)
    }

    /// Packs the training server; what is to be said of it.
    fn trainer(&self, built: &Path) -> Result<String> {
        let names = ["metaclaw-trainer", "metaclaw-trainer-engine"];
        let programs = names.map(|name| self.stripped(&built.join(name), name));
        let mut files = Vec::new();
        let mut glibc = binary::Version::default();
        for (program, name) in programs.into_iter().zip(names) {
            let program = program?;
            binary::check_run_path(&program)?;
            glibc = glibc.max(binary::glibc(&program)?);
            files.push(Packed::program(program, name));
        }
        files.extend(self.common("metaclaw-trainer", TRAINER_README, glibc)?);
        let libtorch = self.places.libtorch_link();
        files.extend(
            LIBTORCH
                .map(|name| Packed::file(libtorch.join("lib").join(name), format!("lib/{name}"))),
        );
        files.extend(notices::of_libtorch(&libtorch)?);
        files.extend(SCRIPTS.map(|name| {
            let from = self.places.root.join("examples/two-machines").join(name);
            let to = format!("scripts/{name}");
            if Path::new(name).extension().is_some_and(|it| it == "sh") {
                Packed::program(from, to)
            } else {
                Packed::file(from, to)
            }
        }));
        let (archive, size) = self.pack("metaclaw-trainer", &files)?;
        let unpacked = unpacked_size(&self.folder.join(&archive))?;
        Ok(format!(
            "{archive}, {}, {} unpacked, for glibc {glibc}",
            DecimalBytes(size),
            DecimalBytes(unpacked)
        ))
    }

    /// The program without symbols.
    fn stripped(&self, built: &Path, name: &str) -> Result<PathBuf> {
        let to = self.stage.join(name);
        binary::strip(built, &to)?;
        Ok(to)
    }

    /// README, our licences, and those of all crates that are compiled in. The bill of materials is written beside the
    /// archives.
    fn common(&self, package: &str, readme: &str, glibc: binary::Version) -> Result<Vec<Packed>> {
        let write = |name: &str, text: String| -> Result<Packed> {
            let path = self.stage.join(format!("{package}-{name}"));
            writing(fs::write(&path, text), &path)?;
            Ok(Packed::file(path, name))
        };
        let readme = readme
            .replace("{version}", env!("CARGO_PKG_VERSION"))
            .replace("{glibc}", &glibc.to_string());
        let metadata = notices::metadata(self.places)?;
        let crates = notices::compiled_in(&metadata, package);
        let bill = self.folder.join(bill_of(package));
        writing(
            fs::write(&bill, format!("{:#}\n", sbom::of(package, &crates))),
            &bill,
        )?;
        let mut files = vec![
            write("README.md", readme)?,
            write("THIRD-PARTY.txt", notices::of_crates(&crates))?,
        ];
        files.extend(LICENCES.map(|name| self.of_checkout(name)));
        Ok(files)
    }

    fn of_checkout(&self, name: &str) -> Packed {
        Packed::file(self.places.root.join(name), name)
    }

    /// The archive's name and size.
    fn pack(&self, package: &str, files: &[Packed]) -> Result<(String, u64)> {
        let top = top(package);
        let archive = format!("{top}.tar.gz");
        let path = self.folder.join(&archive);
        pack(&top, files, &path)?;
        let size = fs::metadata(&path)
            .with_context(|| format!("cannot read {}", path.display()))?
            .len();
        Ok((archive, size))
    }

    /// Lists the files of this version, made now or before, as `sha256sum -c SHA256SUMS` reads them.
    fn sums(&self) -> Result<()> {
        let list = fs::read_dir(&self.folder)
            .with_context(|| format!("cannot list {}", self.folder.display()))?;
        let version = format!("-{}", env!("CARGO_PKG_VERSION"));
        let mut files: Vec<PathBuf> = list
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file() && file_name(path).contains(&version))
            .collect();
        files.sort();
        let mut text = String::new();
        for path in files {
            let sum =
                sha256_of(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let _ = writeln!(text, "{sum}  {}", file_name(&path));
        }
        let path = self.folder.join("SHA256SUMS");
        writing(fs::write(&path, text), &path)
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The file name of a package's bill of materials.
fn bill_of(package: &str) -> String {
    format!("{}.cdx.json", top(package))
}

/// The folder that an archive holds.
fn top(package: &str) -> String {
    format!("{package}-{}-{PLATFORM}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_made_unless_one_is_named() {
        let options = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            DistOptions::from_args(&args).map(|it| (it.profile, it.proxy, it.trainer))
        };
        assert_eq!(options(&[]).unwrap(), ("archive", true, true));
        let quick = options(&["trainer", "--quick"]).unwrap();
        assert_eq!(quick, ("release", false, true));
        assert!(options(&["--fast"]).is_err());
    }
}
