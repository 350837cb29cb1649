//! The call of PostgreSQL's parser, which is C: a text goes in, and the encoded tree or an error with its place comes out.
//!
//! The crate's own function drops the place of an error, and walks every tree once more for lists of tables and functions that
//! nobody asks for here. So its library is called without it.
//!
//! Invariants
//! 1. The text has no byte 0, and lives until the call is over.
//! 2. What the library has allocated is given back exactly once.
//! 3. The layouts are those of `pg_query.h` of the version that Cargo.toml names, and of no other.
//!
//! Does not know: what is in a tree.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

#[repr(C)]
struct RawError {
    message: *mut c_char,
    function: *mut c_char,
    file: *mut c_char,
    line: c_int,
    /// Character from 1, or 0.
    position: c_int,
    context: *mut c_char,
}

#[repr(C)]
struct RawTree {
    len: usize,
    data: *mut c_char,
}

#[repr(C)]
struct RawResult {
    tree: RawTree,
    stderr: *mut c_char,
    error: *mut RawError,
}

unsafe extern "C" {
    fn pg_query_parse_protobuf_opts(input: *const c_char, options: c_int) -> RawResult;
    fn pg_query_free_protobuf_parse_result(result: RawResult);
    fn assign_max_stack_depth(kilobytes: c_int, extra: *mut c_void);
}

/// PG_QUERY_DISABLE_ESCAPE_STRING_WARNING: what it would warn of goes to the standard error of the process.
const NO_WARNINGS: c_int = 64;

/// What a text is read as (`pg_query.h`).
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    /// Statements.
    Statement = 0,
    /// An expression, or what else may stand behind SELECT.
    Expression = 2,
}

/// Stack that PostgreSQL's own processes may use, in KiB.
pub(super) const STACK_KIB: usize = 2048;

/// What the library uses of a stack whose end it cannot tell.
const LEAST_STACK_KIB: c_int = 100;

/// What the parser says against a text.
pub(super) struct Complaint {
    pub(super) message: String,
    /// Character from 1.
    pub(super) position: Option<u32>,
}

/// Parses a text and gives the encoded tree to `read`. The stack must have room for what a text of this length can nest, or
/// for `STACK_KIB`.
pub(super) fn parse<T>(text: &CString, mode: Mode, read: impl FnOnce(&[u8]) -> T) -> Result<T, Complaint> {
    // SAFETY: the function writes two variables of this thread. The caller vouches for the room; a stack that `stacker` has made is
    // not one whose end the library could find out by itself.
    unsafe { assign_max_stack_depth(STACK_KIB as c_int, std::ptr::null_mut()) };
    // SAFETY: the text ends in a byte 0 and outlives the call. The library keeps all its state in variables of this thread, and
    // catches its own errors (`longjmp` never crosses a frame of ours).
    let result = unsafe { pg_query_parse_protobuf_opts(text.as_ptr(), NO_WARNINGS | mode as c_int) };
    // SAFETY: as above. Whoever else calls the library on this thread gets the limit that is safe everywhere.
    unsafe { assign_max_stack_depth(LEAST_STACK_KIB, std::ptr::null_mut()) };
    let outcome = if result.error.is_null() {
        let data = match result.tree.data.is_null() {
            true => &[][..],
            // SAFETY: the library gives `len` bytes at `data`, which live until the result is freed below.
            false => unsafe { std::slice::from_raw_parts(result.tree.data.cast::<u8>(), result.tree.len) },
        };
        Ok(read(data))
    } else {
        // SAFETY: an error that is there has all its fields, and its message ends in a byte 0.
        let (message, position) =
            unsafe { (CStr::from_ptr((*result.error).message), (*result.error).position) };
        let position = u32::try_from(position).ok().filter(|at| *at > 0);
        Err(Complaint { message: message.to_string_lossy().into_owned(), position })
    };
    // SAFETY: the result came from the library and is not used any more.
    unsafe { pg_query_free_protobuf_parse_result(result) };
    outcome
}
