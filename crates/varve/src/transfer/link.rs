//! A connection to a database: over the wire, or to a directory that this process has opened.
//!
//! Values are text in both directions, as in COPY and in the simple protocol.

use std::io::{BufRead, Write};
use std::str::FromStr;

use postgres::{Client, Config, NoTls, SimpleQueryMessage};
use varve_engine::Datum;
use varve_sql::{CopyShape, Session, SessionParams, Sink, SqlError, SqlState, TimeForms, text};

use super::{StatementError, TransferError};
use crate::Embedded;

/// The values of a row as text; `None` is NULL.
pub type TextRow = Vec<Option<String>>;

/// The size of the pieces in which COPY data is passed on, in bytes.
const PIECE_BYTES: usize = 128 << 10;

/// Settings that give the same texts on all servers. With an empty search path, all names in definitions have
/// their schemas.
const SETTINGS: &str = "SET client_encoding = 'UTF8'; SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; \
    SET TimeZone = 'UTC'; SET extra_float_digits = 1; SET bytea_output = 'hex'; SET search_path = ''; \
    SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
    SET standard_conforming_strings = on; SET row_security = off";

/// A connection.
pub trait Link: Send {
    /// Runs statements for their effect.
    fn run(&mut self, sql: &str) -> Result<(), StatementError>;
    /// Runs a query.
    fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, StatementError>;
    /// Runs COPY ... TO STDOUT.
    fn copy_to(&mut self, sql: &str, out: &mut dyn Write) -> Result<(), StatementError>;
    /// Runs COPY ... FROM STDIN. Returns the number of rows.
    fn copy_from(&mut self, sql: &str, data: &mut dyn BufRead) -> Result<u64, StatementError>;
}

/// A database that can be connected to several times.
pub enum EndPoint {
    /// A server.
    Server(Box<Config>, String),
    /// A directory, opened by this process.
    Directory(Box<Embedded>, String),
}

impl EndPoint {
    /// Reads the address of a server, `postgres://user@host:port/database`.
    pub fn server(url: &str) -> Result<EndPoint, TransferError> {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        if !matches!(scheme, "postgres" | "postgresql" | "varve") {
            return Err(TransferError::Address(format!(
                "{scheme}:// is not an address that this command takes. Write postgres://user@host:port/database, \
                 for a server of Varve, too."
            )));
        }
        let standard = format!("postgres{}", &url[scheme.len()..]);
        let mut config = Config::from_str(&standard).map_err(|error| {
            TransferError::Address(format!(
                "The address cannot be read: {error}. Write postgres://user@host:port/database."
            ))
        })?;
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        config.application_name("varve");
        let shown = shown(&config);
        Ok(EndPoint::Server(Box::new(config), shown))
    }

    /// Wraps an open directory.
    pub fn directory(database: Embedded, name: String) -> EndPoint {
        EndPoint::Directory(Box::new(database), name)
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        match self {
            EndPoint::Server(_, name) | EndPoint::Directory(_, name) => name,
        }
    }

    /// Opens a connection.
    pub fn connect(&self) -> Result<Box<dyn Link>, TransferError> {
        let mut link: Box<dyn Link> = match self {
            EndPoint::Server(..) => Box::new(self.remote()?),
            EndPoint::Directory(database, _) => {
                let params = SessionParams { user: database.sql().first_role(), ..SessionParams::default() };
                let session = Session::new(database.sql().clone(), params);
                Box::new(Local(session.map_err(|error| told(&error).of(self.name()))?))
            }
        };
        link.run(SETTINGS).map_err(|error| error.of(self.name()))?;
        Ok(link)
    }

    fn remote(&self) -> Result<Remote, TransferError> {
        let EndPoint::Server(config, name) = self else {
            return Err(TransferError::Address(format!("{} is no server", self.name())));
        };
        let connected = config.connect(NoTls).map_err(|error| {
            let mut why = match error.as_db_error() {
                Some(error) => error.message().to_owned(),
                None => with_cause(&error),
            };
            if config.get_ssl_mode() == postgres::config::SslMode::Require {
                why += "; this command does not speak TLS: use sslmode=disable, through a tunnel if the network is not trusted";
            } else if config.get_password().is_none() && why.contains("password") {
                why += "; give the password in the address or in the environment variable PGPASSWORD";
            }
            TransferError::Connect { server: name.clone(), why }
        })?;
        Ok(Remote(connected))
    }

    /// Ends the use of the database. A directory is closed.
    pub fn close(self) -> Result<(), TransferError> {
        match self {
            EndPoint::Server(..) => Ok(()),
            EndPoint::Directory(database, _) => Ok(database.close()?),
        }
    }
}

/// Returns the address without the password.
fn shown(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        postgres::config::Host::Tcp(name) => name.clone(),
        postgres::config::Host::Unix(path) => path.display().to_string(),
    });
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    let place = hosts.collect::<Vec<_>>().join(",");
    let port = if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
    format!("postgres://{place}{port}/{}", config.get_dbname().unwrap_or_default())
}

/// Returns the text of an error and of its cause.
pub fn with_cause(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// A connection over the wire.
struct Remote(Client);

fn told_by_server(error: &postgres::Error) -> StatementError {
    match error.as_db_error() {
        Some(error) => StatementError {
            sqlstate: error.code().code().to_owned(),
            message: match error.detail() {
                Some(detail) => format!("{}: {detail}", error.message()),
                None => error.message().to_owned(),
            },
            context: error.where_().map(|place| place.lines().next().unwrap_or_default().to_owned()),
        },
        None => StatementError { sqlstate: "08006".to_owned(), message: with_cause(error), context: None },
    }
}

fn told_by_system(error: &std::io::Error) -> StatementError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<postgres::Error>());
    inner.map_or_else(
        || StatementError { sqlstate: "08006".to_owned(), message: error.to_string(), context: None },
        told_by_server,
    )
}

