//! The modules of a crate, from its first file on, as their tokens show them. Nothing is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::files;

#[rustfmt::skip]
const ITEMS: [&str; 8] = ["struct", "enum", "trait", "type", "const", "static", "fn", "union"];

/// The modules of one crate. The first is the crate's root.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub(super) files: Vec<PathBuf>,
    pub(super) all: Vec<Module>,
}

#[derive(Debug, Default)]
pub(super) struct Module {
    /// Index in [`Modules::files`].
    pub(super) file: usize,
    pub(super) parent: Option<usize>,
    pub(super) children: BTreeMap<String, usize>,
    pub(super) defines: BTreeSet<String>,
    pub(super) imports: Vec<UseImport>,
    /// All paths outside `use`, also those of one word.
    pub(super) paths: BTreeSet<Vec<String>>,
    folder: PathBuf,
    /// `mod x;`: the name, and the file that `#[path]` names.
    declares: Vec<(String, Option<String>)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct UseImport {
    pub(super) path: Vec<String>,
    /// The name in this module; `None` for `*`.
    pub(super) name: Option<String>,
    /// Whether this is a `pub use`, however far it reaches.
    pub(super) is_reexport: bool,
}

// === impl UseImport ===

impl UseImport {
    fn new(path: Vec<String>, name: Option<String>, is_reexport: bool) -> Self {
        Self {
            path,
            name,
            is_reexport,
        }
    }
}

// === impl Modules ===

impl Modules {
    /// Reads the crate whose first file is `root`.
    ///
    /// # Errors
    /// A file that is missing or is not Rust.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut modules = Self::default();
        let folder = root.parent().unwrap_or(root).to_owned();
        modules.add_file(root, folder, None)?;
        Ok(modules)
    }

    pub(super) fn is_below(&self, module: usize, ancestor: usize) -> bool {
        let mut above = std::iter::successors(self.all[module].parent, |at| self.all[*at].parent);
        above.any(|at| at == ancestor)
    }

    fn add_file(&mut self, path: &Path, folder: PathBuf, parent: Option<usize>) -> Result<usize> {
        let read = TokenStream::from_str(&files::read(path)?);
        let tokens = read.map_err(|error| anyhow!("{} is not Rust: {error}", path.display()))?;
        self.files.push(path.to_owned());
        let first = self.all.len();
        self.add_module(tokens, folder, parent, self.files.len() - 1);
        for at in first..self.all.len() {
            for (name, named) in std::mem::take(&mut self.all[at].declares) {
                let inside = self.all[at].folder.join(&name);
                let beside = inside.with_extension("rs");
                let file = match named {
                    Some(named) => path.with_file_name(named),
                    None if beside.is_file() => beside,
                    None => inside.join("mod.rs"),
                };
                let child = self.add_file(&file, inside, Some(at))?;
                self.all[at].children.insert(name, child);
            }
        }
        Ok(first)
    }

    fn add_module(
        &mut self,
        tokens: TokenStream,
        folder: PathBuf,
        parent: Option<usize>,
        file: usize,
    ) -> usize {
        let at = self.all.len();
        let empty = Module::default();
        self.all.push(Module {
            file,
            parent,
            folder,
            ..empty
        });
        self.read_tokens(tokens, at, true);
        at
    }

