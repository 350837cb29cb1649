//! Encoding of catalog definitions: the bytes in the column `definition` of the system table `objects`.
//!
//! | part | what |
//! |---|---|
//! | u8 | version of the encoding: 2, or 3 if the next part is there |
//! | u32 | number of the database that it is in; not there for `postgres` and for what all databases share |
//! | u8 | kind: 1 schema, 2 table, 3 sequence, 4 view, 5 role, 6 about, 7 database |
//! | ... | the fields in the order of the code below and in `records.rs` |
//!
//! Numbers are little endian (u8, u16, u32, i64). A text is its length (u32) and its bytes. A list is its
//! length (u16) and its items. An option is 0, or 1 and the value. A column type is a tag (u8), and its
//! parameters for numeric, char and varchar.
//!
//! Invariants
//! 1. `decode(encode(x)) == x`. Bytes that are no definition give `None`, never a panic.
//!
//! This module does not know where the bytes are stored.

use std::sync::{Arc, OnceLock};

use varve_pager::{Algorithm, Compression, SpaceId};

use super::databases::{DatabaseDef, POSTGRES};
use super::defs::{
    ColumnDef, IndexDef, LeafLayout, PrimaryKey, SchemaDef, SequenceDef, StorageOptions, TableDef,
};
use super::derived::{Derived, KeyPart};
use super::objects::{About, RoleDef, ViewDef};
use crate::ids::TreeAddress;
use crate::object_ids::{IndexId, ObjectId, SequenceId, TableId};
use crate::row::{self, RowSchema};
use crate::types::{ColumnType, Moment, Value};

const VERSION: u8 = 2;
const VERSION_OF_DATABASE: u8 = 3;
const SCHEMA: u8 = 1;
const TABLE: u8 = 2;
const SEQUENCE: u8 = 3;
const VIEW: u8 = 4;
const ROLE: u8 = 5;
const ABOUT: u8 = 6;
const DATABASE: u8 = 7;

/// Flags at the end of a table.
const IS_UNLOGGED: u8 = 1;
/// A list of constraints follows.
const HAS_NOT_VALID: u8 = 2;
/// Algorithm and level of a compression follow after these.
const HAS_COMPRESSION: u8 = 4;
/// A list of places in further partitions follows after these.
const HAS_SPREAD: u8 = 8;
/// The rows lie by columns. Programs that do not know the flag refuse the table.
const IS_BY_COLUMNS: u8 = 16;

/// The number of the rows' tablespace follows after the data of the other flags. Programs that do not know
/// the flag refuse the table.
const IN_TABLESPACE: u8 = 32;

/// Flags of an index.
const IS_CONSTRAINT: u8 = 1;
/// The parts of its key follow, and the condition of its rows.
const IS_DERIVED: u8 = 2;
/// The number of its tablespace follows its place.
const INDEX_IN_TABLESPACE: u8 = 4;

/// Flags of a sequence.
const CYCLES: u8 = 1;
/// Type, cache and the row of its values follow at the end. For older sequences without them, they are
/// derived from the other fields.
const HAS_STATE: u8 = 2;

/// Any definition.
#[derive(Clone, Debug)]
pub(crate) enum Definition {
    Schema(SchemaDef),
    Table(Box<TableDef>),
    Sequence(SequenceDef),
    View(ViewDef),
    Role(RoleDef),
    About(About),
    Database(DatabaseDef),
}

impl Definition {
    /// Returns the database that the object is in, or `POSTGRES` for what all databases share.
    fn database(&self) -> ObjectId {
        match self {
            Definition::Schema(def) => def.database,
            Definition::Table(def) => def.database,
            Definition::Sequence(def) => def.database,
            Definition::View(def) => def.database,
            Definition::Role(_) | Definition::About(_) | Definition::Database(_) => POSTGRES,
        }
    }
}

/// Returns the stored form.
pub(crate) fn encode(definition: &Definition) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    match definition.database() {
        POSTGRES => out.byte(VERSION),
        database => {
            out.byte(VERSION_OF_DATABASE);
            out.id(database);
        }
    }
    match definition {
        Definition::Schema(def) => {
            out.byte(SCHEMA);
            out.word(def.id.0);
            out.text(&def.name);
        }
        Definition::Table(def) => {
            out.byte(TABLE);
            out.table(def);
        }
        Definition::Sequence(def) => {
            out.byte(SEQUENCE);
            out.sequence(def);
        }
        Definition::View(def) => {
            out.byte(VIEW);
            out.view(def);
        }
        Definition::Role(def) => {
            out.byte(ROLE);
            out.role(def);
        }
        Definition::About(def) => {
            out.byte(ABOUT);
            out.about(def);
        }
        Definition::Database(def) => {
            out.byte(DATABASE);
            out.database(def);
        }
    }
    out.0
}

