//! COPY: its source, destination and format.
//!
//! This module does not know how the statement is parsed (`utility::copy`) or how it runs (`session::copy`).

pub mod binary;
pub mod lines;
pub mod out;

use crate::ast;

use crate::encoding::Encoding;

/// One COPY statement.
#[derive(Debug, Clone)]
pub struct Copy {
    /// The table or query that is copied.
    pub what: CopyWhat,
    /// Whether the data goes into the database (COPY FROM).
    pub is_from: bool,
    /// The source or destination outside of the database.
    pub place: CopyEnd,
    /// The format of the data.
    pub format: Format,
    /// The WHERE condition of COPY FROM.
    pub filter: Option<Box<ast::Expr>>,
    /// The statement's text, for positions in errors.
    pub sql: Box<str>,
}

/// The table or query that is copied.
#[derive(Debug, Clone)]
pub enum CopyWhat {
    /// A table: its name, and its columns if the statement names some.
    Table(ast::ObjectName, Vec<ast::Ident>),
    /// A query: its text, and the number of characters before it.
    Query(Box<str>, u32),
}

/// The source or destination outside of the database.
#[derive(Debug, Clone)]
pub enum CopyEnd {
    /// The client's connection.
    Client,
    /// A file on the server.
    File(String),
    /// A program on the server.
    Program,
}

/// Formats of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// The text format, with tabs and backslashes.
    #[default]
    Text,
    /// The CSV format, with quotes.
    Csv,
    /// PostgreSQL's binary format.
    Binary,
}

/// The header line with the columns' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Header {
    /// There is no header.
    #[default]
    None,
    /// COPY TO writes a header, and COPY FROM ignores it.
    Line,
    /// COPY FROM fails if the header does not have the columns' names.
    Match,
}

/// The columns that an option names.
#[derive(Debug, Clone, Default)]
pub enum Chosen {
    /// No columns.
    #[default]
    None,
    /// All columns.
    All,
    /// These columns.
    These(Vec<ast::Ident>),
}

/// The format of the data.
#[derive(Debug, Clone)]
pub struct Format {
    /// The kind of format.
    pub kind: Kind,
    /// Whether FREEZE is given. Then COPY FROM fails unless the transaction has created or emptied the table.
    pub freeze: bool,
    /// The encoding of the data, if it is not the client's encoding.
    pub encoding: Option<Encoding>,
    /// The header line.
    pub header: Header,
    /// The character between columns.
    pub delimiter: u8,
    /// The NULL string.
    pub null: String,
    /// The quote character of CSV.
    pub quote: u8,
    /// The escape character within quotes of CSV.
    pub escape: u8,
    /// FORCE_QUOTE: columns whose values are always quoted, except NULL.
    pub force_quote: Chosen,
    /// FORCE_NOT_NULL: columns in which the NULL string does not mean NULL.
    pub force_not_null: Chosen,
    /// FORCE_NULL: columns in which the NULL string means NULL in quotes, too.
    pub force_null: Chosen,
}

impl Format {
    /// Returns the format without options.
    pub fn plain(kind: Kind) -> Format {
        let csv = kind == Kind::Csv;
        Format {
            kind,
            freeze: false,
            encoding: None,
            header: Header::None,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".into() },
            quote: b'"',
            escape: b'"',
            force_quote: Chosen::None,
            force_not_null: Chosen::None,
            force_null: Chosen::None,
        }
    }

    /// Returns whether the format is CSV.
    pub fn is_csv(&self) -> bool {
        self.kind == Kind::Csv
    }
}
