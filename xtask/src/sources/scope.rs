//! One file, as syn reads it: the modules in it, and what each declares, defines, imports and names.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Lit, Meta, Visibility};

/// One module of a file: the file's own first, then the modules in braces.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// The module in braces: its name, and the index of the scope around it.
    pub(super) within: Option<(usize, String)>,
    /// Modules in files of their own: `mod x;`.
    pub(super) declares: Vec<Declared>,
    /// Names of items, macros included.
    pub(crate) defines: BTreeSet<String>,
    pub(crate) imports: Vec<UseImport>,
    /// Paths of two words and more, outside `use`.
    pub(crate) paths: BTreeSet<Vec<String>>,
    /// First words of all paths, outside `use`.
    pub(crate) words: BTreeSet<String>,
}

/// `mod x;`.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    pub(super) name: String,
    /// The file that `#[path]` names.
    pub(super) path: Option<String>,
}

/// One name that a `use` brings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UseImport {
    pub(crate) path: Vec<String>,
    /// The name in this module; `None` for `*`.
    pub(crate) name: Option<String>,
    /// Whether this is a `pub use`, however far it reaches.
    pub(crate) is_reexport: bool,
}

/// Reads a file.
///
/// # Errors
/// Text that is not Rust: syn's complaint.
pub(super) fn read(text: &str) -> syn::Result<Vec<Scope>> {
    let file = syn::parse_file(text)?;
    let mut reader = Reader {
        scopes: vec![Scope::default()],
        ..Reader::default()
    };
    reader.visit_file(&file);
    Ok(reader.scopes)
}

#[derive(Default)]
struct Reader {
    scopes: Vec<Scope>,
    /// The scope that is being read.
    at: usize,
    /// Blocks that are open: what is defined in one is nobody else's to import.
    n_blocks: usize,
}

impl Reader {
    fn scope(&mut self) -> &mut Scope {
        &mut self.scopes[self.at]
    }

    fn define(&mut self, name: &Ident) {
        if self.n_blocks == 0 {
            let name = word(name);
            self.scope().defines.insert(name);
        }
    }

    fn note_path(&mut self, path: Vec<String>) {
        let scope = self.scope();
        scope.words.extend(path.first().cloned());
        if path.len() > 1 {
            scope.paths.insert(path);
        }
    }

    /// Notes the paths among the tokens that a macro is given.
    fn tokens(&mut self, tokens: &TokenStream) {
        let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let is = |at: usize, mark: char| matches!(trees.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == mark);
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            match tree {
                TokenTree::Group(group) => self.tokens(&group.stream()),
                TokenTree::Ident(first) => {
                    let before = |n: usize, mark| at >= n && is(at - n, mark);
                    // A field, a method, or a path of another crate.
                    let is_tail =
                        before(1, '.') && !before(2, '.') || before(1, ':') && before(2, ':');
                    let mut path = vec![word(first)];
                    while let (true, true, Some(TokenTree::Ident(next))) =
                        (is(at + 1, ':'), is(at + 2, ':'), trees.get(at + 3))
                    {
                        path.push(word(next));
                        at += 3;
                    }
                    if !is_tail {
                        self.note_path(path);
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            at += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.n_blocks += 1;
        visit::visit_block(self, block);
        self.n_blocks -= 1;
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let name = word(&module.ident);
        let Some((_, items)) = &module.content else {
            let path = path_attribute(&module.attrs);
            self.scope().declares.push(Declared { name, path });
            return;
        };
        let around = self.at;
        self.at = self.scopes.len();
        self.scopes.push(Scope {
            within: Some((around, name)),
            ..Scope::default()
        });
        for item in items {
            self.visit_item(item);
        }
        self.at = around;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A path that begins with `::` is another crate's.
        if item.leading_colon.is_none() {
            let is_reexport = !matches!(item.vis, Visibility::Inherited);
            let imports = &mut self.scope().imports;
            leaves(&item.tree, &[], is_reexport, imports);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.define(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.define(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.define(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.define(&item.ident);
        visit::visit_item_type(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.define(&item.ident);
        visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.define(&item.ident);
        visit::visit_item_static(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if let Some(name) = &item.ident {
            self.define(name);
        }
        visit::visit_item_macro(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.define(&item.sig.ident);
        visit::visit_item_fn(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let words = path.segments.iter().map(|segment| word(&segment.ident));
            self.note_path(words.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(&mac.tokens);
        visit::visit_macro(self, mac);
    }
}

fn word(ident: &Ident) -> String {
    let text = ident.to_string();
    match text.strip_prefix("r#") {
        Some(word) => word.to_owned(),
        None => text,
    }
}

/// The text of `#[path = ".."]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        match &pair.value {
            Expr::Lit(value) if pair.path.is_ident("path") => match &value.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        }
    })
}

/// Adds each name that a `use` brings.
fn leaves(tree: &syn::UseTree, prefix: &[String], is_reexport: bool, found: &mut Vec<UseImport>) {
    let joined = |ident: &Ident| {
        let mut path = prefix.to_vec();
        // `a::{self}` is `a`.
        if prefix.is_empty() || ident != "self" {
            path.push(word(ident));
        }
        path
    };
    let mut add = |path: Vec<String>, name| {
        found.push(UseImport {
            path,
            name,
            is_reexport,
        });
    };
    match tree {
        syn::UseTree::Path(part) => leaves(&part.tree, &joined(&part.ident), is_reexport, found),
        syn::UseTree::Name(leaf) => {
            let path = joined(&leaf.ident);
            let name = path.last().cloned();
            add(path, name);
        }
        syn::UseTree::Rename(leaf) => add(joined(&leaf.ident), Some(word(&leaf.rename))),
        syn::UseTree::Glob(_) => add(prefix.to_vec(), None),
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                leaves(tree, prefix, is_reexport, found);
            }
        }
    }
}

#[cfg(test)]
mod tests;
