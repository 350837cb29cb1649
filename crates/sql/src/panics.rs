//! A panic within a statement becomes an internal error (XX000) of this statement, and is written to the
//! server's log.
//!
//! Invariants
//! 1. If the program calls `report_panics`, a panic that is caught here is logged once, with the statement
//!    and a backtrace. In other programs the panic hook stays unchanged.
//! 2. A panic on a thread that works for a statement (`caught_on_worker`) continues on the thread of the statement.
//! 3. A panic outside of statements is handled by the previous panic hook.
//!
//! If a panic interrupts a mini-transaction, the pager stops itself, because its pages may be inconsistent
//! (decision 0625). `session` ends the transaction.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use crate::error::SqlError;
use crate::log;

/// The most characters of a statement in the log.
const SHOWN_CHARS: usize = 4096;

thread_local! {
    /// Whether this thread runs a statement whose panics are caught here.
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
    /// Whether the panic that was caught last on this thread is in the log.
    static IS_LOGGED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the panic that was caught last on this thread is in the log already.
pub(crate) fn is_logged() -> bool {
    IS_LOGGED.get()
}

/// The data about a panic from the hook.
struct Seen {
    place: String,
    backtrace: Backtrace,
}

/// Switches on the log of panics in statements, for the whole program. Each panic is written with its
/// statement and a backtrace, to the server's log or else to stderr. A second call does nothing.
pub fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| if CATCHES.get() { note(info) } else { before(info) }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or_else(String::new, ToString::to_string);
    // The first of several panics is the cause of the others.
    SEEN.with_borrow_mut(|seen| {
        seen.get_or_insert_with(|| Seen { place, backtrace: Backtrace::force_capture() });
    });
}

/// Runs a step of a statement. A panic becomes an internal error. `about` is the text for the log.
pub fn caught<T>(about: &str, step: impl FnOnce() -> T) -> Result<T, SqlError> {
    let outer = CATCHES.replace(true);
    IS_LOGGED.set(false);
    let done = panic::catch_unwind(AssertUnwindSafe(step));
    CATCHES.set(outer);
    done.map_err(|panic| {
        let message = message_of(panic.as_ref());
        if let Some(seen) = SEEN.take() {
            tell(about, &message, &seen);
            IS_LOGGED.set(true);
        }
        SqlError::internal(message)
    })
}

/// A panic of a thread that works for a statement.
pub struct WorkerPanic {
    panic: Box<dyn Any + Send>,
    seen: Option<Seen>,
}

/// Runs a part of a statement on a thread that the statement has started.
///
/// # Errors
/// A panic of the part. `WorkerPanic::resume` lets it continue on the thread of the statement.
pub fn caught_on_worker<T>(part: impl FnOnce() -> T) -> Result<T, WorkerPanic> {
    let outer = CATCHES.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(part));
    CATCHES.set(outer);
    done.map_err(|panic| WorkerPanic { panic, seen: SEEN.take() })
}

impl WorkerPanic {
    /// Returns the message of the panic.
    pub fn message(&self) -> String {
        message_of(self.panic.as_ref())
    }

    /// Panics on this thread as the other thread did. The log gets the place and the backtrace of the other
    /// thread.
    pub fn resume(self) -> ! {
        SEEN.set(self.seen);
        panic::resume_unwind(self.panic)
    }
}

/// Returns the message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

fn tell(about: &str, message: &str, seen: &Seen) {
    let shown: String = about.chars().take(SHOWN_CHARS).collect();
    let cut = if shown.len() < about.len() { " ..." } else { "" };
    let Seen { place, backtrace } = seen;
    if log::is_kept() {
        let message = format!("internal error: {message}, at {place}\nstatement: {shown}{cut}\n{backtrace}");
        let event = log::Event::new(log::Source::SERVER, log::Severity::Error, &message);
        return log::Event { code: Some("XX000"), ..event }.write_whole();
    }
    // If the log can't be written, the error can't be reported either.
    let _ = writeln!(
        std::io::stderr(),
        "varve: internal error: {message}, at {place}\nvarve: statement: {shown}{cut}\n{backtrace}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SqlState;

    #[test]
    fn a_panic_is_an_internal_error_with_its_message() {
        let caught = caught("select 1", || -> u32 { panic!("the number {} is odd", 3) });
        let error = caught.unwrap_err();
        assert_eq!(error.sqlstate, SqlState::INTERNAL_ERROR);
        assert_eq!(&*error.message, "internal error: the number 3 is odd");
        assert!(error.hint.is_some());
    }
}
