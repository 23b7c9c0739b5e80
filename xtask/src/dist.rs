//! `cargo xtask dist`: what is handed out to people who have no compiler.
//!
//! The proxy is linked against an old C library, and is packed three times: as an archive, as a Python wheel and as an npm
//! package. OpenClaw's extension is packed beside it. The training server is an archive with its libtorch, which `metaclaw trainer install` unpacks. `SHA256SUMS`
//! has a line for each file, and a bill of materials lies beside each program.

mod binary;
mod licences;
mod packages;

pub(crate) use self::binary::strip;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use indicatif::DecimalBytes;
use metaclaw_fetch::{Packed, pack, sha256_of, unpacked_size, writing};

use crate::files;
use crate::places::Places;
use crate::report::StageReport;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const PLATFORM: &str = "x86_64-linux";
const PROXY_BYTES: u64 = 20_000_000;
#[rustfmt::skip]
const LIBTORCH: [&str; 6] =
    ["libtorch.so", "libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"];
#[rustfmt::skip]
const SCRIPTS: [&str; 4] =
    ["start_training_server.sh", "training_server.env", "nginx.conf", "Caddyfile"];
const PROXY_README: &str = include_str!("dist/README-proxy.md");
const TRAINER_README: &str = include_str!("dist/README-trainer.md");

/// Builds and packs into `target/dist`: `proxy`, `trainer`, or both where none is named; `--quick` without the pass over all
/// crates at once, which takes long.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let named = |name: &str| args.iter().any(|arg| arg == name);
    let known = ["--quick", "proxy", "trainer"];
    if let Some(stray) = args.iter().find(|arg| !known.contains(&arg.as_str())) {
        bail!("takes proxy, trainer and --quick, was given `{stray}`");
    }
    let both = named("proxy") == named("trainer");
    let profile = if named("--quick") {
        "release"
    } else {
        "archive"
    };
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "archives are made on Linux on x86-64, for that alone"
    );
    let mut report = StageReport::default();
    let _lock = places.lock()?;
    let out = Dist::new(places)?;
    if both || named("proxy") {
        let built = report.stage("build proxy", |_| binary::build_proxy(places, profile))?;
        report.stage("pack proxy", |stage| {
            out.proxy(&built).map(|note| stage.note = note)
        })?;
    }
    if both || named("trainer") {
        report.stage("libtorch", |stage| crate::libtorch::ensure(places, stage))?;
        let built = report.stage("build trainer", |_| binary::build_trainer(places, profile))?;
        report.stage("pack trainer", |stage| {
            out.trainer(&built).map(|note| stage.note = note)
        })?;
    }
    out.sums()?;
    report.print();
    println!("{}", out.folder.display());
    Ok(())
}

struct Dist<'a> {
    places: &'a Places,
    folder: PathBuf,
    stage: PathBuf,
}

impl<'a> Dist<'a> {
    fn new(places: &'a Places) -> Result<Self> {
        let folder = places.target.join("dist");
        let stage = folder.join("stage");
        if stage.exists() {
            files::remove_folder(&stage)?;
        }
        writing(fs::create_dir_all(&stage), &stage)?;
        Ok(Self {
            places,
            folder,
            stage,
        })
    }

    fn proxy(&self, built: &Path) -> Result<String> {
        let program = self.stripped(built, "metaclaw")?;
        let glibc = binary::glibc(&program)?;
        let (shown, promised) = (built.display(), binary::GLIBC);
        ensure!(
            glibc <= promised,
            "{shown} needs glibc {glibc}, and {promised} is promised"
        );
        let mut files = self.common("metaclaw", PROXY_README, glibc)?;
        files.push(Packed::program(program, "metaclaw"));
        files.push(self.of_checkout("config.example.yaml"));
        let archive = self.pack("metaclaw", &files)?;
        let n_bytes = fs::metadata(self.folder.join(&archive))?.len();
        let (size, most) = (DecimalBytes(n_bytes), DecimalBytes(PROXY_BYTES));
        ensure!(
            n_bytes <= PROXY_BYTES,
            "{archive} has {size}, more than {most}"
        );
        let wheel = packages::wheel(&self.folder, glibc, &files)?;
        let npm = packages::npm(&self.folder, &self.stage, glibc, &files)?;
        let extension = packages::openclaw_extension(&self.folder, &self.places.root)?;
        Ok(format!(
            "{archive}, {size}, for glibc {glibc}; {wheel}; {npm}; {extension}"
        ))
    }

    fn trainer(&self, built: &Path) -> Result<String> {
        let mut files = Vec::new();
        let mut glibc = binary::Version::default();
        for name in ["metaclaw-trainer", "metaclaw-trainer-engine"] {
            let program = self.stripped(&built.join(name), name)?;
            binary::check_run_path(&program)?;
            glibc = glibc.max(binary::glibc(&program)?);
            files.push(Packed::program(program, name));
        }
        files.extend(self.common("metaclaw-trainer", TRAINER_README, glibc)?);
        let libtorch = self.places.libtorch_link();
        let library = |name| Packed::file(libtorch.join("lib").join(name), format!("lib/{name}"));
        files.extend(LIBTORCH.map(library));
        files.extend(licences::of_libtorch(&libtorch)?);
        let examples = self.places.root.join("examples/two-machines");
        files.extend(SCRIPTS.map(|name| Packed {
            is_program: Path::new(name).extension().is_some_and(|end| end == "sh"),
            ..Packed::file(examples.join(name), format!("scripts/{name}"))
        }));
        let archive = self.pack("metaclaw-trainer", &files)?;
        let path = self.folder.join(&archive);
        let sizes = [fs::metadata(&path)?.len(), unpacked_size(&path)?];
        let [size, unpacked] = sizes.map(DecimalBytes);
        Ok(format!(
            "{archive}, {size}, {unpacked} unpacked, for glibc {glibc}"
        ))
    }

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
        let of_version = readme.replace("{version}", VERSION);
        let readme = of_version.replace("{glibc}", &glibc.to_string());
        let metadata = licences::metadata(self.places)?;
        let crates = licences::compiled_in(&metadata, package);
        let bill = self.folder.join(format!("{}.cdx.json", top(package)));
        let text = format!("{:#}\n", licences::bill(package, &crates));
        writing(fs::write(&bill, text), &bill)?;
        Ok(vec![
            write("README.md", readme)?,
            write("THIRD-PARTY.txt", licences::of_crates(&crates))?,
            self.of_checkout("LICENSE-APACHE"),
            self.of_checkout("LICENSE-MIT"),
        ])
    }

    fn of_checkout(&self, name: &str) -> Packed {
        Packed::file(self.places.root.join(name), name)
    }

    fn pack(&self, package: &str, files: &[Packed]) -> Result<String> {
        let top = top(package);
        let archive = format!("{top}.tar.gz");
        pack(&top, files, &self.folder.join(&archive))?;
        Ok(archive)
    }

    fn sums(&self) -> Result<()> {
        let mut text = String::new();
        for path in files::list(&self.folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_file() && name.contains(&format!("-{VERSION}")) {
                let hashed = sha256_of(&path);
                let sum = hashed.with_context(|| format!("cannot read {}", path.display()))?;
                let _ = writeln!(text, "{sum}  {name}");
            }
        }
        let path = self.folder.join("SHA256SUMS");
        writing(fs::write(&path, text), &path)
    }
}

fn top(package: &str) -> String {
    format!("{package}-{VERSION}-{PLATFORM}")
}
