//! `metaclaw trainer install`.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use metaclaw_fetch::{room_for, torch, unpack, unpacked_size};

use super::{
    archive::ArchivePlace,
    check::{self, found},
};
use crate::{
    commands::context::Context,
    installed::{self, InstallationChange, InstalledPrograms, TRAINER},
    out,
    supervise::TrainerOrigin,
};

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The archive metaclaw-trainer-VERSION-x86_64-linux.tar.gz: a file or an address [default: trainer.archive]
    #[arg(long, value_name = "ARCHIVE")]
    from: Option<String>,
    /// The archive's SHA-256. Without it, the one in SHA256SUMS beside the archive.
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Also install PyTorch's libtorch with CUDA, for NVIDIA's GPUs (3 GB to fetch, 8 GB of disk; needs python3 with
    /// pip and venv).
    #[arg(long)]
    cuda: bool,
}

// === impl InstallArgs ===

impl InstallArgs {
    pub(super) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let programs = installed::programs(&context.home);
        let version = check::version(&programs.trainer()).ok();
        let is_same = version.is_some_and(|version| version == env!("CARGO_PKG_VERSION"));
        // What is there needs no archive to be given another libtorch.
        let place = match self.place(context) {
            Err(_) if self.cuda && is_same && self.from.is_none() => None,
            place => Some(place?),
        };
        context.home.create()?;
        let change = programs.change()?;
        if let Some(place) = place {
            let cuda = installed::cuda(&programs.trainer()).filter(|lib| lib.is_dir());
            self.archive(context, &change, &place)?;
            // Who has had one goes on with it.
            if let Some(lib) = cuda {
                change.use_cuda(&lib)?;
            }
        }
        if self.cuda {
            cuda(context, &programs, &change)?;
        }
        tell_what_comes_first(context)?;
        Ok(ExitCode::SUCCESS)
    }

    fn place(&self, context: &Context) -> anyhow::Result<ArchivePlace> {
        if let Some(from) = &self.from {
            return Ok(ArchivePlace::parse(from));
        }
        let config = context.settings(None, Vec::new())?.config;
        match &config.trainer.archive {
            Some(archive) => Ok(ArchivePlace::parse(archive)),
            None => bail!(
                "no release address is configured: give --from FILE or URL of {TRAINER}-{}-x86_64-linux.tar.gz, or set trainer.archive to where it is (in a checkout, `cargo xtask dist` makes it)",
                env!("CARGO_PKG_VERSION")
            ),
        }
    }

    fn archive(
        &self,
        context: &Context,
        change: &InstallationChange<'_>,
        place: &ArchivePlace,
    ) -> anyhow::Result<()> {
        let cache = context.environment.cache();
        let archive = place.checked(self.sha256.as_deref(), &cache)?;
        let shown = archive.path.display().to_string();
        room_for(
            "the training server",
            unpacked_size(&archive.path)?,
            context.home.dir(),
        )?;
        out::line(format!("unpacking {shown}"))?;
        let staged = change.stage();
        unpack(&archive.path, &staged.folder)?;
        usable(&staged.folder).with_context(|| format!("{shown}: nothing was installed"))?;
        change.put(staged)?;
        if archive.is_fetched {
            // A file that stays costs disk, and nothing else.
            fs::remove_file(&archive.path).ok();
        }
        let checked = match archive.against {
            Some(against) => format!("its checksum is that of {against}"),
            None => "no SHA256SUMS lies beside the archive, so its checksum was compared with none"
                .to_owned(),
        };
        out::line(format!(
            "{TRAINER} {} is installed in {} ({checked})",
            env!("CARGO_PKG_VERSION"),
            installed::programs(&context.home).trainer().display()
        ))?;
        Ok(())
    }
}

fn usable(folder: &Path) -> anyhow::Result<()> {
    if !folder.join(TRAINER).is_file() {
        bail!("it has no {TRAINER}: it is another archive than the training server's");
    }
    check::same_release(&check::version(folder)?)
}

fn cuda(
    context: &Context,
    programs: &InstalledPrograms,
    change: &InstallationChange<'_>,
) -> anyhow::Result<()> {
    let libtorch = torch::with_cuda(&context.environment.cache())?;
    change.use_cuda(&libtorch.join("lib"))?;
    if let Err(error) = check::version(&programs.trainer()) {
        change.use_no_cuda()?;
        return Err(error.context("the libtorch with CUDA is not used, that for CPUs is"));
    }
    out::line(format!(
        "its libtorch is that with CUDA in {}",
        libtorch.display()
    ))?;
    Ok(())
}

fn tell_what_comes_first(context: &Context) -> anyhow::Result<()> {
    match found(context)? {
        Some(it) if it.origin != TrainerOrigin::Installed => out::line(format!(
            "but `metaclaw start` takes {} first: remove it to use what is installed",
            it.program.display()
        ))?,
        _ => out::line("`metaclaw start` uses it from now on")?,
    }
    Ok(())
}
