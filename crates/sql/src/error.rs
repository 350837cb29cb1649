//! Errors as a PostgreSQL client sees them: SQLSTATE, message, detail, hint, position.
//!
//! Invariants
//! 1. Every error of this crate has the SQLSTATE that PostgreSQL 15 uses for the same mistake.
//! 2. `position` counts characters from 1 in the client's text, or is absent.
//!
//! This module does not know the error's message in the protocol. `session` decides what happens to the
//! transaction.

use std::fmt;

use varve_engine::PageId;

/// A five-character SQLSTATE (PostgreSQL manual, appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

impl SqlState {
    /// Returns the five characters.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

macro_rules! states {
    ($($name:ident = $code:literal, $doc:literal;)*) => {
        impl SqlState {
            $(#[doc = $doc] pub const $name: SqlState = SqlState($code);)*
        }
    };
}

states! {
    WARNING = "01000", "A warning without a class of its own.";
    ENOUGH_ROWS = "02000", "The receiver of rows needs no more of them. No client gets this code.";
    FEATURE_NOT_SUPPORTED = "0A000", "The construct is outside what Varve runs.";
    CARDINALITY_VIOLATION = "21000", "A row was touched twice, or a scalar had many rows.";
    STRING_TOO_LONG = "22001", "A string does not fit its declared length.";
    NUMERIC_OUT_OF_RANGE = "22003", "A number does not fit its type.";
    INVALID_ZONE_DISPLACEMENT = "22009", "Offset of a time zone is too large.";
    INVALID_DATETIME = "22007", "Text is not a date or time.";
    DATETIME_OVERFLOW = "22008", "A date or time is out of range.";
    INTERVAL_OVERFLOW = "22015", "A field of an interval is out of range.";
    DIVISION_BY_ZERO = "22012", "Division by zero.";
    ARRAY_SUBSCRIPT = "2202E", "A subscript is out of range.";
    INVALID_ESCAPE = "22025", "A LIKE pattern ends in its escape character.";
    SUBSTRING_ERROR = "22011", "Negative length of a substring.";
    INVALID_PARAMETER_VALUE = "22023", "A value is outside what the setting or function allows.";
    INVALID_LIMIT = "2201W", "LIMIT is negative.";
    INVALID_OFFSET = "2201X", "OFFSET is negative.";
    INVALID_POWER = "2201F", "A power or root has no real result.";
    INVALID_LOG = "2201E", "A logarithm has no real result.";
    INVALID_TEXT = "22P02", "Text is not a value of the type.";
    BAD_BINARY = "22P03", "Bytes are not the binary form of a value.";
    BAD_COPY = "22P04", "COPY data has the wrong shape.";
    UNTRANSLATABLE_CHARACTER = "22P05", "A character has no form in the encoding.";
    CHARACTER_NOT_IN_REPERTOIRE = "22021", "Bytes are not valid in the encoding.";
    NOT_NULL_VIOLATION = "23502", "NULL in a NOT NULL column.";
    FOREIGN_KEY_VIOLATION = "23503", "A row refers to one that is not there.";
    UNIQUE_VIOLATION = "23505", "A key exists already.";
    CHECK_VIOLATION = "23514", "A row does not fulfil a condition of its table.";
    NO_ACTIVE_TRANSACTION = "25P01", "There is no transaction in progress.";
    IN_FAILED_TRANSACTION = "25P02", "The transaction failed; only ROLLBACK helps.";
    ACTIVE_TRANSACTION = "25001", "The statement must come outside a transaction, or first in one.";
    READ_ONLY_TRANSACTION = "25006", "A write in a READ ONLY transaction.";
    INVALID_STATEMENT_NAME = "26000", "No prepared statement has this name.";
    DEPENDENT_OBJECTS = "2BP01", "Other objects depend on the one to be dropped.";
    INVALID_AUTHORIZATION = "28000", "The role may not log in, or not like this.";
    INVALID_PASSWORD = "28P01", "The password is not that of the role.";
    INVALID_GRANT_OPERATION = "0LP01", "A right or membership that cannot be granted.";
    OBJECT_IN_USE = "55006", "The object is in use.";
    INSUFFICIENT_PRIVILEGE = "42501", "A right is missing.";
    RESERVED_NAME = "42939", "A name that may not be given.";
    INVALID_SAVEPOINT = "3B001", "No savepoint has this name.";
    INVALID_SCHEMA = "3F000", "No schema has this name.";
    SERIALIZATION_FAILURE = "40001", "A concurrent transaction got in first; retry.";
    DEADLOCK = "40P01", "A cycle of waiting transactions was broken; retry.";
    SYNTAX_ERROR = "42601", "The text does not parse.";
    AMBIGUOUS_COLUMN = "42702", "A column name fits more than one column.";
    UNDEFINED_COLUMN = "42703", "No such column.";
    UNDEFINED_OBJECT = "42704", "No such type, setting, constraint or other object.";
    AMBIGUOUS_FUNCTION = "42725", "A call fits more than one function or operator.";
    DUPLICATE_COLUMN = "42701", "A column is named twice.";
    GROUPING_ERROR = "42803", "A column is neither grouped nor aggregated.";
    DATATYPE_MISMATCH = "42804", "An expression has the wrong type.";
    CANNOT_COERCE = "42846", "No cast between the two types.";
    GENERATED_ALWAYS = "428C9", "A value was given for a column that makes its own.";
    INVALID_FOREIGN_KEY = "42830", "A foreign key refers to columns that are no key.";
    WINDOWING_ERROR = "42P20", "A window where none may be, or one that contradicts itself.";
    WRONG_OBJECT_TYPE = "42809", "The object is of another kind.";
    INVALID_TABLE_DEFINITION = "42P16", "The table definition contradicts itself.";
    UNDEFINED_FUNCTION = "42883", "No function or operator takes these arguments.";
    UNDEFINED_TABLE = "42P01", "No such relation.";
    UNDEFINED_PARAMETER = "42P02", "No such parameter.";
    DUPLICATE_TABLE = "42P07", "The relation exists already.";
    NAME_TOO_LONG = "42622", "A name is longer than names can be; what is behind is cut off.";
    DUPLICATE_OBJECT = "42710", "The object exists already.";
    DUPLICATE_CURSOR = "42P03", "A cursor has this name already.";
    INVALID_CURSOR_DEFINITION = "42P11", "The options of a cursor contradict each other.";
    INVALID_CURSOR_NAME = "34000", "No cursor has this name.";
    DUPLICATE_PREPARED = "42P05", "A prepared statement has this name already.";
    INVALID_COLUMN_REFERENCE = "42P10", "An ORDER BY, GROUP BY or ON CONFLICT item refers to nothing usable.";
    DUPLICATE_ALIAS = "42712", "A table name is used twice.";
    INVALID_RECURSION = "42P19", "A recursive query reads itself where it may not.";
    INDETERMINATE_DATATYPE = "42P18", "The type of a parameter cannot be told.";
    INVALID_FUNCTION_DEFINITION = "42P13", "The parameters of a function are wrong.";
    PROTOCOL_VIOLATION = "08P01", "The message does not fit the statement.";
    PROGRAM_LIMIT = "54000", "A limit of this program was reached.";
    STATEMENT_TOO_COMPLEX = "54001", "The statement nests too deeply.";
    NOT_IN_PREREQUISITE_STATE = "55000", "The object is not in the state that the call needs.";
    CANT_CHANGE_RUNTIME_PARAM = "55P02", "The setting cannot change now.";
    INVALID_NAME = "42602", "A name that cannot be.";
    DISK_FULL = "53100", "No room on the device.";
    DUPLICATE_DATABASE = "42P04", "The database exists already.";
    TOO_MANY_CONNECTIONS = "53300", "No more sessions fit.";
    UNDEFINED_DATABASE = "3D000", "No database has this name.";
    UNDEFINED_FILE = "58P01", "No file of this name.";
    IO_ERROR = "58030", "A file could not be read or written.";
    LOCK_NOT_AVAILABLE = "55P03", "A lock could not be had in time.";
    QUERY_CANCELED = "57014", "The statement was cancelled.";
    NULL_NOT_ALLOWED = "22004", "A NULL where there must be a value.";
    INVALID_REGULAR_EXPRESSION = "2201B", "A regular expression does not read.";
    SEQUENCE_LIMIT = "2200H", "The sequence is at its end.";
    INTERNAL_ERROR = "XX000", "A bug in Varve.";
}

/// An error or a notice, with the fields of PostgreSQL's ErrorResponse that Varve uses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (SQLSTATE {sqlstate})")]
pub struct SqlError {
    /// SQLSTATE.
    pub sqlstate: SqlState,
    /// The primary message, in lower case and without a full stop. If PostgreSQL has this error, the message
    /// is PostgreSQL's text.
    pub message: Box<str>,
    /// A second sentence with the facts, if any.
    pub detail: Option<Box<str>>,
    /// A hint for the user, if there is one.
    pub hint: Option<Box<str>>,
    /// Character position in the client's text, from 1.
    pub position: Option<u32>,
    /// Where the error happened, if not in the statement itself, for example the line of a COPY.
    pub context: Option<Box<str>>,
    /// The object that the error names, if any.
    pub subject: Option<Box<Subject>>,
}

/// The object of an error, in separate fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Schema of the table.
    pub schema: Option<Box<str>>,
    /// The table.
    pub table: Option<Box<str>>,
    /// The column.
    pub column: Option<Box<str>>,
    /// The constraint, or the unique index.
    pub constraint: Option<Box<str>>,
    /// A page that is damaged.
    pub page: Option<PageId>,
}

/// Result of calls in this crate whose errors are sent to the client.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

impl SqlError {
    /// Returns an error with a state and a message.
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> Self {
        SqlError {
            sqlstate,
            message: message.into().into_boxed_str(),
            detail: None,
            hint: None,
            position: None,
            context: None,
            subject: None,
        }
    }

