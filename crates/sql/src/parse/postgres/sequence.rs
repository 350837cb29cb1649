//! Converts CREATE and ALTER SEQUENCE, and the options of sequences from the tree of PostgreSQL's parser to
//! the syntax tree of `crate::ast`.
//!
//! This module does not know the values of options that are not given (`bind::sequence`).

use pg_query::NodeEnum;
use pg_query::protobuf::{AlterSeqStmt, CreateSeqStmt, Node};
use varve_engine::ColumnType;

use super::definition::persistence;
use super::node::{Opt, Source, options, redundant};
use super::place::{Reader, strings};
use crate::ast::{AlterSequence, CreateSequence, OwnedBy, SequenceAction, SequenceOptions, TypeName};
use crate::error::{Result, SqlError, SqlState};
use crate::ty::{self, Typed};

impl Reader<'_> {
    pub(super) fn create_sequence(&self, s: &CreateSeqStmt) -> Result<CreateSequence> {
        persistence(s.sequence.as_ref(), "a temporary sequence")?;
        Ok(CreateSequence {
            name: self.relation(s.sequence.as_ref())?,
            if_not_exists: s.if_not_exists,
            options: self.sequence_options(&s.options)?,
        })
    }

    pub(super) fn alter_sequence(&self, s: &AlterSeqStmt) -> Result<AlterSequence> {
        Ok(AlterSequence {
            name: self.relation(s.sequence.as_ref())?,
            if_exists: s.missing_ok,
            action: SequenceAction::SetOptions(self.sequence_options(&s.options)?),
        })
    }

    /// Converts the options of a sequence.
    pub(super) fn sequence_options(&self, list: &[Node]) -> Result<SequenceOptions> {
        let mut said = SequenceOptions::default();
        for option in options(list)? {
            self.take_option(&mut said, option)?;
        }
        Ok(said)
    }

    /// Stores an option. Fails with 42601 if it was given before.
    pub(super) fn take_option(&self, said: &mut SequenceOptions, option: Opt<'_>) -> Result<()> {
        let is_new = match option.name() {
            "as" => said.data_type.replace(self.type_of(option)?).is_none(),
            "increment" => said.increment.replace(needed(option)?).is_none(),
            "minvalue" => said.min.replace(integer(option)?).is_none(),
            "maxvalue" => said.max.replace(integer(option)?).is_none(),
            "start" => said.start.replace(needed(option)?).is_none(),
            "restart" => said.restart.replace(integer(option)?).is_none(),
            "cache" => said.cache.replace(needed(option)?).is_none(),
            "cycle" => said.cycle.replace(option.flag()?).is_none(),
            "owned_by" => said.owned_by.replace(owner(names(option)?)?).is_none(),
            "sequence_name" => {
                let mut names = names(option)?;
                let name = names.pop().unwrap_or_default();
                said.name.replace((names.pop(), name)).is_none()
            }
            other => return Err(SqlError::unsupported(format!("the option {other} of a sequence"))),
        };
        if is_new { Ok(()) } else { Err(redundant(option.position(Source { sql: self.text() }))) }
    }

    fn type_of(&self, option: Opt<'_>) -> Result<varve_engine::ColumnType> {
        match option.value() {
            Some(NodeEnum::TypeName(name)) => sequence_type(&self.type_name(name)?),
            _ => Err(SqlError::internal("AS of a sequence without a type")),
        }
    }
}

fn needed(option: Opt<'_>) -> Result<i64> {
    integer(option)?.ok_or_else(|| SqlError::internal("an option of a sequence without its number"))
}

/// Returns the integer value of an option, if it has one.
fn integer(option: Opt<'_>) -> Result<Option<i64>> {
    if option.value().is_none() {
        return Ok(None);
    }
    let text = option.needed_text()?;
    if let Ok(number) = text.parse() {
        return Ok(Some(number));
    }
    let is_whole = text.trim_start_matches(['+', '-']).bytes().all(|b| b.is_ascii_digit());
    Err(match is_whole {
        true => {
            let message = format!("value \"{text}\" is out of range for type bigint");
            SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
        }
        false => {
            let message = format!("invalid input syntax for type bigint: \"{text}\"");
            SqlError::new(SqlState::INVALID_TEXT, message)
        }
    })
}

fn names(option: Opt<'_>) -> Result<Vec<String>> {
    match option.value() {
        Some(NodeEnum::List(list)) => Ok(strings(&list.items)?.into_iter().map(str::to_owned).collect()),
        _ => Err(SqlError::internal("an option of a sequence without its name")),
    }
}

/// Converts OWNED BY with the parts of its name. Fails with 42601 unless the name can be that of a column.
fn owner(mut parts: Vec<String>) -> Result<OwnedBy> {
    match (parts.pop(), parts.as_slice()) {
        (Some(none), []) if none == "none" => Ok(OwnedBy::Nothing),
        (Some(column), [_, ..]) => Ok(OwnedBy::Column(parts, column)),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "invalid OWNED BY option")
            .with_hint("Specify OWNED BY table.column or OWNED BY NONE.")),
    }
}

/// Converts AS. Fails with 22023 unless the type is an integer type.
fn sequence_type(data_type: &TypeName) -> Result<ColumnType> {
    match ty::of_ast(data_type).and_then(Typed::storage)? {
        t @ (ColumnType::Int2 | ColumnType::Int4 | ColumnType::Int8) => Ok(t),
        _ => Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "sequence type must be smallint, integer, or bigint",
        )),
    }
}
