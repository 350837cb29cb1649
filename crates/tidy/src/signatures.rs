//! Checks that a tuple does not replace several arguments or several results. A struct gives names to them.
//!
//! 1. A parameter is neither a tuple nor a reference to one.
//! 2. A result is not a tuple of three or more parts, also inside `Option`, `Result`, `Vec` or `Box`.
//! 3. A crate has at most as many such signatures as its row in [`BOUNDS`] says. A crate without a row has
//!    none.
//!
//! Closures and tests are not checked. Implementations of a trait are not checked either, because the trait
//! has the same signature. A tuple inside a collection or a type parameter is allowed.

use crate::SourceFile;
use crate::bounds::{self, Bound};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// The most parts of a result that need no names.
const RESULT_PARTS_MAX: usize = 2;

/// The limits of crates that were written before this rule. A limit is never raised.
pub const BOUNDS: &[Bound] =
    &[Bound { folder: "lab", max: 12 }, Bound { folder: "pager", max: 14 }, Bound { folder: "sql", max: 56 }];

/// Checks the library sources of every crate.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    let by_crate = bounds::by_crate(files, check_file);
    bounds::over(BOUNDS, "signatures with tuples", by_crate)
}

fn check_file(file: &SourceFile) -> Vec<String> {
    // A file that can't be parsed is reported by the check of sizes.
    let Ok(parsed) = syn::parse_file(&file.text) else { return Vec::new() };
    let mut reader = Reader { path: &file.path, found: Vec::new() };
    reader.visit_file(&parsed);
    reader.found
}

/// Walks a file and notes the tuples in its signatures.
struct Reader<'a> {
    path: &'a str,
    found: Vec<String>,
}

impl Reader<'_> {
    fn read(&mut self, signature: &syn::Signature) {
        let name = signature.ident.to_string();
        for input in &signature.inputs {
            if let syn::FnArg::Typed(typed) = input
                && tuple_of(&typed.ty).is_some_and(|tuple| tuple.elems.len() > 1)
            {
                self.note(typed.span().start().line, &name, "has a tuple as a parameter");
            }
        }
        if let syn::ReturnType::Type(_, result) = &signature.output
            && parts_of_result(result) > RESULT_PARTS_MAX
        {
            self.note(result.span().start().line, &name, "gives a tuple of three or more parts");
        }
    }

    fn note(&mut self, line: usize, name: &str, what: &str) {
        self.found.push(format!(
            "{}:{line}: fn {name} {what}: make it a struct whose fields have names",
            self.path
        ));
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !item.attrs.iter().any(is_for_tests) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            self.read(&item.sig);
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.read(&item.sig);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.read(&item.sig);
        syn::visit::visit_trait_item_fn(self, item);
    }

    /// Implementations of a trait repeat its signatures.
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none() {
            syn::visit::visit_item_impl(self, item);
        }
    }
}

fn is_for_tests(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("test")
        || attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
}

/// Returns the tuple if a type is a tuple or a reference to a tuple.
fn tuple_of(ty: &syn::Type) -> Option<&syn::TypeTuple> {
    match ty {
        syn::Type::Tuple(tuple) => Some(tuple),
        syn::Type::Reference(reference) => tuple_of(&reference.elem),
        syn::Type::Paren(inner) => tuple_of(&inner.elem),
        _ => None,
    }
}

/// Returns the number of parts of a result that is a tuple, alone or wrapped. Returns 1 if there is no tuple.
fn parts_of_result(ty: &syn::Type) -> usize {
    if let Some(tuple) = tuple_of(ty) {
        return tuple.elems.iter().map(parts_of_result).sum();
    }
    let syn::Type::Path(path) = ty else { return 1 };
    let Some(last) = path.path.segments.last() else { return 1 };
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return 1 };
    let first = arguments.args.iter().find_map(|argument| match argument {
        syn::GenericArgument::Type(inner) => Some(inner),
        _ => None,
    });
    match last.ident.to_string().as_str() {
        "Option" | "Result" | "Box" | "Vec" => first.map_or(1, parts_of_result),
        _ => 1,
    }
}
