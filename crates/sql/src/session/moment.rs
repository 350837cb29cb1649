//! Statements of a session that read an earlier moment: `AS OF` and the setting `as_of`.
//!
//! This module does not know how the engine keeps old versions of rows.

use varve_engine::Datum;

use super::Session;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Input, NoSequences};
use crate::moment;
use crate::prepared::{MomentOf, Prepared};

impl Session {
    /// Chooses what the transaction of a plan reads, before the plan runs: the present, or the moment of AS
    /// OF or of the setting.
    #[inline]
    pub(super) fn choose_moment(&mut self, prepared: &Prepared, params: &[Datum<'_>]) -> Result<()> {
        if prepared.as_of.is_some() || self.defaults.as_of.is_some() {
            self.go_back(prepared.as_of.as_deref().map(|as_of| (as_of, params)))?;
        }
        self.facts.read_only = self.read_only;
        Ok(())
    }

    /// Makes the transaction that is about to run its first statement read an earlier moment: the moment of
    /// the statement's AS OF with these parameters, or else of the setting. The transaction is read-only from
    /// then on.
    pub(super) fn go_back(&mut self, of_statement: Option<(&MomentOf, &[Datum<'_>])>) -> Result<()> {
        let in_block = self.in_block();
        let has_begun = self.begin_engine().has_begun();
        let at = match of_statement {
            Some(_) if in_block || has_begun => {
                let message = "AS OF cannot be used inside a transaction block";
                let hint = "SET LOCAL as_of before the first query makes the whole transaction read an earlier moment.";
                return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).with_hint(hint));
            }
            Some((MomentOf::Text(as_of), _)) => moment::moment(as_of, &self.facts.reading())?,
            Some((MomentOf::Value(expr), params)) => {
                let env = self.facts.env(&NoSequences);
                let cx = Cx { params, arena: &self.scratch.row_arena, env: &env };
                moment::of_value(expr.eval(&Input::None, &cx)?)?
            }
            // If the setting was there when the transaction began to read, the transaction reads its moment
            // already. A later value of the setting holds from the next transaction on.
            None if has_begun => return Ok(()),
            None => match &self.defaults.as_of {
                Some(as_of) => moment::moment(as_of, &self.facts.reading())?,
                None => return Ok(()),
            },
        };
        self.begin_engine().read_as_of(at)?;
        self.read_only = true;
        Ok(())
    }

    /// Ends the transaction of a statement with AS OF, so that the next statement of the same text reads the
    /// present.
    pub(super) fn come_back(&mut self) -> Result<()> {
        self.catalog = None;
        match self.txn.take() {
            Some(txn) => Ok(txn.commit()?),
            None => Ok(()),
        }
    }
}
