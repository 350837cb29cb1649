//! The functions of an SQL session that a connection needs, as a trait, so that tests can replace the
//! session.
//!
//! This module does not know messages.

use std::sync::Arc;
use std::time::Duration;

use varve_engine::{ColumnType, Datum};
use varve_sql::encoding::Encoding;
use varve_sql::oid::Oid;
use varve_sql::scram::Verifier;
use varve_sql::{
    CancelToken, Column, Ender, Prepared, Probing, Progress, SessionParams, Severity, Sink, SqlDatabase,
    SqlError,
};

/// Opens sessions.
pub trait Backend: Send + Sync + 'static {
    /// The type of its sessions.
    type Session: Session;

    /// Starts a session with these parameters.
    fn open(self: &Arc<Self>, params: SessionParams) -> Result<Self::Session, SqlError>;

    /// Returns the verifier for the password of a role. If the role does not exist, the verifier accepts no
    /// password.
    fn verifier(&self, user: &str) -> Verifier;
}

/// A prepared statement.
pub trait Statement {
    /// Returns the types of the parameters.
    fn parameter_oids(&self) -> &[Oid];
    /// Returns the type as which a parameter is decoded.
    fn parameter_type(&self, index: usize) -> ColumnType;
    /// Returns the result columns, or `None` if the statement returns no rows.
    fn columns(&self) -> Option<&[Column]>;
}

/// The state of a portal in a session.
pub trait PortalState {
    /// Returns whether the portal may still run. It may not if its part of the transaction was rolled back.
    fn is_open(&self) -> bool;
}

/// The session of one client. `varve_sql::Session` describes each call.
#[expect(missing_docs, reason = "documented there")]
pub trait Session {
    type Statement: Statement;
    type Portal: PortalState;

    fn prepare(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<Self::Statement>, SqlError>;
    fn name_statement(&mut self, name: &str, statement: Arc<Self::Statement>) -> Result<(), SqlError>;
    fn statement(&self, name: &str) -> Result<Arc<Self::Statement>, SqlError>;
    /// Does the same as `statement` for Bind.
    fn statement_to_run(&self, name: &str) -> Result<Arc<Self::Statement>, SqlError> {
        self.statement(name)
    }
    fn close_statement(&mut self, name: &str);
    fn open_portal(&mut self, name: &str, statement: &Self::Statement) -> Self::Portal;
    fn portal_columns(&self, _statement: &Self::Statement) -> Option<Option<Vec<Column>>> {
        None
    }
    fn simple(&mut self, sql: &str, sink: &mut dyn Sink) -> Result<(), SqlError>;
    fn execute(
        &mut self,
        statement: &Arc<Self::Statement>,
        params: &[Datum<'_>],
        portal: &mut Self::Portal,
        row_limit: usize,
        sink: &mut dyn Sink,
    ) -> Result<Progress, SqlError>;
    fn cursor_columns(&self, name: &str) -> Option<(&[Column], bool)>;
    fn sync(&mut self) -> Result<(), SqlError>;
    fn fail(&mut self);
    fn transaction_status(&self) -> u8;
    /// Returns whether there may be reports or notices.
    fn has_news(&self) -> bool {
        true
    }
    fn take_reports(&mut self) -> Vec<(&'static str, String)>;
    fn take_notices(&mut self) -> Vec<(Severity, SqlError)>;
    fn cancel_token(&self) -> CancelToken;
    fn set_ender(&self, _ender: Ender) {}
    fn forms(&self) -> &varve_sql::TimeForms;
    /// Returns the settings for reading text parameters.
    fn reading(&self) -> varve_sql::Reading<'_>;
    fn client_encoding(&self) -> Encoding {
        Encoding::UTF8
    }
    fn set_fact(&mut self, _name: &str, _value: &str) {}
    fn silence_limit(&self) -> Option<(Duration, bool)> {
        None
    }
    fn probing(&self) -> Probing {
        Probing::default()
    }
}

impl Backend for SqlDatabase {
    type Session = varve_sql::Session;

    fn open(self: &Arc<Self>, params: SessionParams) -> Result<Self::Session, SqlError> {
        varve_sql::Session::new(self.clone(), params)
    }

    fn verifier(&self, user: &str) -> Verifier {
        self.verifier(user)
    }
}

impl Statement for Prepared {
    fn parameter_oids(&self) -> &[Oid] {
        self.param_types()
    }

    fn parameter_type(&self, index: usize) -> ColumnType {
        self.param_column_type(index)
    }

    fn columns(&self) -> Option<&[Column]> {
        Prepared::columns(self)
    }
}

impl PortalState for varve_sql::Portal {
    fn is_open(&self) -> bool {
        self.is_open()
    }
}

impl Session for varve_sql::Session {
    type Statement = Prepared;
    type Portal = varve_sql::Portal;

    fn prepare(&mut self, sql: &str, types: &[Oid]) -> Result<Arc<Prepared>, SqlError> {
        self.prepare(sql, types)
    }

    fn name_statement(&mut self, name: &str, statement: Arc<Prepared>) -> Result<(), SqlError> {
        self.name_statement(name, statement)
    }

    fn statement(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        self.statement(name)
    }

    fn statement_to_run(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        self.statement_to_run(name)
    }

    fn close_statement(&mut self, name: &str) {
        self.close_statement(name);
    }

    fn open_portal(&mut self, name: &str, statement: &Prepared) -> varve_sql::Portal {
        self.open_portal(name, statement)
    }

    fn portal_columns(&self, statement: &Prepared) -> Option<Option<Vec<Column>>> {
        self.portal_columns(statement)
    }

    fn simple(&mut self, sql: &str, sink: &mut dyn Sink) -> Result<(), SqlError> {
        self.simple(sql, sink)
    }

    fn execute(
        &mut self,
        statement: &Arc<Prepared>,
        params: &[Datum<'_>],
        portal: &mut varve_sql::Portal,
        row_limit: usize,
        sink: &mut dyn Sink,
    ) -> Result<Progress, SqlError> {
        self.execute(statement, params, portal, row_limit, sink)
    }

    fn cursor_columns(&self, name: &str) -> Option<(&[Column], bool)> {
        self.cursor_columns(name)
    }

    fn sync(&mut self) -> Result<(), SqlError> {
        self.sync()
    }

    fn fail(&mut self) {
        self.fail();
    }

    fn transaction_status(&self) -> u8 {
        self.transaction_status()
    }

    fn has_news(&self) -> bool {
        self.has_news()
    }

    fn take_reports(&mut self) -> Vec<(&'static str, String)> {
        self.take_reports()
    }

    fn take_notices(&mut self) -> Vec<(Severity, SqlError)> {
        self.take_notices()
    }

    fn cancel_token(&self) -> CancelToken {
        self.cancel_token()
    }

    fn set_ender(&self, ender: Ender) {
        self.set_ender(ender);
    }

    fn forms(&self) -> &varve_sql::TimeForms {
        self.forms()
    }

    fn reading(&self) -> varve_sql::Reading<'_> {
        self.reading()
    }

    fn client_encoding(&self) -> Encoding {
        self.client_encoding()
    }

    fn set_fact(&mut self, name: &str, value: &str) {
        self.set_fact(name, value);
    }

    fn silence_limit(&self) -> Option<(Duration, bool)> {
        self.silence_limit()
    }

    fn probing(&self) -> Probing {
        self.probing()
    }
}