/// Reads the stored form.
pub(crate) fn decode(bytes: &[u8]) -> Option<Definition> {
    let mut input = Reader(bytes);
    let database = match input.byte()? {
        VERSION => POSTGRES,
        VERSION_OF_DATABASE => input.id().filter(|database| *database != POSTGRES)?,
        _ => return None,
    };
    let definition = match input.byte()? {
        SCHEMA => Definition::Schema(SchemaDef { id: input.id()?, database, name: input.text()? }),
        TABLE => Definition::Table(Box::new(TableDef { database, ..input.table()? })),
        SEQUENCE => Definition::Sequence(SequenceDef { database, ..input.sequence()? }),
        VIEW => Definition::View(ViewDef { database, ..input.view()? }),
        _ if database != POSTGRES => return None,
        ROLE => Definition::Role(input.role()?),
        ABOUT => Definition::About(input.about()?),
        DATABASE => Definition::Database(input.database()?),
        _ => return None,
    };
    input.0.is_empty().then_some(definition)
}

/// Writes the parts of definitions.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn short(&mut self, value: usize) {
        assert!(value <= usize::from(u16::MAX), "a list of {value} items in a definition");
        self.0.extend_from_slice(&(value as u16).to_le_bytes());
    }

    pub(super) fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn long(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn text(&mut self, value: &str) {
        self.word(value.len() as u32);
        self.0.extend_from_slice(value.as_bytes());
    }

    pub(super) fn ordinals(&mut self, value: &[usize]) {
        self.short(value.len());
        value.iter().for_each(|ordinal| self.short(*ordinal));
    }

    pub(super) fn flag(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    /// Writes an option: 0, or 1 and the value.
    pub(super) fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(super) fn list<'v, T: 'v>(
        &mut self,
        items: impl ExactSizeIterator<Item = &'v T>,
        mut put: impl FnMut(&mut Self, &T),
    ) {
        self.short(items.len());
        items.for_each(|item| put(self, item));
    }

    fn place(&mut self, value: TreeAddress) {
        self.word(value.root);
        self.word(value.owner);
    }

    fn table(&mut self, def: &TableDef) {
        self.word(def.id.0);
        self.text(&def.schema);
        self.text(&def.name);
        self.text(&def.engine);
        self.place(def.place);
        self.short(def.columns.len());
        def.columns.iter().for_each(|column| self.column(column));
        self.byte(u8::from(def.primary_key.is_some()));
        if let Some(key) = &def.primary_key {
            self.text(&key.name);
            self.ordinals(&key.columns);
        }
        self.short(def.indexes.len());
        def.indexes.iter().for_each(|index| self.index(index));
        self.list(def.checks.iter(), |out, check| out.check(check));
        self.list(def.foreign_keys.iter(), |out, key| out.foreign_key(key));
        self.optional(def.partitions.as_ref(), Self::partitions);
        let compression = def.storage.compression;
        let flag = |is_there, flag| if is_there { flag } else { 0 };
        self.byte(
            flag(def.is_unlogged, IS_UNLOGGED)
                | flag(!def.not_valid.is_empty(), HAS_NOT_VALID)
                | flag(compression.is_some(), HAS_COMPRESSION)
                | flag(!def.spread.is_empty(), HAS_SPREAD)
                | flag(def.storage.layout == LeafLayout::ByColumns, IS_BY_COLUMNS)
                | flag(def.storage.tablespace.is_some(), IN_TABLESPACE),
        );
        if !def.not_valid.is_empty() {
            self.list(def.not_valid.iter(), |out, id| out.id(*id));
        }
        if let Some(Compression { algorithm, level }) = compression {
            self.byte(algorithm.code());
            self.byte(level);
        }
        if !def.spread.is_empty() {
            self.list(def.spread.iter(), |out, place| out.place(*place));
        }
        if let Some(space) = def.storage.tablespace {
            self.word(u32::from(space.0));
        }
    }

    fn column(&mut self, def: &ColumnDef) {
        self.text(&def.name);
        self.column_type(def.column_type);
        self.byte(u8::from(def.not_null));
        self.byte(u8::from(def.default.is_some()));
        if let Some(default) = &def.default {
            self.text(default);
        }
        self.identity(def.identity);
    }

    /// Writes a value that is not NULL: its type, the number of its bytes if that varies, and its bytes as in
    /// a row.
    pub(super) fn value(&mut self, value: &Value) {
        let column_type = type_of(value);
        self.column_type(column_type);
        let datum = value.as_datum();
        match column_type.fixed_width_bytes() {
            Some(width) => self.0.extend_from_slice(&row::fixed_bytes(&datum)[..width]),
            None => {
                let bytes = row::variable_bytes(&datum).unwrap_or_default();
                self.word(bytes.len() as u32);
                self.0.extend_from_slice(bytes);
            }
        }
    }

    fn column_type(&mut self, value: ColumnType) {
        match value {
            ColumnType::Bool => self.byte(1),
            ColumnType::Int2 => self.byte(2),
            ColumnType::Int4 => self.byte(3),
            ColumnType::Int8 => self.byte(4),
            ColumnType::Float8 => self.byte(5),
            ColumnType::Numeric { precision: None } => self.byte(6),
            ColumnType::Numeric { precision: Some((digits, scale)) } => {
                self.byte(7);
                self.word(u32::from(digits));
                self.long(i64::from(scale));
            }
            ColumnType::Char(length) => {
                self.byte(8);
                self.word(length);
            }
            ColumnType::Varchar(None) => self.byte(9),
            ColumnType::Varchar(Some(limit)) => {
                self.byte(10);
                self.word(limit);
            }
            ColumnType::Text => self.byte(11),
            ColumnType::Bytea => self.byte(12),
            ColumnType::Date => self.byte(13),
            ColumnType::Timestamp => self.byte(14),
            ColumnType::TimestampTz => self.byte(15),
            ColumnType::Float4 => self.byte(16),
            ColumnType::Time => self.byte(17),
            ColumnType::Interval => self.byte(18),
            ColumnType::Uuid => self.byte(19),
            ColumnType::Json => self.byte(20),
            ColumnType::Oid => self.byte(21),
            ColumnType::Rounded(moment, digits) => {
                self.byte(22);
                self.column_type(moment.unrounded());
                self.byte(digits);
            }
            ColumnType::Array(element) => {
                self.byte(23);
                self.column_type(*element);
            }
        }
    }

    fn index(&mut self, def: &IndexDef) {
        self.word(def.id.0);
        self.text(&def.name);
        self.ordinals(&def.columns);
        self.byte(u8::from(def.unique));
        let derived = if def.derived.is_some() { IS_DERIVED } else { 0 };
        let tablespace = if def.tablespace().is_some() { INDEX_IN_TABLESPACE } else { 0 };
        self.byte(u8::from(def.constraint) | derived | tablespace);
        self.place(def.place);
        if let Some(space) = def.tablespace() {
            self.word(u32::from(space.0));
        }
        if let Some(derived) = &def.derived {
            self.derived(derived);
        }
    }

    fn derived(&mut self, derived: &Derived) {
        self.list(derived.keys.iter(), |out, key| match key {
            KeyPart::Column(ordinal) => {
                out.flag(false);
                out.short(*ordinal);
            }
            KeyPart::Expression { text, column_type } => {
                out.flag(true);
                out.text(text);
                out.column_type(*column_type);
            }
        });
        self.optional(derived.predicate.as_deref(), Self::text);
    }

    fn sequence(&mut self, def: &SequenceDef) {
        self.word(def.id.0);
        self.text(&def.schema);
        self.text(&def.name);
        for value in [def.start, def.increment, def.min, def.max] {
            self.long(value);
        }
        self.byte(u8::from(def.cycle) | HAS_STATE);
        self.byte(u8::from(def.owned_by.is_some()));
        if let Some((table, column)) = def.owned_by {
            self.word(table.0);
            self.short(column);
        }
        self.column_type(def.data_type);
        self.long(def.cache);
        self.word(def.state);
    }
}

/// Returns a type that can store the value.
fn type_of(value: &Value) -> ColumnType {
    match value {
        Value::Bool(_) => ColumnType::Bool,
        Value::Int2(_) => ColumnType::Int2,
        Value::Int4(_) => ColumnType::Int4,
        Value::Int8(_) => ColumnType::Int8,
        Value::Float4(_) => ColumnType::Float4,
        Value::Float8(_) => ColumnType::Float8,
        Value::Numeric(_) => ColumnType::Numeric { precision: None },
        Value::Text(_) => ColumnType::Text,
        Value::Bytea(_) => ColumnType::Bytea,
        Value::Date(_) => ColumnType::Date,
        Value::Timestamp(_) => ColumnType::Timestamp,
        Value::TimestampTz(_) => ColumnType::TimestampTz,
        Value::Time(_) => ColumnType::Time,
        Value::Interval(_) => ColumnType::Interval,
        Value::Uuid(_) => ColumnType::Uuid,
        Value::Null | Value::Array(_) => {
            unreachable!("no bound is NULL or an array: the SQL layer refuses them")
        }
    }
}

/// Returns the type of a sequence that was stored before sequences had types, derived from its bounds.
fn type_of_bounds(increment: i64, min: i64, max: i64) -> ColumnType {
    match if increment < 0 { min } else { max } {
        -32_768 | 32_767 => ColumnType::Int2,
        -2_147_483_648 | 2_147_483_647 => ColumnType::Int4,
        _ => ColumnType::Int8,
    }
}

/// Reads the parts of definitions. `None` means that the bytes end too early, or are not valid.
pub(super) struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn short(&mut self) -> Option<usize> {
        self.array().map(|raw| usize::from(u16::from_le_bytes(raw)))
    }

    pub(super) fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let bytes = self.word()? as usize;
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        String::from_utf8(head.to_vec()).ok()
    }

    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.short()?;
        (0..count).map(|_| item(self)).collect()
    }

    /// Reads an option: 0, or 1 and the value.
    pub(super) fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    fn place(&mut self) -> Option<TreeAddress> {
        Some(TreeAddress::in_data(self.word()?, self.word()?))
    }

    fn table(&mut self) -> Option<TableDef> {
        let id = TableId(self.word()?);
        let (schema, name, engine) = (self.text()?, self.text()?, self.text()?);
        let mut place = self.place()?;
        let columns = self.list(Self::column)?;
        let primary_key = match self.flag()? {
            true => Some(PrimaryKey { name: self.text()?, columns: self.list(Self::short)? }),
            false => None,
        };
        let indexes = self.list(Self::index)?;
        let types: Vec<_> = columns.iter().map(|c| c.column_type).collect();
        let checks = self.list(|input| input.check().map(Arc::new))?;
        let foreign_keys = self.list(|input| input.foreign_key().map(Arc::new))?;
        let partitions = self.optional(Self::partitions)?;
        let flags = self.byte()?;
        let not_valid = match flags & HAS_NOT_VALID {
            0 => Box::default(),
            _ => self.list(Self::id).filter(|ids| !ids.is_empty())?.into(),
        };
        let compression = match flags & HAS_COMPRESSION {
            0 => None,
            _ => Some(self.compression()?),
        };
        let spread = match flags & HAS_SPREAD {
            0 => Box::default(),
            _ => self.list(Self::place).filter(|places| !places.is_empty())?.into(),
        };
        let tablespace = match flags & IN_TABLESPACE {
            0 => None,
            _ => Some(self.tablespace()?),
        };
        place.space = tablespace.unwrap_or(place.space);
        let layout = if flags & IS_BY_COLUMNS == 0 { LeafLayout::ByRows } else { LeafLayout::ByColumns };
        const KNOWN: u8 =
            IS_UNLOGGED | HAS_NOT_VALID | HAS_COMPRESSION | HAS_SPREAD | IS_BY_COLUMNS | IN_TABLESPACE;
        if flags & !KNOWN != 0 {
            return None;
        }
        Some(TableDef {
            id,
            database: POSTGRES,
            schema,
            name,
            columns,
            primary_key,
            indexes,
            checks,
            foreign_keys,
            partitions,
            is_unlogged: flags & IS_UNLOGGED != 0,
            not_valid,
            storage: StorageOptions { compression, layout, tablespace },
            engine,
            place,
            spread,
            row_schema: Arc::new(RowSchema::new(&types)),
            handle: OnceLock::new(),
        })
    }

    fn tablespace(&mut self) -> Option<SpaceId> {
        u16::try_from(self.word()?).ok().map(SpaceId).filter(|space| space.is_tablespace())
    }

    fn compression(&mut self) -> Option<Compression> {
        let (algorithm, level) = (Algorithm::of_code(self.byte()?)?, self.byte()?);
        Some(Compression { algorithm, level }).filter(|how| how.is_valid())
    }

    fn column(&mut self) -> Option<ColumnDef> {
        let name = self.text()?;
        let column_type = self.column_type()?;
        let not_null = self.flag()?;
        let default = if self.flag()? { Some(self.text()?) } else { None };
        let identity = self.identity()?;
        Some(ColumnDef { name, column_type, not_null, default, identity })
    }

    pub(super) fn value(&mut self) -> Option<Value> {
        let column_type = self.column_type()?;
        let is_fixed = column_type.fixed_width_bytes();
        let bytes = match is_fixed {
            Some(width) => width,
            None => self.word()? as usize,
        };
        let (bytes, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        let datum = match is_fixed {
            Some(_) => row::fixed(column_type, bytes),
            None => row::variable_checked(column_type, bytes)?,
        };
        Some(datum.to_value())
    }

    fn column_type(&mut self) -> Option<ColumnType> {
        let tag = self.byte()?;
        self.column_type_of(tag)
    }

    fn column_type_of(&mut self, tag: u8) -> Option<ColumnType> {
        Some(match tag {
            1 => ColumnType::Bool,
            2 => ColumnType::Int2,
            3 => ColumnType::Int4,
            4 => ColumnType::Int8,
            5 => ColumnType::Float8,
            6 => ColumnType::Numeric { precision: None },
            7 => {
                let digits = u16::try_from(self.word()?).ok()?;
                let scale = i16::try_from(self.long()?).ok()?;
                ColumnType::Numeric { precision: Some((digits, scale)) }
            }
            8 => ColumnType::Char(self.word()?),
            9 => ColumnType::Varchar(None),
            10 => ColumnType::Varchar(Some(self.word()?)),
            11 => ColumnType::Text,
            12 => ColumnType::Bytea,
            13 => ColumnType::Date,
            14 => ColumnType::Timestamp,
            15 => ColumnType::TimestampTz,
            16 => ColumnType::Float4,
            17 => ColumnType::Time,
            18 => ColumnType::Interval,
            19 => ColumnType::Uuid,
            20 => ColumnType::Json,
            21 => ColumnType::Oid,
            22 => {
                let moment = match self.byte()? {
                    14 => Moment::Timestamp,
                    15 => Moment::TimestampTz,
                    17 => Moment::Time,
                    18 => Moment::Interval,
                    _ => return None,
                };
                ColumnType::Rounded(moment, self.byte()?)
            }
            // An array of arrays is not valid, so the nesting cannot be deep.
            23 => match self.byte()? {
                23 => return None,
                tag => self.column_type_of(tag)?.array_of_these()?,
            },
            _ => return None,
        })
    }

    fn index(&mut self) -> Option<Arc<IndexDef>> {
        let id = IndexId(self.word()?);
        let name = self.text()?;
        let columns = self.list(Self::short)?;
        let (unique, flags) = (self.flag()?, self.byte()?);
        let mut place = self.place()?;
        if flags & INDEX_IN_TABLESPACE != 0 {
            place.space = self.tablespace()?;
        }
        let derived = match flags & IS_DERIVED {
            0 => None,
            _ => Some(Arc::new(self.derived()?)),
        };
        let constraint = flags & IS_CONSTRAINT != 0;
        let is_known = flags & !(IS_CONSTRAINT | IS_DERIVED | INDEX_IN_TABLESPACE) == 0;
        is_known.then(|| Arc::new(IndexDef { id, name, columns, unique, constraint, derived, place }))
    }

    fn derived(&mut self) -> Option<Derived> {
        let keys = self.list(|input| match input.flag()? {
            false => Some(KeyPart::Column(input.short()?)),
            true => Some(KeyPart::Expression { text: input.text()?, column_type: input.column_type()? }),
        })?;
        Some(Derived { keys, predicate: self.optional(Self::text)? })
    }

    fn sequence(&mut self) -> Option<SequenceDef> {
        let id = SequenceId(self.word()?);
        let (schema, name) = (self.text()?, self.text()?);
        let (start, increment, min, max) = (self.long()?, self.long()?, self.long()?, self.long()?);
        let flags = self.byte()?;
        let owned_by = if self.flag()? { Some((TableId(self.word()?), self.short()?)) } else { None };
        let (data_type, cache, state) = match flags & HAS_STATE {
            0 => (type_of_bounds(increment, min, max), 1, id.0),
            _ => (self.column_type()?, self.long()?, self.word()?),
        };
        let cycle = flags & CYCLES != 0;
        let def = SequenceDef {
            id,
            database: POSTGRES,
            schema,
            name,
            start,
            increment,
            min,
            max,
            cycle,
            owned_by,
            data_type,
            cache,
            state,
        };
        (flags & !(CYCLES | HAS_STATE) == 0).then_some(def)
    }
}
