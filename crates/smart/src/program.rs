//! Scan programs. A scan program describes what a device does with the rows of a table.
//!
//! Invariants
//! 1. A program that `check` accepts can be evaluated. Its columns exist, its constants have the types of
//!    their columns, and it is small.
//! 2. A program is data, not code: it names the columns and the comparisons. So it can be sent.
//!
//! Conditions have three values, as in SQL: true, false and NULL. A row is kept if the condition is true.

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use varve_engine::ColumnType;

use crate::error::{Result, SmartError};

/// The largest number of nodes of a condition.
pub(crate) const NODES_MAX: usize = 4096;
/// The largest number of columns of a table.
pub(crate) const COLUMNS_MAX: usize = 1664;
/// The largest number of aggregates, and of columns of a group.
pub(crate) const AGGREGATES_MAX: usize = 256;
/// The largest number of digits of a decimal that a program compares. Each integer of 18 digits fits into 64
/// bits.
const DIGITS_MAX: u16 = 18;
/// The digits of the arrays in which decimals are compared and added.
pub(crate) const ARRAY_DIGITS: u8 = 38;
/// NaN in arrays of decimals that are compared or added: the greatest integer of 38 digits. Values of columns
/// have at most 18 digits, and their sums have fewer than 38. So NaN is above all numbers, as in PostgreSQL.
pub const DECIMAL_NAN: i128 = 10_i128.pow(ARRAY_DIGITS as u32) - 1;

/// How a column is stored, as far as a scan needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColumnKind {
    /// boolean
    Bool,
    /// smallint
    Int2,
    /// integer, date
    Int4,
    /// bigint, oid, time and timestamps
    Int8,
    /// real
    Float4,
    /// double precision
    Float8,
    /// numeric with this scale and at most 18 digits; NaN is `DECIMAL_NAN`
    Decimal(u8),
    /// numeric of another kind; returned, but not compared
    Numeric,
    /// All strings, ordered by their bytes.
    Text,
    /// bytea
    Bytes,
    /// Arrays; returned, but not compared.
    List,
    /// interval; returned, but not compared
    Interval,
    /// uuid
    Uuid,
}

impl ColumnKind {
    /// Returns the kind of a column of this type.
    pub fn of(column: ColumnType) -> ColumnKind {
        match column {
            ColumnType::Bool => ColumnKind::Bool,
            ColumnType::Int2 => ColumnKind::Int2,
            ColumnType::Int4 | ColumnType::Date => ColumnKind::Int4,
            ColumnType::Int8
            | ColumnType::Oid
            | ColumnType::Timestamp
            | ColumnType::TimestampTz
            | ColumnType::Time => ColumnKind::Int8,
            ColumnType::Float4 => ColumnKind::Float4,
            ColumnType::Float8 => ColumnKind::Float8,
            ColumnType::Numeric { precision: Some((digits, scale)) }
                if digits <= DIGITS_MAX && (0..=DIGITS_MAX as i16).contains(&scale) =>
            {
                ColumnKind::Decimal(scale as u8)
            }
            ColumnType::Numeric { .. } => ColumnKind::Numeric,
            ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text | ColumnType::Json => {
                ColumnKind::Text
            }
            ColumnType::Bytea => ColumnKind::Bytes,
            ColumnType::Array(_) => ColumnKind::List,
            ColumnType::Interval => ColumnKind::Interval,
            ColumnType::Uuid => ColumnKind::Uuid,
            ColumnType::Rounded(moment, _) => ColumnKind::of(moment.unrounded()),
        }
    }

    /// Returns a type whose values are stored alike, to read rows.
    pub(crate) fn stored(self) -> ColumnType {
        match self {
            ColumnKind::Bool => ColumnType::Bool,
            ColumnKind::Int2 => ColumnType::Int2,
            ColumnKind::Int4 => ColumnType::Int4,
            ColumnKind::Int8 => ColumnType::Int8,
            ColumnKind::Float4 => ColumnType::Float4,
            ColumnKind::Float8 => ColumnType::Float8,
            ColumnKind::Decimal(_) | ColumnKind::Numeric => ColumnType::Numeric { precision: None },
            ColumnKind::Text => ColumnType::Text,
            ColumnKind::Bytes | ColumnKind::List => ColumnType::Bytea,
            ColumnKind::Interval => ColumnType::Interval,
            ColumnKind::Uuid => ColumnType::Uuid,
        }
    }

    /// Returns the array of returned values. Numerics, arrays, intervals and uuids are the engine's bytes.
    pub fn returned(self) -> DataType {
        match self {
            ColumnKind::Bool => DataType::Boolean,
            ColumnKind::Int2 => DataType::Int16,
            ColumnKind::Int4 => DataType::Int32,
            ColumnKind::Int8 => DataType::Int64,
            ColumnKind::Float4 => DataType::Float32,
            ColumnKind::Float8 => DataType::Float64,
            ColumnKind::Text => DataType::Utf8,
            ColumnKind::Decimal(_)
            | ColumnKind::Numeric
            | ColumnKind::Bytes
            | ColumnKind::List
            | ColumnKind::Interval
            | ColumnKind::Uuid => DataType::Binary,
        }
    }

