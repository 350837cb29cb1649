//! Limits on the lines of a file and the lines of a function, so that a reader can remember what they do.

use crate::SourceFile;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// The most lines of a file. A longer file has two subjects.
pub const FILE_LINES_MAX: usize = 900;
/// The most lines of a function, from its signature to its closing brace. A longer function has two jobs.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Checks every Rust file. It must begin with `//!`, and neither the file nor one of its functions may be
/// over the limit.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    files.iter().filter(|file| file.is_rust()).flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<String> {
    let mut found = Vec::new();
    if !file.text.starts_with("//!") {
        found.push(format!("{}: does not open with a //! header that says what the file is for", file.path));
    }
    let line_count = file.text.lines().count();
    if line_count > FILE_LINES_MAX {
        found.push(format!("{}: {line_count} lines, over {FILE_LINES_MAX}", file.path));
    }
    found.extend(long_functions(file));
    found
}

fn long_functions(file: &SourceFile) -> Vec<String> {
    let parsed = match syn::parse_file(&file.text) {
        Ok(parsed) => parsed,
        Err(error) => return vec![format!("{}: can't be parsed: {error}", file.path)],
    };
    let mut ruler = Ruler { path: &file.path, found: Vec::new() };
    ruler.visit_file(&parsed);
    ruler.found
}

/// Walks a file and notes each function over the limit.
struct Ruler<'a> {
    path: &'a str,
    found: Vec<String>,
}

impl Ruler<'_> {
    fn measure(&mut self, name: &syn::Ident, signature: &syn::Signature, block: &syn::Block) {
        let (first, last) = (signature.span().start().line, block.span().end().line);
        let line_count = last - first + 1;
        if line_count > FUNCTION_LINES_MAX {
            self.found.push(format!(
                "{}:{first}: fn {name} has {line_count} lines, over {FUNCTION_LINES_MAX}",
                self.path
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Ruler<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig.ident, &item.sig, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig.ident, &item.sig, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig.ident, &item.sig, block);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
}
