//! Calls PostgreSQL's parser, a C library. It returns the statements of a text, or an error with its
//! position.
//!
//! The C library is called directly, because the Rust function of the crate `pg_query` loses the position of
//! an error. That function also walks every tree once more for lists that Varve does not need. Common trees
//! are read from the parser's memory (`tree`), others from their encoded form.
//!
//! Invariants
//! 1. The text has no byte 0, and lives until the call returns.
//! 2. Memory that the library has allocated is freed exactly once.
//! 3. The struct layouts are those of `pg_query.h` and `pg_query_internal.h` of the version in Cargo.toml,
//!    and of no other version.
//!
//! This module does not know the content of a tree.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use pg_query::protobuf::{ParseResult, RawStmt};
use prost::{DecodeError, Message};

use super::tree;

#[repr(C)]
struct RawError {
    message: *mut c_char,
    function: *mut c_char,
    file: *mut c_char,
    line: c_int,
    /// The position in characters, from 1, or 0 if it is unknown.
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

/// A tree in the memory of the library.
#[repr(C)]
struct RawParsed {
    /// A list of statements.
    tree: *const c_void,
    stderr: *mut c_char,
    error: *mut RawError,
}

unsafe extern "C" {
    fn pg_query_enter_memory_context() -> *mut c_void;
    fn pg_query_exit_memory_context(context: *mut c_void);
    fn pg_query_raw_parse(input: *const c_char, options: c_int) -> RawParsed;
    fn pg_query_parse_protobuf_opts(input: *const c_char, options: c_int) -> RawResult;
    fn pg_query_free_protobuf_parse_result(result: RawResult);
    fn assign_max_stack_depth(kilobytes: c_int, extra: *mut c_void);
}

/// PG_QUERY_DISABLE_ESCAPE_STRING_WARNING. Without this option, the library would write warnings to the
/// standard error of the process.
const NO_WARNINGS: c_int = 64;

/// The kind of text to parse (`pg_query.h`).
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    /// Statements.
    Statement = 0,
    /// An expression, or anything else that may follow SELECT.
    Expression = 2,
}

/// Stack that PostgreSQL's own processes may use, in KiB.
pub(super) const STACK_KIB: usize = 2048;

/// The stack, in KiB, that the library may use if it does not know where the stack ends.
const LEAST_STACK_KIB: c_int = 100;

/// An error of the parser.
pub(super) struct Complaint {
    pub(super) message: String,
    /// The position of the error in characters, from 1.
    pub(super) position: Option<u32>,
}

/// The result of `parse` for a text without a syntax error.
pub(super) type Statements = Result<Vec<RawStmt>, DecodeError>;

/// Parses a text. The stack must have enough room for the deepest nesting of a text of this length, or at
/// least `STACK_KIB`.
pub(super) fn parse(text: &CString, mode: Mode) -> Result<Statements, Complaint> {
    match parsed_in_place(text, mode) {
        Some(read) => read.map(Ok),
        None => parsed_by_message(text, mode),
    }
}

/// Parses a text and decodes the encoded tree. This works for every statement.
pub(super) fn parsed_by_message(text: &CString, mode: Mode) -> Result<Statements, Complaint> {
    let _depth = Depth::of_server();
    // SAFETY: the text ends in a byte 0 and outlives the call. The library keeps all its state in variables
    // of this thread, and catches its own errors (`longjmp` never crosses a frame of ours).
    let result = unsafe { pg_query_parse_protobuf_opts(text.as_ptr(), NO_WARNINGS | mode as c_int) };
    let outcome = if result.error.is_null() {
        let data = match result.tree.data.is_null() {
            true => &[][..],
            // SAFETY: the library returns `len` bytes at `data`, which live until the result is freed below.
            false => unsafe { std::slice::from_raw_parts(result.tree.data.cast::<u8>(), result.tree.len) },
        };
        Ok(ParseResult::decode(data).map(|result| result.stmts))
    } else {
        // SAFETY: the error is one of the library's, and freed only below.
        Err(unsafe { complaint(result.error) })
    };
    // SAFETY: the result came from the library and is not used any more.
    unsafe { pg_query_free_protobuf_parse_result(result) };
    outcome
}

/// Parses a text and reads the tree from the parser's memory. Returns `None` if the tree must be encoded.
pub(super) fn parsed_in_place(text: &CString, mode: Mode) -> Option<Result<Vec<RawStmt>, Complaint>> {
    if !tree::FITS {
        return None;
    }
    let _depth = Depth::of_server();
    let _memory = Memory::enter();
    // SAFETY: as for the other call. The parser's tree is in the memory context that was entered, and is
    // freed with this context.
    let parsed = unsafe { pg_query_raw_parse(text.as_ptr(), NO_WARNINGS | mode as c_int) };
    let outcome = if parsed.error.is_null() {
        // SAFETY: the tree is the parser's, and its memory is left when this function ends.
        unsafe { tree::statements(parsed.tree) }.map(Ok)
    } else {
        // SAFETY: the error is one of the library's, and freed only below.
        Some(Err(unsafe { complaint(parsed.error) }))
    };
    let none = RawTree { len: 0, data: std::ptr::null_mut() };
    // SAFETY: both pointers came from the library in a result of this form, and are not used any more.
    unsafe {
        pg_query_free_protobuf_parse_result(RawResult {
            tree: none,
            stderr: parsed.stderr,
            error: parsed.error,
        });
    }
    outcome
}

/// # Safety The error comes from the library and is not freed yet.
unsafe fn complaint(error: *const RawError) -> Complaint {
    // SAFETY: an error that is there has all its fields, and its message ends in a byte 0.
    let (message, position) = unsafe { (CStr::from_ptr((*error).message), (*error).position) };
    let position = u32::try_from(position).ok().filter(|at| *at > 0);
    Complaint { message: message.to_string_lossy().into_owned(), position }
}

/// While this guard lives, the library may use as much stack as PostgreSQL's own processes.
struct Depth;

impl Depth {
    fn of_server() -> Depth {
        // SAFETY: the function writes two variables of this thread. The caller makes sure that the stack has
        // this room. The library could not find the end of a stack that `stacker` has made.
        unsafe { assign_max_stack_depth(STACK_KIB as c_int, std::ptr::null_mut()) };
        Depth
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        // SAFETY: as above. Other calls of the library on this thread use the lower limit, which is safe on
        // every stack.
        unsafe { assign_max_stack_depth(LEAST_STACK_KIB, std::ptr::null_mut()) };
    }
}

/// The memory context of the library. Dropping it frees the memory.
struct Memory(*mut c_void);

impl Memory {
    fn enter() -> Memory {
        // SAFETY: nothing of the library runs on this thread now.
        Memory(unsafe { pg_query_enter_memory_context() })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the memory context was entered, and nothing in it is used any more.
        unsafe { pg_query_exit_memory_context(self.0) };
    }
}
