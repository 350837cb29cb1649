//! Binds sequences: options of CREATE and ALTER SEQUENCE, serial types, identity columns.
//!
//! Source: `init_params` of PostgreSQL 15's `commands/sequence.c`.
//!
//! This module does not know how a sequence produces values.

use varve_engine::{ColumnDef, ColumnType, Identity, NewSequence, SequenceDef};

use super::Binder;
use crate::ast::{SequenceOptions, TypeName};
use crate::error::{Result, SqlError, SqlState};
use crate::made_name::made_name;
use crate::nextval::sequence_text;
use crate::ty::Typed;

impl Binder<'_> {
    /// Makes the sequences of serial and identity columns. Each column gets its sequence as its default.
    pub(super) fn sequences(
        &self,
        schema: &str,
        table: &str,
        serial: &[(usize, SequenceOptions)],
        columns: &mut [ColumnDef],
    ) -> Result<Vec<(usize, NewSequence)>> {
        let mut sequences = Vec::with_capacity(serial.len());
        for (ordinal, options) in serial {
            sequences
                .push((*ordinal, self.sequence_of_column(schema, table, &mut columns[*ordinal], options)?));
        }
        Ok(sequences)
    }

    /// Makes the sequence of one column. The column gets it as its default.
    pub fn sequence_of_column(
        &self,
        schema: &str,
        table: &str,
        column: &mut ColumnDef,
        options: &SequenceOptions,
    ) -> Result<NewSequence> {
        let name = match &options.name {
            Some((_, name)) => name.clone(),
            None => self.free_name(schema, &made_name(table, &column.name, "seq")),
        };
        let schema = options.name.as_ref().and_then(|(schema, _)| schema.as_deref()).unwrap_or(schema);
        column.default = Some(format!("nextval('{}'::regclass)", sequence_text(schema, &name)));
        let typed = SequenceOptions { data_type: Some(column.column_type), ..options.clone() };
        sequence_of(schema.to_owned(), name, &typed)
    }
}

