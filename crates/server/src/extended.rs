//! The messages of the extended query protocol: Parse, Bind, Describe, Execute, Close.
//!
//! Invariants
//! 1. Parameters are decoded at Bind, so a wrong parameter is an error of Bind. An error of Execute comes
//!    only from the statement itself.
//! 2. A portal that has returned all its rows never runs its statement again.
//!
//! The module `connection` handles errors.

use pgwire::messages::data::MESSAGE_TYPE_BYTE_NO_DATA;
use pgwire::messages::extendedquery::{
    MESSAGE_TYPE_BYTE_BIND_COMPLETE, MESSAGE_TYPE_BYTE_CLOSE_COMPLETE, MESSAGE_TYPE_BYTE_PARSE_COMPLETE,
    MESSAGE_TYPE_BYTE_PORTAL_SUSPENDED,
};
use smallvec::SmallVec;
use varve_engine::{Datum, Value, planted_panic};
use varve_sql::{Column, CommandTag, Progress};

use crate::codec::{self, Wanted};
use crate::connection::{Failed, Talk};
use crate::error::WireError;
use crate::frame::FrameReader;
use crate::message::{Bind, Parse, StatementOrPortal};
use crate::out::Out;
use crate::portal::Portal;
use crate::results::{ColumnFormats, Results, complete, describe_row};
use crate::session::{Session, Statement};
use crate::stream::Stream;

impl<S: Session> Talk<'_, S> {
    pub(crate) fn parse(&mut self, parse: &Parse<'_>) -> Result<(), Failed> {
        if parse.name.is_empty() {
            self.session.close_statement("");
        }
        self.oids.clear();
        self.oids.extend(parse.type_oids());
        let statement = self.session.prepare(parse.sql, &self.oids)?;
        self.session.name_statement(parse.name, statement)?;
        self.out.bare(MESSAGE_TYPE_BYTE_PARSE_COMPLETE);
        Ok(())
    }

    pub(crate) fn bind(&mut self, bind: &Bind<'_>) -> Result<(), Failed> {
        let statement = self.session.statement_to_run(bind.statement)?;
        planted_panic("panic at bind");
        let values = parameters::<S>(bind, &statement, &self.session)?;
        let own_columns = self.session.portal_columns(&statement);
        let formats = ColumnFormats::default();
        let state = self.session.open_portal(bind.portal, &statement);
        let mut portal = Portal { statement, values, own_columns, formats, state, finished: false };
        let column_count = portal.columns().map_or(0, <[_]>::len);
        portal.formats = ColumnFormats::new(&bind.result_formats, column_count)?;
        self.portals.add(bind.portal, portal)?;
        self.out.bare(MESSAGE_TYPE_BYTE_BIND_COMPLETE);
        Ok(())
    }

    pub(crate) fn describe(&mut self, target: StatementOrPortal<'_>) -> Result<(), Failed> {
        planted_panic("panic at describe");
        match target {
            StatementOrPortal::Statement(name) => {
                let statement = self.session.statement(name)?;
                describe_parameters(self.out, statement.parameter_oids());
                describe_columns(self.out, statement.columns(), &ColumnFormats::default())?;
            }
            // Cursors of DECLARE are portals, too.
            StatementOrPortal::Portal(name)
                if let Some((columns, is_binary)) = self.session.cursor_columns(name) =>
            {
                describe_row(self.out, columns, &ColumnFormats::all(is_binary, columns.len()))?;
            }
            StatementOrPortal::Portal(name) => {
                let portal = self.portals.get(name)?;
                describe_columns(self.out, portal.columns(), &portal.formats)?;
            }
        }
        Ok(())
    }

    pub(crate) fn execute(
        &mut self,
        reader: &mut FrameReader<Stream>,
        name: &str,
        row_limit: u32,
    ) -> Result<(), Failed> {
        self.out.flush_if_full()?;
        let portal = self.portals.get(name)?;
        if portal.finished {
            return match self.session.transaction_status() {
                b'E' => Err(in_failed_transaction().into()),
                _ => Ok(again(portal, name, self.out)?),
            };
        }
        let params: SmallVec<[Datum<'_>; 8]> = portal.values.iter().map(Value::as_datum).collect();
        let columns = match &portal.own_columns {
            Some(own) => own.as_deref(),
            None => portal.statement.columns(),
        };
        let columns = columns.unwrap_or_default();
        let (formats, forms) = (&portal.formats, self.session.forms().clone());
        let mut results =
            Results { out: self.out, reader, formats, columns, forms, binary: None, broken: None };
        let done = self.session.execute(
            &portal.statement,
            &params,
            &mut portal.state,
            row_limit as usize,
            &mut results,
        );
        if let Some(end) = results.broken {
            return Err(Failed::Connection(end));
        }
        drop(params);
        match done? {
            Progress::Suspended => self.out.bare(MESSAGE_TYPE_BYTE_PORTAL_SUSPENDED),
            Progress::Complete(tag) => {
                portal.finished = true;
                complete(self.out, &tag);
                if matches!(tag, CommandTag::Plain("COMMIT" | "ROLLBACK")) {
                    self.portals.clear();
                }
            }
        }
        Ok(self.out.flush_if_full()?)
    }

    pub(crate) fn close(&mut self, target: StatementOrPortal<'_>) -> Result<(), Failed> {
        match target {
            StatementOrPortal::Statement(name) => self.session.close_statement(name),
            StatementOrPortal::Portal(name) => self.portals.close(name),
        }
        self.out.bare(MESSAGE_TYPE_BYTE_CLOSE_COMPLETE);
        Ok(())
    }
}