impl Link for Remote {
    fn run(&mut self, sql: &str) -> Result<(), StatementError> {
        self.0.batch_execute(sql).map_err(|error| told_by_server(&error))
    }

    fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, StatementError> {
        let messages = self.0.simple_query(sql).map_err(|error| told_by_server(&error))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    fn copy_to(&mut self, sql: &str, out: &mut dyn Write) -> Result<(), StatementError> {
        let mut reader = self.0.copy_out(sql).map_err(|error| told_by_server(&error))?;
        loop {
            let piece = reader.fill_buf().map_err(|error| told_by_system(&error))?;
            if piece.is_empty() {
                return Ok(());
            }
            let count = piece.len();
            out.write_all(piece).map_err(|error| told_by_system(&error))?;
            reader.consume(count);
        }
    }

    fn copy_from(&mut self, sql: &str, data: &mut dyn BufRead) -> Result<u64, StatementError> {
        let mut writer = self.0.copy_in(sql).map_err(|error| told_by_server(&error))?;
        loop {
            let piece = data.fill_buf().map_err(|error| told_by_system(&error))?;
            if piece.is_empty() {
                break;
            }
            let count = piece.len();
            if let Err(error) = writer.write_all(piece) {
                // The end of the COPY has the server's error, which is the cause.
                return writer
                    .finish()
                    .map_err(|cause| told_by_server(&cause))
                    .and(Err(told_by_system(&error)));
            }
            data.consume(count);
        }
        writer.finish().map_err(|error| told_by_server(&error))
    }
}

/// A session in this process.
struct Local(Session);

fn told(error: &SqlError) -> StatementError {
    StatementError {
        sqlstate: error.sqlstate.to_string(),
        message: match &error.detail {
            Some(detail) => format!("{}: {detail}", error.message),
            None => error.message.to_string(),
        },
        context: error.context.as_deref().map(|place| place.lines().next().unwrap_or_default().to_owned()),
    }
}

impl Link for Local {
    fn run(&mut self, sql: &str) -> Result<(), StatementError> {
        self.0.simple(sql, &mut varve_sql::Nowhere).map_err(|error| told(&error))
    }

    fn rows(&mut self, sql: &str) -> Result<Vec<TextRow>, StatementError> {
        let mut texts = Texts { rows: Vec::new(), forms: self.0.forms().clone() };
        self.0.simple(sql, &mut texts).map_err(|error| told(&error))?;
        Ok(texts.rows)
    }

    fn copy_to(&mut self, sql: &str, out: &mut dyn Write) -> Result<(), StatementError> {
        self.0.simple(sql, &mut CopyTo(out)).map_err(|error| told(&error))
    }

    fn copy_from(&mut self, sql: &str, data: &mut dyn BufRead) -> Result<u64, StatementError> {
        let mut sink = CopyFrom { data, count: 0 };
        self.0.simple(sql, &mut sink).map_err(|error| told(&error))?;
        Ok(sink.count)
    }
}

/// A sink that stores rows as text.
struct Texts {
    rows: Vec<TextRow>,
    forms: TimeForms,
}

impl Sink for Texts {
    fn row(&mut self, row: &[Datum<'_>]) -> Result<(), SqlError> {
        let shown = row.iter().map(|datum| {
            if datum.is_null() {
                return None;
            }
            let mut bytes = Vec::new();
            text::write_with(*datum, &self.forms, &mut bytes);
            Some(String::from_utf8_lossy(&bytes).into_owned())
        });
        self.rows.push(shown.collect());
        Ok(())
    }
}

/// A sink that writes the data of COPY TO.
struct CopyTo<'o>(&'o mut dyn Write);

impl Sink for CopyTo<'_> {
    fn row(&mut self, _: &[Datum<'_>]) -> Result<(), SqlError> {
        Ok(())
    }

    fn copy_out(&mut self, _: CopyShape) -> Result<(), SqlError> {
        Ok(())
    }

    fn copy_data(&mut self, piece: &[u8]) -> Result<(), SqlError> {
        self.0.write_all(piece).map_err(|error| {
            SqlError::new(SqlState::IO_ERROR, format!("the output cannot be written: {error}"))
        })
    }

    fn copy_done(&mut self) -> Result<(), SqlError> {
        Ok(())
    }
}

/// A sink that gives the data of COPY FROM.
struct CopyFrom<'d> {
    data: &'d mut dyn BufRead,
    count: u64,
}

impl Sink for CopyFrom<'_> {
    fn row(&mut self, _: &[Datum<'_>]) -> Result<(), SqlError> {
        Ok(())
    }

    fn complete(&mut self, tag: &varve_sql::CommandTag) -> Result<(), SqlError> {
        if let varve_sql::CommandTag::Copy(count) = tag {
            self.count = *count;
        }
        Ok(())
    }

    fn copy_in(
        &mut self,
        _: CopyShape,
        feed: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = self.data.read(&mut piece).map_err(|error| {
                let told = told_by_system(&error);
                SqlError::new(SqlState::IO_ERROR, format!("the data of the source ended: {}", told.message))
            })?;
            if count == 0 {
                return Ok(());
            }
            feed(&piece[..count])?;
        }
    }
}
