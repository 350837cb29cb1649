//! Sequences: options of CREATE SEQUENCE, serial types, identity columns.
//!
//! Does not know: how values are given out.

use sqlparser::ast::{self, SequenceOptions};
use sqlparser::tokenizer::Token;
use varve_engine::{ColumnDef, ColumnType, Identity, NewSequence};

use super::Binder;
use super::ddl::made_name;
use crate::error::{Result, SqlError, SqlState};
use crate::parse;

impl Binder<'_> {
    /// The sequences of serial and identity columns, which become the columns' defaults.
    pub(super) fn sequences(
        &self,
        schema: &str,
        table: &str,
        serial: &[(usize, Vec<SequenceOptions>)],
        columns: &mut [ColumnDef],
    ) -> Result<Vec<(usize, NewSequence)>> {
        let mut sequences = Vec::with_capacity(serial.len());
        for (ordinal, options) in serial {
            let column = &mut columns[*ordinal];
            let name = self.free_name(schema, &made_name(table, &column.name, "seq"));
            column.default = Some(format!("nextval('{}'::regclass)", sequence_text(schema, &name)));
            let highest = highest_of(column.column_type);
            sequences.push((*ordinal, sequence_of(schema.to_owned(), name, options, highest)?));
        }
        Ok(sequences)
    }
}

/// Makes a column an identity column; its sequence follows.
pub(super) fn identity(table: &str, column: &mut ColumnDef, kind: Identity) -> Result<()> {
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

/// A sequence with these options, up to `highest` unless they say otherwise.
pub fn sequence_of(
    schema: String,
    name: String,
    options: &[SequenceOptions],
    highest: i64,
) -> Result<NewSequence> {
    let mut new = NewSequence::ascending(schema, name);
    let (mut start, mut min, mut max) = (None, None, None);
    for option in options {
        match option {
            SequenceOptions::IncrementBy(e, _) => new.increment = integer(e)?,
            SequenceOptions::StartWith(e, _) => start = Some(integer(e)?),
            SequenceOptions::MinValue(e) => min = e.as_ref().map(integer).transpose()?,
            SequenceOptions::MaxValue(e) => max = e.as_ref().map(integer).transpose()?,
            SequenceOptions::Cycle(no) => new.cycle = !no,
            SequenceOptions::Cache(_) => {}
        }
    }
    if new.increment == 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "INCREMENT must not be zero"));
    }
    let up = new.increment > 0;
    new.min = min.unwrap_or(if up { 1 } else { i64::MIN });
    new.max = max.unwrap_or(if up { highest } else { -1 });
    new.start = start.unwrap_or(if up { new.min } else { new.max });
    if new.min >= new.max {
        let message = format!("MINVALUE ({}) must be less than MAXVALUE ({})", new.min, new.max);
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    if new.start < new.min || new.start > new.max {
        let message = format!("START value ({}) is outside MINVALUE and MAXVALUE", new.start);
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(new)
}

fn integer(e: &ast::Expr) -> Result<i64> {
    e.to_string()
        .replace(' ', "")
        .parse()
        .map_err(|_| SqlError::new(SqlState::SYNTAX_ERROR, format!("an integer was expected, not {e}")))
}

fn highest_of(t: ColumnType) -> i64 {
    match t {
        ColumnType::Int2 => i64::from(i16::MAX),
        ColumnType::Int4 => i64::from(i32::MAX),
        _ => i64::MAX,
    }
}

/// What `serial` and its like are columns of.
pub(super) fn serial_type(t: &ast::DataType) -> Option<ColumnType> {
    let ast::DataType::Custom(name, arguments) = t else { return None };
    if !arguments.is_empty() {
        return None;
    }
    Some(match name.to_string().to_ascii_lowercase().as_str() {
        "smallserial" | "serial2" => ColumnType::Int2,
        "serial" | "serial4" => ColumnType::Int4,
        "bigserial" | "serial8" => ColumnType::Int8,
        _ => return None,
    })
}

/// The sequences that a default draws from by names that PostgreSQL keeps as OIDs: `nextval('name')`, not
/// `nextval('name'::text)`.
pub fn drawn_from(default: &str) -> Vec<String> {
    let Ok(tokens) = parse::tokens(default) else { return Vec::new() };
    let solid: Vec<&Token> = tokens.iter().map(|t| &t.token).filter(|t| !parse::is_blank(t)).collect();
    let is_word = |at: usize, wanted: &str| matches!(solid.get(at), Some(Token::Word(w)) if w.value.eq_ignore_ascii_case(wanted));
    let name = |at: usize| match solid.get(at + 2) {
        Some(Token::SingleQuotedString(name)) => {
            let is_text = solid.get(at + 3) == Some(&&Token::DoubleColon) && is_word(at + 4, "text");
            let draws = is_word(at, "nextval") && *solid[at + 1] == Token::LParen && !is_text;
            draws.then(|| name.clone())
        }
        _ => None,
    };
    (0..solid.len()).filter_map(name).collect()
}

/// A sequence's name as it stands in `nextval('...')`.
fn sequence_text(schema: &str, name: &str) -> String {
    let plain = |n: &str| n.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let quoted = |n: &str| if plain(n) { n.to_owned() } else { format!("\"{}\"", n.replace('"', "\"\"")) };
    let name = if schema == "public" { quoted(name) } else { format!("{}.{}", quoted(schema), quoted(name)) };
    name.replace('\'', "''")
}
