//! The modules of a crate, from its first file on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::source::{self, Scope};

/// All of them; the first is the crate itself.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub(super) files: Vec<PathBuf>,
    pub(super) all: Vec<Module>,
}

/// One of them, by index in [`Modules::all`].
#[derive(Debug)]
pub(super) struct Module {
    /// Index in [`Modules::files`].
    pub(super) file: usize,
    pub(super) parent: Option<usize>,
    pub(super) children: BTreeMap<String, usize>,
    pub(super) scope: Scope,
}

/// Reads the crate whose first file is `root`.
pub(super) fn read(root: &Path) -> Result<Modules> {
    let mut modules = Modules::default();
    let folder = root
        .parent()
        .context("the first file of a crate lies in no folder")?;
    modules.add(root.to_owned(), folder, None)?;
    Ok(modules)
}

impl Modules {
    /// Adds the file's modules and those that it declares, which lie in `folder`; returns the first.
    fn add(
        &mut self,
        path: PathBuf,
        folder: &Path,
        parent: Option<usize>,
    ) -> Result<Option<usize>> {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = self.files.len();
        self.files.push(path);
        let first = self.all.len();
        let mut folders: Vec<PathBuf> = Vec::new();
        for scope in source::read(&text) {
            let (parent, folder) = match &scope.within {
                Some((within, name)) => {
                    let parent = first + within;
                    let child = self.all.len();
                    self.all[parent].children.insert(name.clone(), child);
                    (Some(parent), folders[*within].join(name))
                }
                None => (parent, folder.to_owned()),
            };
            folders.push(folder);
            self.all.push(Module {
                file,
                parent,
                children: BTreeMap::new(),
                scope,
            });
        }
        for (at, folder) in folders.iter().enumerate() {
            self.add_declared(first + at, folder)?;
        }
        Ok((!folders.is_empty()).then_some(first))
    }

    fn add_declared(&mut self, module: usize, folder: &Path) -> Result<()> {
        for name in self.all[module].scope.declares.clone() {
            let inside = folder.join(&name);
            let beside = folder.join(format!("{name}.rs"));
            let path = if beside.is_file() {
                beside
            } else {
                inside.join("mod.rs")
            };
            if let Some(child) = self.add(path, &inside, Some(module))? {
                self.all[module].children.insert(name, child);
            }
        }
        Ok(())
    }
}
