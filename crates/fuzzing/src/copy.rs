//! Fuzzes COPY FROM STDIN in text and CSV format. Any data arrives in pieces of any size.
//!
//! The input has six fields of one byte: options, delimiter, quote, escape, NULL, and the size of a piece.
//! The data follows.

use std::cell::RefCell;
use std::sync::Arc;

use varve_sql::{Session, SqlDatabase};

use crate::database::{self, Shown};
use crate::input::Input;

thread_local! {
    static DATABASE: RefCell<Option<Arc<SqlDatabase>>> = const { RefCell::new(None) };
}

const BYTES: &[u8] = b",\t;|:\"'~ \\ax\x01N";
const NULLS: &[&str] = &["", "\\N", "NULL", ",", "\"\"", "x"];

/// Checks that the result of a COPY depends only on its bytes, and not on the parts in which they arrive.
pub fn copy(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let statement = statement(&mut input);
    let at_once = usize::from(input.byte());
    let data = input.rest();
    let shared = DATABASE.with_borrow_mut(|place| place.get_or_insert_with(database::open).clone());
    let mut session = database::session(&shared);
    let whole = run(&mut session, &statement, data, data.len());
    assert_eq!(run(&mut session, &statement, data, at_once), whole, "{statement} in pieces of {at_once}");
}

/// Runs the statement in a transaction that is rolled back. Returns its error, and the contents of the table
/// before the rollback.
fn run(session: &mut Session, statement: &str, data: &[u8], at_once: usize) -> (Option<String>, Vec<String>) {
    let mut shown = Shown { copy: (data, at_once), ..Shown::default() };
    let ended = session.simple(&format!("begin; {statement}"), &mut shown);
    let error = ended.err().map(|error| format!("{} {} {:?}", error.sqlstate, error.message, error.detail));
    let rows = "select id, n, f, s, c, b, d, ts, tz, ok, big from t order by id; select v from u order by k";
    if error.is_none() {
        session.simple(rows, &mut shown).expect("the tables can be read");
    }
    session.simple("rollback", &mut Shown::default()).expect("a block can be undone");
    (error, shown.lines)
}

fn statement(input: &mut Input<'_>) -> String {
    let options = input.byte();
    let mut letter = || char::from(BYTES[usize::from(input.byte()) % BYTES.len()]);
    let (delimiter, quote, escape) = (letter(), letter(), letter());
    let null = NULLS[usize::from(input.byte()) % NULLS.len()];
    let columns =
        ["t", "t (id, s)", "u (v)", "t (id, n, f, s, c, b, d, ts, tz, ok)"][usize::from(options & 3)];
    let mut with = vec![format!("format {}", if options & 4 == 0 { "text" } else { "csv" })];
    let quoted = |letter: char| letter.to_string().replace('\'', "''");
    if options & 8 != 0 {
        with.push(format!("delimiter '{}'", quoted(delimiter)));
    }
    if options & 4 != 0 && options & 16 != 0 {
        with.push(format!("quote '{}'", quoted(quote)));
        with.push(format!("escape '{}'", quoted(escape)));
    }
    if options & 32 != 0 {
        with.push(format!("null '{null}'"));
    }
    if options & 64 != 0 {
        with.push("header true".to_owned());
    }
    format!("copy {columns} from stdin with ({})", with.join(", "))
}
