//! Checks that a type's name says what the type holds. Words that could name any type are refused.
//!
//! Associated types are not checked, because a trait defines their names.

use crate::SourceFile;
use crate::bounds;
use syn::visit::Visit;

/// Words that are too vague: each of them once named several types that had nothing in common.
const VAGUE: &[&str] = &["Found", "Held", "Hold", "Place", "Room", "Target", "Turn", "World"];

/// Checks the library sources of every crate.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    bounds::over(&[], "types with vague names", bounds::by_crate(files, check_file))
}

fn check_file(file: &SourceFile) -> Vec<String> {
    // A file that can't be parsed is reported by the check of sizes.
    let Ok(parsed) = syn::parse_file(&file.text) else { return Vec::new() };
    let mut reader = Reader { path: &file.path, found: Vec::new() };
    reader.visit_file(&parsed);
    reader.found
}

/// Walks a file and notes the types with vague names.
struct Reader<'a> {
    path: &'a str,
    found: Vec<String>,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let name = match item {
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        if let Some(name) = name
            && VAGUE.iter().any(|word| name == word)
        {
            let line = name.span().start().line;
            self.found
                .push(format!("{}:{line}: type {name}: give it a name that says what it holds", self.path));
        }
        syn::visit::visit_item(self, item);
    }
}
