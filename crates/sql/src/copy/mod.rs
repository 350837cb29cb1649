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
    /// What is copied.
    pub what: CopyWhat,
    /// Into the database.
    pub is_from: bool,
    /// The other end.
    pub place: CopyEnd,
    /// How the data looks.
    pub format: Format,
    /// Rows to take, of COPY FROM.
    pub filter: Option<Box<ast::Expr>>,
    /// The statement, for positions.
    pub sql: Box<str>,
}

/// What is copied.
#[derive(Debug, Clone)]
pub enum CopyWhat {
    /// A table: its name, and columns if any were named.
    Table(ast::ObjectName, Vec<ast::Ident>),
    /// Rows of a query: its text, and how many characters come before it.
    Query(Box<str>, u32),
}

/// The end that is not the database.
#[derive(Debug, Clone)]
pub enum CopyEnd {
    /// The connection.
    Client,
    /// A file of the server.
    File(String),
    /// A program on the server.
    Program,
}

/// Formats of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Tabs and backslashes.
    #[default]
    Text,
    /// Quotes.
    Csv,
    /// PostgreSQL's binary file.
    Binary,
}

/// The line of names above the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Header {
    /// None.
    #[default]
    None,
    /// Written; not looked at when read.
    Line,
    /// Has to have the columns' names.
    Match,
}

/// Columns that an option is about.
#[derive(Debug, Clone, Default)]
pub enum Chosen {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// These.
    These(Vec<ast::Ident>),
}

/// How the data looks.
#[derive(Debug, Clone)]
pub struct Format {
    /// Which format.
    pub kind: Kind,
    /// FREEZE: only a table that the transaction has made or emptied is loaded.
    pub freeze: bool,
    /// Encoding of the data, if not the client's.
    pub encoding: Option<Encoding>,
    /// Line of names.
    pub header: Header,
    /// Between columns.
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
    /// CSV quote.
    pub quote: u8,
    /// CSV escape within quotes.
    pub escape: u8,
    /// Columns that are written in quotes unless NULL.
    pub force_quote: Chosen,
    /// Columns in which nothing is NULL.
    pub force_not_null: Chosen,
    /// Columns in which NULL's word means NULL in quotes too.
    pub force_null: Chosen,
}

impl Format {
    /// A format as it is without options.
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

    /// Whether it is CSV.
    pub fn is_csv(&self) -> bool {
        self.kind == Kind::Csv
    }
}