    /// Returns the array of values that are compared or aggregated, or `None` if they are not compared.
    pub(crate) fn operand(self) -> Option<DataType> {
        match self {
            ColumnKind::Decimal(scale) => Some(DataType::Decimal128(ARRAY_DIGITS, scale as i8)),
            ColumnKind::Numeric | ColumnKind::List | ColumnKind::Interval => None,
            other => Some(other.returned()),
        }
    }
}

/// A constant of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Constant {
    /// For a boolean column.
    Bool(bool),
    /// For a column of integers, dates or times.
    Int(i64),
    /// For a column of floating-point numbers: the bits of a double.
    Float(u64),
    /// For a decimal column: the integer in units of the column's last digit.
    Decimal(i64),
    /// For a text column.
    Text(String),
    /// For a bytea or uuid column.
    Bytes(Vec<u8>),
}

/// How a column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A condition on a row. Columns are numbers in the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// All of these conditions are true.
    And(Vec<Condition>),
    /// At least one of these conditions is true.
    Or(Vec<Condition>),
    /// This condition is false.
    Not(Box<Condition>),
    /// The column is NULL.
    IsNull(usize),
    /// The comparison of the column with the constant is true.
    Compare(usize, Comparison, Constant),
    /// The column is at least the first constant and at most the second.
    Between(usize, Constant, Constant),
    /// The text in the column begins with this text.
    Prefix(usize, String),
}

/// An aggregate over the rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aggregate {
    /// `count(*)`
    CountRows,
    /// `count(column)`
    Count(usize),
    /// `sum(column)` of integers or decimals; NaN if a value is NaN
    Sum(usize),
    /// `min(column)`
    Min(usize),
    /// `max(column)`
    Max(usize),
    /// `avg(column)` of integers or decimals: its sum and its count
    Average(usize),
}

/// What a program returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// These columns of each row, each of them once.
    Columns(Vec<usize>),
    /// The aggregates of each group of rows with equal keys. Without keys, all rows are one group.
    Groups {
        /// The columns of the key.
        keys: Vec<usize>,
        /// The aggregates.
        aggregates: Vec<Aggregate>,
    },
}

/// A scan program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The columns of the table.
    pub columns: Vec<ColumnKind>,
    /// The condition; `None` keeps every row.
    pub condition: Option<Condition>,
    /// What is returned.
    pub output: Output,
}