    /// Notes what the tokens declare, define, import and name. Only what stands beside other items is defined for all.
    fn read_tokens(&mut self, tokens: TokenStream, module: usize, are_items: bool) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: usize, mark: char| matches!(trees.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == mark);
        let word_at = |at: usize| match trees.get(at) {
            Some(TokenTree::Ident(ident)) => {
                Some(ident.to_string().trim_start_matches("r#").to_owned())
            }
            _ => None,
        };
        let before = |at: usize, n: usize, mark| at >= n && is(at - n, mark);
        let (mut at, mut named_file) = (0, None);
        while at < trees.len() {
            if let TokenTree::Group(group) = &trees[at] {
                let is_attribute = before(at, 1, '#') || before(at, 1, '!') && before(at, 2, '#');
                if !is_attribute {
                    self.read_tokens(group.stream(), module, false);
                } else if let Some(path) = path_attribute(group.stream()) {
                    named_file = Some(path);
                }
            }
            let Some(first) = word_at(at) else {
                at += 1;
                continue;
            };
            match (first.as_str(), word_at(at + 1)) {
                ("use", _) if !is(at + 1, '<') => {
                    let length = (at..trees.len()).take_while(|end| !is(*end, ';')).count();
                    // A path that begins with `::` is another crate's.
                    if !is(at + 1, ':') {
                        let is_reexport = at > 0 && is_public(&trees[..at]);
                        let imports = &mut self.all[module].imports;
                        add_leaves(&trees[at + 1..at + length], &[], is_reexport, imports);
                    }
                    at += length;
                    continue;
                }
                ("mod", Some(name)) => {
                    if let Some(TokenTree::Group(body)) = trees.get(at + 2) {
                        let folder = self.all[module].folder.join(&name);
                        let file = self.all[module].file;
                        let child = self.add_module(body.stream(), folder, Some(module), file);
                        self.all[module].children.insert(name, child);
                    } else {
                        self.all[module].declares.push((name, named_file.take()));
                    }
                    at += 3;
                    continue;
                }
                (word, Some(name)) if are_items && ITEMS.contains(&word) => {
                    self.all[module].defines.insert(name);
                }
                ("macro_rules", _) => {
                    self.all[module].defines.extend(word_at(at + 2));
                }
                _ => {}
            }
            let mut path = vec![first];
            // A lifetime, a field, a method, or a path of another crate.
            let is_tail = before(at, 1, '\'')
                || before(at, 1, '.') && !before(at, 2, '.')
                || before(at, 1, ':') && before(at, 2, ':');
            let is_method = at > 0 && word_at(at - 1).is_some_and(|word| word == "fn");
            while let (true, true, Some(next)) = (is(at + 1, ':'), is(at + 2, ':'), word_at(at + 3))
            {
                path.push(next);
                at += 3;
            }
            let is_macro = is(at + 1, '!') && !is(at + 2, '=');
            let is_field = path.len() == 1 && is(at + 1, ':') && !is(at + 2, ':');
            if !(is_tail || is_macro || is_field || is_method) {
                self.all[module].paths.insert(path);
            }
            at += 1;
        }
    }
}

fn is_public(before: &[TokenTree]) -> bool {
    let is_pub = |tree: &TokenTree| matches!(tree, TokenTree::Ident(word) if word == "pub");
    match before {
        [.., word, TokenTree::Group(group)] => {
            group.delimiter() == Delimiter::Parenthesis && is_pub(word)
        }
        [.., word] => is_pub(word),
        [] => false,
    }
}

fn path_attribute(tokens: TokenStream) -> Option<String> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    match &trees[..] {
        [
            TokenTree::Ident(name),
            TokenTree::Punct(_),
            TokenTree::Literal(text),
        ] if name == "path" => Some(text.to_string().trim_matches('"').to_owned()),
        _ => None,
    }
}

fn add_leaves(
    tree: &[TokenTree],
    prefix: &[String],
    is_reexport: bool,
    imports: &mut Vec<UseImport>,
) {
    let mut path = prefix.to_vec();
    let mut renamed = None;
    for (at, part) in tree.iter().enumerate() {
        match part {
            TokenTree::Ident(word) if word == "as" => {
                renamed = tree.get(at + 1).map(ToString::to_string);
                break;
            }
            // `a::{self}` is `a`.
            TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
            TokenTree::Ident(word) => {
                path.push(word.to_string().trim_start_matches("r#").to_owned());
            }
            TokenTree::Punct(star) if star.as_char() == '*' => {
                imports.push(UseImport::new(path, None, is_reexport));
                return;
            }
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |tree: &TokenTree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ',');
                for leaf in inner.split(is_comma).filter(|leaf| !leaf.is_empty()) {
                    add_leaves(leaf, &path, is_reexport, imports);
                }
                return;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    let name = renamed.or_else(|| path.last().cloned());
    imports.push(UseImport::new(path, name, is_reexport));
}
