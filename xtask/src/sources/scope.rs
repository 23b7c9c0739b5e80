//! One file, as syn reads it: the modules in it, and what each declares, defines, imports and names.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, FnArg, Lit, Meta, Type, Visibility};

/// One module of a file: the file's own first, then the modules in braces.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// The module in braces: its name, and the index of the scope around it.
    pub(super) within: Option<(usize, String)>,
    /// Modules in files of their own: `mod x;`.
    pub(super) declares: Vec<Declared>,
    /// Whether the module is built for tests only, as far as this file says.
    pub(super) is_test: bool,
    /// Names of items, macros included.
    pub(crate) defines: BTreeSet<String>,
    pub(crate) imports: Vec<UseImport>,
    /// Paths of two words and more, outside `use`.
    pub(crate) paths: BTreeSet<Vec<String>>,
    /// First words of all paths, outside `use`.
    pub(crate) words: BTreeSet<String>,
    /// Structs, enums, traits and type aliases outside tests.
    pub(crate) types: Vec<NamedItem>,
    /// Functions outside tests that take a tuple, each with the line of the parameter.
    pub(crate) tuples: Vec<NamedItem>,
}

/// `mod x;`.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    pub(super) name: String,
    /// The file that `#[path]` names.
    pub(super) path: Option<String>,
    pub(super) is_test: bool,
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

/// An item and the line that it begins at.
#[derive(Debug)]
pub(crate) struct NamedItem {
    pub(crate) name: String,
    pub(crate) line: usize,
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
    reader.scopes[0].is_test = is_test(&file.attrs);
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
    /// Items of test code that are open, modules in braces not counted.
    n_tests: usize,
    /// Whether this is an `impl` of a trait, which says what its functions take.
    is_of_trait: bool,
}

impl Reader {
    fn scope(&mut self) -> &mut Scope {
        &mut self.scopes[self.at]
    }

    fn is_in_test(&self) -> bool {
        let mut scope = &self.scopes[self.at];
        while let (false, Some((around, _))) = (scope.is_test, &scope.within) {
            scope = &self.scopes[*around];
        }
        scope.is_test || self.n_tests > 0
    }

    fn define(&mut self, name: &Ident) {
        if self.n_blocks == 0 {
            let name = word(name);
            self.scope().defines.insert(name);
        }
    }

    fn define_type(&mut self, name: &Ident, attributes: &[Attribute]) {
        self.define(name);
        if !self.is_in_test() && !is_test(attributes) {
            let named = NamedItem::new(name);
            self.scope().types.push(named);
        }
    }

    /// Reads what is inside an item, which may be of test code.
    fn inside(&mut self, attributes: &[Attribute], read: impl FnOnce(&mut Self)) {
        let n_tests = self.n_tests;
        self.n_tests += usize::from(is_test(attributes));
        read(self);
        self.n_tests = n_tests;
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
        let is_test = is_test(&module.attrs);
        let Some((_, items)) = &module.content else {
            let path = path_attribute(&module.attrs);
            self.scope().declares.push(Declared {
                name,
                path,
                is_test,
            });
            return;
        };
        let around = self.at;
        self.at = self.scopes.len();
        self.scopes.push(Scope {
            within: Some((around, name)),
            is_test,
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
        self.define_type(&item.ident, &item.attrs);
        self.inside(&item.attrs, |me| visit::visit_item_struct(me, item));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.define_type(&item.ident, &item.attrs);
        self.inside(&item.attrs, |me| visit::visit_item_enum(me, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.define_type(&item.ident, &item.attrs);
        self.inside(&item.attrs, |me| visit::visit_item_trait(me, item));
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.define_type(&item.ident, &item.attrs);
        self.inside(&item.attrs, |me| visit::visit_item_type(me, item));
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.define(&item.ident);
        self.inside(&item.attrs, |me| visit::visit_item_const(me, item));
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.define(&item.ident);
        self.inside(&item.attrs, |me| visit::visit_item_static(me, item));
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if let Some(name) = &item.ident {
            self.define(name);
        }
        visit::visit_item_macro(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.define(&item.sig.ident);
        self.inside(&item.attrs, |me| visit::visit_item_fn(me, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let is_around = std::mem::replace(&mut self.is_of_trait, item.trait_.is_some());
        self.inside(&item.attrs, |me| visit::visit_item_impl(me, item));
        self.is_of_trait = is_around;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.inside(&item.attrs, |me| visit::visit_impl_item_fn(me, item));
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if !self.is_of_trait && !self.is_in_test() {
            let takes = signature.inputs.iter().filter_map(|input| match input {
                FnArg::Typed(typed) if is_tuple(&typed.ty) => Some(typed.colon_token.spans[0]),
                FnArg::Typed(_) | FnArg::Receiver(_) => None,
            });
            let tuples: Vec<NamedItem> = takes
                .map(|span| NamedItem {
                    name: word(&signature.ident),
                    line: span.start().line,
                })
                .collect();
            self.scope().tuples.extend(tuples);
        }
        visit::visit_signature(self, signature);
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

impl NamedItem {
    fn new(name: &Ident) -> Self {
        Self {
            name: word(name),
            line: name.span().start().line,
        }
    }
}

/// An identifier without its `r#`.
fn word(ident: &Ident) -> String {
    let text = ident.to_string();
    match text.strip_prefix("r#") {
        Some(word) => word.to_owned(),
        None => text,
    }
}

/// `(A, B)` and references to it.
fn is_tuple(of: &Type) -> bool {
    match of {
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

/// Whether `#[test]` or a `cfg(..)` says that the item is built in tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let words = list.tokens.to_string();
            let has = |sought| {
                let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
                words.any(|word| word == sought)
            };
            has("test") && !has("not")
        }
        Meta::List(_) | Meta::NameValue(_) => false,
    })
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