impl Program {
    /// Checks whether the program can be run. The error says why it can't.
    pub fn check(&self) -> Result<()> {
        limit("columns of the table", self.columns.len(), COLUMNS_MAX)?;
        for kind in &self.columns {
            if let ColumnKind::Decimal(scale) = kind {
                limit("digits behind the point of a column", usize::from(*scale), usize::from(DIGITS_MAX))?;
            }
        }
        if let Some(condition) = &self.condition {
            let mut nodes = 0;
            self.check_condition(condition, &mut nodes)?;
        }
        match &self.output {
            Output::Columns(columns) => {
                limit("columns", columns.len(), COLUMNS_MAX)?;
                columns.iter().try_for_each(|column| self.kind(*column).map(drop))?;
                let mut sorted = columns.clone();
                sorted.sort_unstable();
                match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                    None => Ok(()),
                    Some(pair) => Err(SmartError::Program(format!("it returns column {} twice", pair[0]))),
                }
            }
            Output::Groups { keys, aggregates } => {
                limit("keys", keys.len(), AGGREGATES_MAX)?;
                limit("aggregates", aggregates.len(), AGGREGATES_MAX)?;
                keys.iter().try_for_each(|column| self.compared(*column).map(drop))?;
                aggregates.iter().try_for_each(|aggregate| self.check_aggregate(*aggregate))
            }
        }
    }

    /// Returns the kind of a column.
    pub(crate) fn kind(&self, column: usize) -> Result<ColumnKind> {
        let count = self.columns.len();
        let missing = || SmartError::Program(format!("it names column {column} of {count} columns"));
        self.columns.get(column).copied().ok_or_else(missing)
    }

    fn compared(&self, column: usize) -> Result<ColumnKind> {
        let kind = self.kind(column)?;
        match kind.operand() {
            Some(_) => Ok(kind),
            None => Err(SmartError::Program(format!("column {column} of kind {kind:?} is not compared"))),
        }
    }

    fn check_condition(&self, condition: &Condition, nodes: &mut usize) -> Result<()> {
        *nodes += 1;
        limit("nodes of the condition", *nodes, NODES_MAX)?;
        match condition {
            Condition::And(parts) | Condition::Or(parts) => {
                parts.iter().try_for_each(|part| self.check_condition(part, nodes))
            }
            Condition::Not(inner) => self.check_condition(inner, nodes),
            Condition::IsNull(column) => self.kind(*column).map(drop),
            Condition::Compare(column, _, constant) => self.check_constant(*column, constant),
            Condition::Between(column, low, high) => {
                self.check_constant(*column, low)?;
                self.check_constant(*column, high)
            }
            Condition::Prefix(column, _) => match self.compared(*column)? {
                ColumnKind::Text => Ok(()),
                kind => Err(SmartError::Program(format!("column {column} of kind {kind:?} has no prefix"))),
            },
        }
    }

    fn check_constant(&self, column: usize, constant: &Constant) -> Result<()> {
        let kind = self.compared(column)?;
        let fits = match (kind, constant) {
            (ColumnKind::Bool, Constant::Bool(_))
            | (ColumnKind::Int8, Constant::Int(_))
            | (ColumnKind::Float8, Constant::Float(_))
            | (ColumnKind::Decimal(_), Constant::Decimal(_))
            | (ColumnKind::Text, Constant::Text(_))
            | (ColumnKind::Bytes | ColumnKind::Uuid, Constant::Bytes(_)) => true,
            (ColumnKind::Int2, Constant::Int(value)) => i16::try_from(*value).is_ok(),
            (ColumnKind::Int4, Constant::Int(value)) => i32::try_from(*value).is_ok(),
            (ColumnKind::Float4, Constant::Float(bits)) => {
                let value = f64::from_bits(*bits);
                value.is_nan() || f64::from(value as f32) == value
            }
            _ => false,
        };
        let what = || format!("column {column} of kind {kind:?} is compared with {constant:?}");
        if fits { Ok(()) } else { Err(SmartError::Program(what())) }
    }

    fn check_aggregate(&self, aggregate: Aggregate) -> Result<()> {
        match aggregate {
            Aggregate::CountRows => Ok(()),
            Aggregate::Count(column) => self.kind(column).map(drop),
            Aggregate::Min(column) | Aggregate::Max(column) => self.compared(column).map(drop),
            Aggregate::Sum(column) | Aggregate::Average(column) => match self.kind(column)? {
                ColumnKind::Int2 | ColumnKind::Int4 | ColumnKind::Int8 | ColumnKind::Decimal(_) => Ok(()),
                // The sum of floating-point numbers depends on the order of the rows.
                kind => Err(SmartError::Program(format!("column {column} of kind {kind:?} has no sum"))),
            },
        }
    }

    /// Returns the columns of which the values are compared or aggregated.
    pub(crate) fn operands(&self) -> Vec<usize> {
        let mut columns = Vec::new();
        if let Some(condition) = &self.condition {
            add_operands(condition, &mut columns);
        }
        if let Output::Groups { keys, aggregates } = &self.output {
            columns.extend(keys);
            columns.extend(aggregates.iter().filter_map(|aggregate| match aggregate {
                Aggregate::CountRows | Aggregate::Count(_) => None,
                Aggregate::Sum(c) | Aggregate::Min(c) | Aggregate::Max(c) | Aggregate::Average(c) => Some(*c),
            }));
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Returns the columns of which the program needs to know whether they are NULL, or which it returns.
    pub(crate) fn returned(&self) -> Vec<usize> {
        let mut columns = Vec::new();
        if let Some(condition) = &self.condition {
            add_tested(condition, &mut columns);
        }
        match &self.output {
            Output::Columns(returned) => columns.extend(returned),
            Output::Groups { aggregates, .. } => {
                columns.extend(aggregates.iter().filter_map(|aggregate| match aggregate {
                    Aggregate::Count(column) => Some(*column),
                    _ => None,
                }));
            }
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

fn limit(what: &str, found: usize, limit: usize) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(SmartError::Limit { what: format!("the program has {found} {what}"), limit })
}

fn add_operands(condition: &Condition, columns: &mut Vec<usize>) {
    match condition {
        Condition::And(parts) | Condition::Or(parts) => {
            parts.iter().for_each(|part| add_operands(part, columns));
        }
        Condition::Not(inner) => add_operands(inner, columns),
        Condition::IsNull(_) => {}
        Condition::Compare(column, ..) | Condition::Between(column, ..) | Condition::Prefix(column, _) => {
            columns.push(*column);
        }
    }
}

fn add_tested(condition: &Condition, columns: &mut Vec<usize>) {
    match condition {
        Condition::And(parts) | Condition::Or(parts) => {
            parts.iter().for_each(|part| add_tested(part, columns));
        }
        Condition::Not(inner) => add_tested(inner, columns),
        Condition::IsNull(column) => columns.push(*column),
        Condition::Compare(..) | Condition::Between(..) | Condition::Prefix(..) => {}
    }
}