    /// Returns the error 0A000 for `construct`, which Varve does not run.
    pub fn unsupported(construct: impl fmt::Display) -> Self {
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{construct} is not supported"))
            .with_hint("Varve lacks this feature of PostgreSQL. Its README lists what else is missing.")
    }

    /// Returns the error XX000, for a state that should be impossible.
    pub fn internal(what: impl fmt::Display) -> Self {
        SqlError::new(SqlState::INTERNAL_ERROR, format!("internal error: {what}")).with_hint(
            "This is a bug in Varve. The statement had no effect; the session goes on. Please report the statement, with \
             what the server's log says of it.",
        )
    }

    /// Adds the detail line.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into().into_boxed_str());
        self
    }

    /// Returns the error 25006: `what` would change something, and the transaction is read-only.
    pub fn read_only(what: &str) -> SqlError {
        let message = format!("cannot execute {what} in a read-only transaction");
        SqlError::new(SqlState::READ_ONLY_TRANSACTION, message)
    }

    /// Adds the hint line.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into_boxed_str());
        self
    }

    /// Sets the table of the error. Other fields of the subject stay.
    #[must_use]
    pub fn of_table(mut self, schema: &str, table: &str) -> Self {
        let subject = self.subject.get_or_insert_default();
        subject.schema = Some(schema.into());
        subject.table = Some(table.into());
        self
    }

    /// Sets the column of the error.
    #[must_use]
    pub fn of_column(mut self, column: &str) -> Self {
        self.subject.get_or_insert_default().column = Some(column.into());
        self
    }

    /// Sets the violated constraint.
    #[must_use]
    pub fn of_constraint(mut self, constraint: &str) -> Self {
        self.subject.get_or_insert_default().constraint = Some(constraint.into());
        self
    }

    /// Sets the position, unless the error has one. `None` changes nothing.
    #[must_use]
    pub fn at(mut self, position: Option<u32>) -> Self {
        self.position = self.position.or(position);
        self
    }

    /// Returns whether the client can repeat the transaction.
    pub fn is_retryable(&self) -> bool {
        self.sqlstate == SqlState::SERIALIZATION_FAILURE || self.sqlstate == SqlState::DEADLOCK
    }
}