/// Decodes the parameters with the types of the statement.
fn parameters<S: Session>(
    bind: &Bind<'_>,
    statement: &S::Statement,
    session: &S,
) -> Result<Vec<Value>, WireError> {
    let (given, wanted) = (bind.parameter_count, statement.parameter_oids().len());
    let formats = bind.parameter_formats.count();
    if formats > 1 && formats != given {
        let message = format!("bind message has {formats} parameter formats but {given} parameters");
        return Err(WireError::protocol(message));
    }
    if given != wanted {
        return Err(WireError::protocol(format!(
            "bind message supplies {given} parameters, but prepared statement \"{}\" requires {wanted}",
            bind.statement
        )));
    }
    let encoding = session.client_encoding();
    let oids = statement.parameter_oids().iter();
    let raw = bind.values().zip(oids).enumerate();
    raw.map(|(index, (raw, oid))| {
        let format = bind.parameter_formats.get(index)?;
        let wanted =
            Wanted { oid: *oid, column_type: statement.parameter_type(index), reading: session.reading() };
        let utf8 = raw.map(|raw| codec::in_utf8(raw, format, *oid, encoding)).transpose();
        let value = utf8.and_then(|raw| codec::read(raw.as_deref(), format, wanted, index + 1));
        value.map_err(|error| error.within(|| in_parameter(bind.portal, index + 1)))
    })
    .collect()
}

/// Returns the context of an error in a parameter, with PostgreSQL's text.
fn in_parameter(portal: &str, number: usize) -> String {
    match portal {
        "" => format!("unnamed portal parameter ${number}"),
        _ => format!("portal \"{portal}\" parameter ${number}"),
    }
}

/// Returns the error 25P02.
fn in_failed_transaction() -> WireError {
    WireError::error(
        "25P02",
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

/// Answers an Execute message for a portal that has returned all its rows.
fn again<S: Session>(portal: &Portal<S>, name: &str, out: &mut Out<Stream>) -> Result<(), WireError> {
    if portal.columns().is_none() {
        return Err(WireError::error("55000", format!("portal \"{name}\" cannot be run")));
    }
    complete(out, &CommandTag::Select(0));
    Ok(())
}

fn describe_parameters(out: &mut Out<Stream>, oids: &[u32]) {
    let message = out.begin(b't');
    out.buffer().extend_from_slice(&(oids.len() as u16).to_be_bytes());
    oids.iter().for_each(|oid| out.buffer().extend_from_slice(&oid.to_be_bytes()));
    out.end(message);
}

fn describe_columns(
    out: &mut Out<Stream>,
    columns: Option<&[Column]>,
    formats: &ColumnFormats,
) -> Result<(), WireError> {
    match columns {
        Some(columns) => describe_row(out, columns, formats),
        None => {
            out.bare(MESSAGE_TYPE_BYTE_NO_DATA);
            Ok(())
        }
    }
}
