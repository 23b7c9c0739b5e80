//! The folders of xtask: the checkout, the cache folder, cargo's target folder.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) root: PathBuf,
    /// The folder of downloads, shared by all checkouts of this user.
    pub(crate) cache: PathBuf,
    pub(crate) target: PathBuf,
}

impl Places {
    pub(crate) fn find() -> Result<Self> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .context("CARGO_MANIFEST_DIR is not set: run this as `cargo xtask`")?;
        let parent = Path::new(&manifest).parent().map(Path::to_owned);
        let root = parent.context("CARGO_MANIFEST_DIR has no parent folder")?;
        // The binary is in <target>/<profile>/, also for another target folder.
        let exe = std::env::current_exe().context("cannot tell where xtask itself lies")?;
        let target = exe.ancestors().nth(2).map(Path::to_owned);
        let target =
            target.context("xtask does not lie in a target folder: run it as `cargo xtask`")?;
        let cache = cache_folder()?;
        fs::create_dir_all(&cache).with_context(|| {
            let shown = cache.display();
            format!("cannot make the cache folder {shown} (METACLAW_CACHE names another)")
        })?;
        let cache = cache
            .canonicalize()
            .context("cannot resolve the cache folder")?;
        Ok(Self {
            root,
            cache,
            target,
        })
    }

    /// The git-ignored link that `.cargo/config.toml` gives to torch-sys as `LIBTORCH`.
    pub(crate) fn libtorch_link(&self) -> PathBuf {
        self.root.join(".libtorch")
    }

    /// Partial downloads, so that an interrupted set-up can continue.
    pub(crate) fn partial(&self) -> PathBuf {
        self.cache.join("partial")
    }

    /// Locks the cache folder until dropped; a second set-up waits.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.cache.join("lock");
        let opened = File::create(&path);
        let file = opened.with_context(|| format!("cannot open {}", path.display()))?;
        let locked = match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let shown = self.cache.display();
                println!("waiting: another `cargo xtask` is fetching into {shown}");
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        locked.with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }
}

/// Returns `$METACLAW_CACHE`, else `$XDG_CACHE_HOME/metaclaw`, else `~/.cache/metaclaw`, as the product does.
fn cache_folder() -> Result<PathBuf> {
    let set = |name| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    set("METACLAW_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|base| base.join("metaclaw")))
        .or_else(|| set("HOME").map(|home| home.join(".cache").join("metaclaw")))
        .context("none of METACLAW_CACHE, XDG_CACHE_HOME and HOME is set: set METACLAW_CACHE to a folder for downloads")
}
