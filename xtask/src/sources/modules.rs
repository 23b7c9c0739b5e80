//! The modules of a crate, from its first file on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::scope::{self, Declared, Scope};

/// The modules of one crate. The first is the crate's root.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) all: Vec<Module>,
}

/// One module, named by its index in [`Modules::all`].
#[derive(Debug)]
pub(crate) struct Module {
    /// Index in [`Modules::files`].
    pub(crate) file: usize,
    pub(crate) parent: Option<usize>,
    pub(crate) children: BTreeMap<String, usize>,
    pub(crate) scope: Scope,
}

/// Where a file of modules lies, and what it is part of.
struct Place {
    path: PathBuf,
    /// The folder of the modules that the file declares.
    folder: PathBuf,
    parent: Option<usize>,
}

impl Modules {
    /// Reads the crate whose first file is `root`.
    ///
    /// # Errors
    /// A file that is missing or is not Rust.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let folder = root
            .parent()
            .context("the first file of a crate lies in no folder")?;
        let mut modules = Self::default();
        modules.add(Place {
            path: root.to_owned(),
            folder: folder.to_owned(),
            parent: None,
        })?;
        Ok(modules)
    }

    /// Whether `module` stands somewhere below `ancestor`.
    pub(crate) fn is_below(&self, module: usize, ancestor: usize) -> bool {
        let mut above = std::iter::successors(self.all[module].parent, |at| self.all[*at].parent);
        above.any(|at| at == ancestor)
    }

    /// Adds the modules of a file and of the files that it declares; returns the file's own.
    fn add(&mut self, place: Place) -> Result<usize> {
        let path = &place.path;
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let scopes =
            scope::read(&text).with_context(|| format!("{} is not Rust", path.display()))?;
        let file = self.files.len();
        self.files.push(place.path);
        let first = self.all.len();
        let mut folders: Vec<PathBuf> = Vec::new();
        for scope in scopes {
            let (parent, folder) = match &scope.within {
                Some((within, name)) => {
                    let parent = first + within;
                    let child = self.all.len();
                    self.all[parent].children.insert(name.clone(), child);
                    (Some(parent), folders[*within].join(name))
                }
                None => (place.parent, place.folder.clone()),
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
            for declared in self.all[first + at].scope.declares.clone() {
                self.add_declared(first + at, &declared, folder)?;
            }
        }
        Ok(first)
    }

    fn add_declared(&mut self, parent: usize, declared: &Declared, folder: &Path) -> Result<()> {
        let inside = folder.join(&declared.name);
        let beside = folder.join(format!("{}.rs", declared.name));
        let path = match &declared.path {
            Some(path) => self.files[self.all[parent].file].with_file_name(path),
            None if beside.is_file() => beside,
            None => inside.join("mod.rs"),
        };
        let child = self.add(Place {
            path,
            folder: inside,
            parent: Some(parent),
        })?;
        let children = &mut self.all[parent].children;
        children.insert(declared.name.clone(), child);
        Ok(())
    }
}
