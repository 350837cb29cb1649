//! Finds out which file of a crate uses which other file of the same crate.
//!
//! 1. A path counts wherever it is: in a `use`, in an expression, in a type, in the arguments of a macro.
//! 2. A path leads to the file that defines the last name of the path, also through re-exports. So a
//!    re-export cannot hide a circle of imports.
//! 3. A re-export of a module's own children does not count as a use of them. So a module that only declares
//!    its children is above nothing.
//! 4. Code under `#[cfg(test)]` does not count.
//!
//! A call of a method names no file, so it does not count. The file counts where the method's type is named.

use crate::SourceFile;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// The most re-exports that are followed to a definition.
const REEXPORTS_MAX: usize = 16;

/// The path of a module from the root of its crate; empty for the root itself.
pub type ModulePath = Vec<String>;

/// The files of one crate and the uses between them.
#[derive(Debug, Default)]
pub struct CrateImports {
    /// Every file that is compiled outside of tests.
    pub files: Vec<CrateFile>,
    /// Every use of one file by another, in the order of the text.
    pub imports: Vec<Import>,
    /// The files that can't be parsed, as sentences.
    pub faults: Vec<String>,
}

/// One source file of a crate.
#[derive(Debug)]
pub struct CrateFile {
    /// The path from the root of the repository.
    pub path: String,
    /// The module that the file holds.
    pub module: ModulePath,
}

/// One path in one file that leads to another file.
#[derive(Debug)]
pub struct Import {
    /// The position of the using file in [`CrateImports::files`].
    pub from: usize,
    /// The position of the used file.
    pub to: usize,
    /// The line in the using file.
    pub line: usize,
    /// The path as it is in the source.
    pub path: String,
}

/// Reads the crate in the folder `folder`, such as `crates/sql`.
pub fn of_crate(files: &[SourceFile], folder: &str) -> CrateImports {
    let source = format!("{folder}/src/");
    let mut reading = Reading::default();
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(module) = file.path.strip_prefix(&source).and_then(module_of) else { continue };
        match syn::parse_file(&file.text) {
            Ok(parsed) => reading.read(&file.path, module, &parsed),
            Err(error) => faults.push(format!("{}: can't be parsed: {error}", file.path)),
        }
    }
    CrateImports { faults, ..reading.finish() }
}

/// Returns the module in a file, from its path below `src`. Returns `None` for a second program of the crate,
/// which is not a module of the library.
fn module_of(path: &str) -> Option<ModulePath> {
    let stem = path.strip_suffix(".rs")?;
    if stem == "main" || stem.starts_with("bin/") {
        return None;
    }
    let mut module: ModulePath = stem.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod") || stem == "lib" {
        module.pop();
    }
    Some(module)
}

/// The names that a module defines, and the names that it has from other modules.
#[derive(Debug, Default)]
struct Module {
    file: usize,
    items: BTreeSet<String>,
    uses: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// A path in the text of a module.
#[derive(Debug)]
struct Mention {
    file: usize,
    module: ModulePath,
    path: Vec<String>,
    line: usize,
    is_reexport: bool,
}

/// The destination of a path.
#[derive(Debug, PartialEq, Eq)]
enum Destination {
    Module(ModulePath),
    Item(ModulePath),
}

#[derive(Debug, Default)]
struct Reading {
    files: Vec<CrateFile>,
    modules: BTreeMap<ModulePath, Module>,
    tests: Vec<ModulePath>,
    mentions: Vec<Mention>,
}

impl Reading {
    fn read(&mut self, path: &str, module: ModulePath, parsed: &syn::File) {
        let file = self.files.len();
        self.files.push(CrateFile { path: path.to_owned(), module: module.clone() });
        self.modules.entry(module.clone()).or_default().file = file;
        FileReader { file, module, reading: self }.visit_file(parsed);
    }

    fn finish(mut self) -> CrateImports {
        let tests = std::mem::take(&mut self.tests);
        let is_test = |module: &ModulePath| tests.iter().any(|test| module.starts_with(test));
        self.modules.retain(|module, _| !is_test(module));
        self.mentions.retain(|mention| !is_test(&mention.module));
        let mut imports: Vec<Import> = self.mentions.iter().filter_map(|m| self.import(m)).collect();
        let kept: Vec<bool> = self.files.iter().map(|file| !is_test(&file.module)).collect();
        let position = |old: usize| kept.iter().take(old).filter(|kept| **kept).count();
        for import in &mut imports {
            (import.from, import.to) = (position(import.from), position(import.to));
        }
        let files = self.files.into_iter().filter(|file| !is_test(&file.module)).collect();
        CrateImports { files, imports, faults: Vec::new() }
    }

    fn import(&self, mention: &Mention) -> Option<Import> {
        let owner = self.defining_module(mention)?;
        let to = self.modules.get(&owner)?.file;
        let own_child = mention.is_reexport && owner.starts_with(&mention.module);
        (to != mention.file && !own_child).then(|| Import {
            from: mention.file,
            to,
            line: mention.line,
            path: mention.path.join("::"),
        })
    }

    /// Returns the module that defines the item that a path names. A macro may define names that only the
    /// compiler sees. Such a name counts as defined by the module that the path leads to.
    fn defining_module(&self, mention: &Mention) -> Option<ModulePath> {
        match self.resolve(&mention.module, &mention.path, 0) {
            Some(Destination::Item(owner)) => return Some(owner),
            Some(Destination::Module(_)) => return None,
            None => {}
        }
        let mut shorter = mention.path.as_slice();
        while let [start @ .., _] = shorter
            && !start.is_empty()
        {
            match self.resolve(&mention.module, start, 0) {
                Some(Destination::Item(owner) | Destination::Module(owner)) => return Some(owner),
                None => shorter = start,
            }
        }
        None
    }

