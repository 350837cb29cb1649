//! The list of files that may have unsafe code. The list is short, because a reviewer of memory safety must
//! read every file on it and no other file.

use crate::SourceFile;
use proc_macro2::{TokenStream, TokenTree};

/// The files that may have unsafe code.
pub const UNSAFE_FILES: &[&str] = &[
    "bench/embedded/src/lmdb.rs",
    "bench/peers/src/main.rs",
    "crates/device/src/buf.rs",
    "crates/device/src/mapped.rs",
    "crates/device/src/persist.rs",
    "crates/device/src/sys.rs",
    "crates/device/src/uring.rs",
    "crates/models/src/latch.rs",
    "crates/pager/src/base/latch.rs",
    "crates/pager/src/pool/arena.rs",
    "crates/pager/src/pool/guard.rs",
    "crates/spill/tests/allocator.rs",
    "crates/sql/src/parse/postgres/library.rs",
    "crates/sql/src/parse/postgres/tree.rs",
];

/// Checks that the keyword is only in the files of [`UNSAFE_FILES`], and that each of these files exists and
/// has the keyword.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let named = UNSAFE_FILES.contains(&file.path.as_str());
        match (uses_unsafe(&file.text), named) {
            (true, false) => found.push(format!("{}: unsafe code outside the files named for it", file.path)),
            (false, true) => found.push(format!("{}: named for unsafe code but has none", file.path)),
            _ => {}
        }
    }
    found
}

/// Returns whether the keyword appears as code: comments and strings don't count.
fn uses_unsafe(text: &str) -> bool {
    text.parse::<TokenStream>().is_ok_and(any_unsafe)
}

fn any_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "unsafe",
        TokenTree::Group(group) => any_unsafe(group.stream()),
        _ => false,
    })
}