/// Makes a column an identity column. The caller makes its sequence.
pub fn identity(table: &str, column: &mut ColumnDef, kind: Identity) -> Result<()> {
    if !matches!(column.column_type, ColumnType::Int2 | ColumnType::Int4 | ColumnType::Int8) {
        let message = "identity column type must be smallint, integer, or bigint";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    if column.default.is_some() {
        let message = format!(
            "both default and identity specified for column \"{}\" of table \"{table}\"",
            column.name
        );
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    column.identity = Some(kind);
    column.not_null = true;
    Ok(())
}

/// Returns a new sequence with these options.
pub fn sequence_of(schema: String, name: String, options: &SequenceOptions) -> Result<NewSequence> {
    let (new, _) = settled(NewSequence::ascending(schema, name), options, true)?;
    Ok(new)
}

/// Returns the sequence after ALTER SEQUENCE, and the value of RESTART if this option is given.
pub fn changed(old: &SequenceDef, options: &SequenceOptions) -> Result<(NewSequence, Option<i64>)> {
    settled(NewSequence::of(old), options, false)
}

fn settled(
    mut new: NewSequence,
    options: &SequenceOptions,
    is_new: bool,
) -> Result<(NewSequence, Option<i64>)> {
    let (was_lowest, was_highest) = bounds_of(new.data_type);
    let (mut resets_min, mut resets_max) = (false, false);
    if let Some(data_type) = options.data_type {
        // A bound that equals the bound of the old type becomes the bound of the new type.
        resets_min = !is_new && new.min == was_lowest;
        resets_max = !is_new && new.max == was_highest;
        new.data_type = data_type;
    }
    let (lowest, highest) = bounds_of(new.data_type);
    new.increment = options.increment.unwrap_or(new.increment);
    if new.increment == 0 {
        return Err(invalid("INCREMENT must not be zero"));
    }
    new.cycle = options.cycle.unwrap_or(new.cycle);
    let up = new.increment > 0;
    new.max = match options.max {
        Some(Some(max)) => max,
        given if is_new || given.is_some() || resets_max => {
            if up || resets_max {
                highest
            } else {
                -1
            }
        }
        _ => new.max,
    };
    new.min = match options.min {
        Some(Some(min)) => min,
        given if is_new || given.is_some() || resets_min => {
            if !up || resets_min {
                lowest
            } else {
                1
            }
        }
        _ => new.min,
    };
    for (what, value) in [("MAXVALUE", new.max), ("MINVALUE", new.min)] {
        if !(lowest..=highest).contains(&value) {
            let ty = Typed::of_column(new.data_type).ty.name();
            return Err(invalid(format!("{what} ({value}) is out of range for sequence data type {ty}")));
        }
    }
    if new.min >= new.max {
        return Err(invalid(format!("MINVALUE ({}) must be less than MAXVALUE ({})", new.min, new.max)));
    }
    let first = if up { new.min } else { new.max };
    new.start = options.start.unwrap_or(if is_new { first } else { new.start });
    refuse_beyond("START", new.start, &new)?;
    let restart = options.restart.map(|with| with.unwrap_or(new.start));
    if let Some(value) = restart {
        refuse_beyond("RESTART", value, &new)?;
    }
    new.cache = options.cache.unwrap_or(new.cache);
    if new.cache <= 0 {
        return Err(invalid(format!("CACHE ({}) must be greater than zero", new.cache)));
    }
    Ok((new, restart))
}

/// Fails with 22023 if a value is outside of the sequence's bounds.
pub fn refuse_beyond(what: &str, value: i64, sequence: &NewSequence) -> Result<()> {
    let (min, max) = (sequence.min, sequence.max);
    if value < min {
        return Err(invalid(format!("{what} value ({value}) cannot be less than MINVALUE ({min})")));
    }
    match value > max {
        true => Err(invalid(format!("{what} value ({value}) cannot be greater than MAXVALUE ({max})"))),
        false => Ok(()),
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn bounds_of(t: ColumnType) -> (i64, i64) {
    match t {
        ColumnType::Int2 => (i16::MIN.into(), i16::MAX.into()),
        ColumnType::Int4 => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Returns the column type that `serial`, `bigserial` or `smallserial` stands for.
pub(super) fn serial_type(t: &TypeName) -> Option<ColumnType> {
    let [name] = t.name.0.as_slice() else { return None };
    if !t.modifiers.is_empty() || t.is_array {
        return None;
    }
    Some(match name.value.as_str() {
        "smallserial" | "serial2" => ColumnType::Int2,
        "serial" | "serial4" => ColumnType::Int4,
        "bigserial" | "serial8" => ColumnType::Int8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(options: SequenceOptions) -> Result<NewSequence> {
        sequence_of("public".into(), "s".into(), &options)
    }

    /// The expected results are those of PostgreSQL 15.
    #[test]
    fn options_are_settled_as_postgresql_does() {
        let down = made(SequenceOptions { increment: Some(-1), ..Default::default() }).unwrap();
        assert_eq!((down.min, down.max, down.start), (i64::MIN, -1, -1));
        let small = SequenceOptions { data_type: Some(ColumnType::Int2), ..Default::default() };
        let small = made(small).unwrap();
        assert_eq!((small.min, small.max, small.start), (1, 32_767, 1));
        let error = |options| made(options).unwrap_err().message.into_string();
        let max = |n| SequenceOptions {
            data_type: Some(ColumnType::Int2),
            max: Some(Some(n)),
            ..Default::default()
        };
        assert_eq!(error(max(40_000)), "MAXVALUE (40000) is out of range for sequence data type smallint");
        assert_eq!(error(max(0)), "MINVALUE (1) must be less than MAXVALUE (0)");
        let start = SequenceOptions { start: Some(0), ..Default::default() };
        assert_eq!(error(start), "START value (0) cannot be less than MINVALUE (1)");
    }
}