    fn resolve(&self, at: &ModulePath, path: &[String], followed: usize) -> Option<Destination> {
        if followed > REEXPORTS_MAX {
            return None;
        }
        match path {
            [first, rest @ ..] if first == "crate" => self.look_in(&Vec::new(), rest, followed),
            _ => self.look_in(at, path, followed),
        }
    }

    fn look_in(&self, module: &ModulePath, path: &[String], followed: usize) -> Option<Destination> {
        let here = self.modules.get(module)?;
        let Some((first, rest)) = path.split_first() else {
            return Some(Destination::Module(module.clone()));
        };
        match first.as_str() {
            "self" => return self.look_in(module, rest, followed),
            "super" => {
                let parent = module.split_last().map(|(_, parent)| parent.to_vec())?;
                return self.look_in(&parent, rest, followed);
            }
            _ => {}
        }
        let child = [module.as_slice(), std::slice::from_ref(first)].concat();
        let is_module = self.modules.contains_key(&child);
        if is_module && (!rest.is_empty() || !here.items.contains(first)) {
            return self.look_in(&child, rest, followed);
        }
        if here.items.contains(first) {
            return Some(Destination::Item(module.clone()));
        }
        if let Some(used) = here.uses.get(first) {
            return self.resolve(module, &[used, rest].concat(), followed + 1);
        }
        here.globs.iter().find_map(|glob| self.resolve(module, &[glob, path].concat(), followed + 1))
    }
}

/// Walks one file.
struct FileReader<'a> {
    file: usize,
    module: ModulePath,
    reading: &'a mut Reading,
}

impl FileReader<'_> {
    fn here(&mut self) -> &mut Module {
        self.reading.modules.entry(self.module.clone()).or_default()
    }

    fn mention(&mut self, path: Vec<String>, line: usize, is_reexport: bool) {
        let (file, module) = (self.file, self.module.clone());
        self.reading.mentions.push(Mention { file, module, path, line, is_reexport });
    }

    fn add_use(&mut self, start: &[String], tree: &syn::UseTree, is_reexport: bool) {
        let line = tree.span().start().line;
        match tree {
            syn::UseTree::Path(path) => {
                let start = [start, &[path.ident.to_string()]].concat();
                self.add_use(&start, &path.tree, is_reexport);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_use(start, tree, is_reexport));
            }
            syn::UseTree::Glob(_) => self.here().globs.push(start.to_vec()),
            syn::UseTree::Name(name) if name.ident == "self" => {
                let Some(module) = start.last().cloned() else { return };
                self.here().uses.insert(module, start.to_vec());
            }
            syn::UseTree::Name(name) => {
                self.add_name(start, &name.ident, name.ident.to_string(), line, is_reexport);
            }
            syn::UseTree::Rename(rename) => {
                self.add_name(start, &rename.ident, rename.rename.to_string(), line, is_reexport);
            }
        }
    }

    fn add_name(&mut self, start: &[String], name: &syn::Ident, known_as: String, line: usize, out: bool) {
        let path = [start, &[name.to_string()]].concat();
        self.here().uses.insert(known_as, path.clone());
        self.mention(path, line, out);
    }

    /// Reads the paths in the arguments of a macro, which are not parsed yet.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 => path.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                other => {
                    self.end_of_path(&mut path, line);
                    match other {
                        TokenTree::Ident(ident) => {
                            line = ident.span().start().line;
                            path.push(ident.to_string());
                        }
                        TokenTree::Group(group) => self.scan(group.stream()),
                        _ => {}
                    }
                }
            }
            colons = 0;
        }
        self.end_of_path(&mut path, line);
    }

    fn end_of_path(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.mention(path, line, false);
        }
    }
}

impl<'ast> Visit<'ast> for FileReader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (attributes, name) = head(item);
        if is_for_tests(attributes) {
            if let syn::Item::Mod(module) = item {
                let tests = [self.module.as_slice(), &[module.ident.to_string()]].concat();
                self.reading.tests.push(tests);
            }
            return;
        }
        if let Some(name) = name {
            self.here().items.insert(name.to_string());
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_none() {
            return;
        }
        self.module.push(item.ident.to_string());
        let file = self.file;
        self.here().file = file;
        syn::visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !matches!(item, syn::ImplItem::Fn(function) if is_for_tests(&function.attrs)) {
            syn::visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_reexport = !matches!(item.vis, syn::Visibility::Inherited);
        self.add_use(&[], &item.tree, is_reexport);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.mention(names, path.span().start().line, false);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        syn::visit::visit_macro(self, called);
        self.scan(called.tokens.clone());
    }
}

/// Returns the attributes of an item, and the name that the item defines in its module. For an item that is a
/// module, there is no such name.
fn head(item: &syn::Item) -> (&[syn::Attribute], Option<&syn::Ident>) {
    match item {
        syn::Item::Const(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Enum(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
        syn::Item::Impl(item) => (&item.attrs, None),
        syn::Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
        syn::Item::Mod(item) => (&item.attrs, None),
        syn::Item::Static(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Struct(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Trait(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Type(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Union(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Use(item) => (&item.attrs, None),
        _ => (&[], None),
    }
}

/// Returns whether code is compiled for tests only, by `#[cfg(test)]`, also within `all(...)`.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|condition| condition.meta.require_list().ok()).any(|list| {
        let text = list.tokens.to_string();
        text == "test" || (text.starts_with("all") && text.contains("test") && !text.contains("not"))
    })
}
