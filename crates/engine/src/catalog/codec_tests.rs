//! Tests: definitions are decoded from their bytes, and bytes that are no definition are refused.

use std::sync::{Arc, OnceLock};

use varve_pager::{Algorithm, Compression, SpaceId};

use super::codec::{Definition, decode, encode};
use super::databases::{DatabaseDef, POSTGRES};
use super::defs::{
    ColumnDef, IndexDef, LeafLayout, PrimaryKey, SchemaDef, SequenceDef, StorageOptions, TableDef,
};
use super::derived::{Derived, KeyPart};
use super::objects::{
    About, Action, Bound, Check, Comment, Edge, ForeignKey, Grant, Identity, Membership, Part,
    PartitionMethod, Partitions, Rights, RoleDef, Use, ViewColumn, ViewDef,
};
use crate::ids::TreeAddress;
use crate::object_ids::{IndexId, ObjectId, SequenceId, TableId};
use crate::row::RowSchema;
use crate::types::{ColumnType, Moment, Value};

fn table() -> TableDef {
    let columns = vec![
        ColumnDef {
            not_null: true,
            identity: Some(Identity::Always),
            ..ColumnDef::new("id", ColumnType::Int4)
        },
        ColumnDef::new("price", ColumnType::Numeric { precision: Some((12, 2)) }),
        ColumnDef::new("kind", ColumnType::Oid),
        ColumnDef::new("at", ColumnType::Rounded(Moment::TimestampTz, 3)),
        ColumnDef::new("tags", ColumnType::Array(&ColumnType::Text)),
        ColumnDef::new("codes", ColumnType::Array(&ColumnType::Varchar(Some(3)))),
        ColumnDef { default: Some("'x'".into()), ..ColumnDef::new("name", ColumnType::Varchar(Some(30))) },
    ];
    let types: Vec<_> = columns.iter().map(|c| c.column_type).collect();
    let index = IndexDef {
        id: IndexId(9),
        name: "i".into(),
        columns: vec![2, 1],
        unique: true,
        constraint: false,
        derived: None,
        place: TreeAddress::in_data(5, 6),
    };
    let part = KeyPart::Expression { text: "lower(name)".into(), column_type: ColumnType::Text };
    let derived = Derived { keys: vec![part, KeyPart::Column(1)], predicate: Some("name <> ''".into()) };
    let over_expressions =
        IndexDef { id: IndexId(10), derived: Some(Arc::new(derived)), constraint: true, ..index.clone() };
    let place = TreeAddress { space: SpaceId(16), ..index.place };
    let over_expressions = IndexDef { place, ..over_expressions };
    TableDef {
        id: TableId(7),
        database: POSTGRES,
        schema: "public".into(),
        name: "t".into(),
        columns,
        primary_key: Some(PrimaryKey { name: "t_pkey".into(), columns: vec![0] }),
        indexes: vec![Arc::new(index), Arc::new(over_expressions)],
        checks: vec![Arc::new(check())],
        foreign_keys: vec![Arc::new(foreign_key())],
        partitions: Some(partitions()),
        is_unlogged: true,
        not_valid: [ObjectId(21)].into(),
        storage: StorageOptions {
            compression: Some(Compression { algorithm: Algorithm::Zstd, level: 19 }),
            layout: LeafLayout::ByColumns,
            tablespace: Some(SpaceId(17)),
        },
        engine: "paged".into(),
        place: TreeAddress { space: SpaceId(17), root: 3, owner: 4 },
        spread: [TreeAddress::in_data(1 << 16, 4)].into(),
        row_schema: Arc::new(RowSchema::new(&types)),
        handle: OnceLock::new(),
    }
}

fn check() -> Check {
    Check { id: ObjectId(21), name: "t_price_check".into(), text: "price > 0".into(), columns: vec![1] }
}

fn foreign_key() -> ForeignKey {
    ForeignKey {
        id: ObjectId(22),
        name: "t_id_fkey".into(),
        columns: vec![0, 2],
        parent: TableId(3),
        parent_columns: vec![1, 0],
        on_delete: Action::SetDefault,
        on_update: Action::Cascade,
        deferrable: true,
        initially_deferred: false,
        match_full: true,
    }
}

fn partitions() -> Partitions {
    let part = |bound| Part { id: ObjectId(23), schema: "public".into(), name: "t_1".into(), bound };
    let number = Value::Numeric("-12.50".parse().unwrap());
    let text = Value::Text("x".into());
    let range = Bound::Range {
        from: vec![Edge::Least, Edge::At(Value::Int4(-1)), Edge::At(text)],
        to: vec![Edge::At(Value::Int4(5)), Edge::At(number), Edge::Greatest],
    };
    let bounds = [Bound::Hash { modulus: 3, remainder: 2 }, range, Bound::Default];
    Partitions { method: PartitionMethod::Range, columns: vec![0], parts: bounds.map(part).into() }
}

fn view() -> ViewDef {
    ViewDef {
        id: ObjectId(24),
        database: POSTGRES,
        schema: "public".into(),
        name: "v".into(),
        columns: vec![ViewColumn { name: "a".into(), type_id: 23, modifier: -1 }],
        text: "SELECT t.id AS a FROM t".into(),
        uses: vec![Use { object: ObjectId(7), columns: vec![0] }],
        security_invoker: None,
    }
}

fn role() -> RoleDef {
    RoleDef {
        id: ObjectId(25),
        may_log_in: true,
        password: Some("SCRAM-SHA-256$4096:a$b:c".to_owned().into()),
        valid_until_us: Some(-1),
        member_of: vec![Membership { role: ObjectId(10), is_admin: true }],
        ..RoleDef::new("r")
    }
}

fn about() -> About {
    let grant = Grant {
        grantee: None,
        grantor: ObjectId(10),
        rights: Rights::SELECT.with(Rights::INSERT),
        grantable: Rights::SELECT,
    };
    About {
        owner: ObjectId(25),
        grants: Some(vec![grant, Grant { grantee: Some(ObjectId(25)), ..grant }]),
        comments: vec![
            Comment { column: None, text: "a table".into() },
            Comment { column: Some(1), text: "a column".into() },
        ],
        ..About::new(ObjectId(26), ObjectId(7))
    }
}

fn sequence() -> SequenceDef {
    SequenceDef {
        id: SequenceId(27),
        database: POSTGRES,
        schema: "public".into(),
        name: "s".into(),
        start: 5,
        increment: -1,
        min: -10,
        max: 10,
        cycle: true,
        owned_by: Some((TableId(7), 0)),
        data_type: ColumnType::Int2,
        cache: 20,
        state: 77,
    }
}

fn schema() -> SchemaDef {
    SchemaDef { id: ObjectId(20), database: POSTGRES, name: "s".into() }
}

fn database() -> DatabaseDef {
    DatabaseDef {
        id: ObjectId(16_400),
        connection_limit: 9,
        settings: vec![("search_path".into(), "a, b".into())],
        ..DatabaseDef::new("app")
    }
}

fn all() -> Vec<Definition> {
    vec![
        Definition::Schema(schema()),
        Definition::Table(Box::new(table())),
        Definition::Sequence(sequence()),
        Definition::View(view()),
        Definition::Role(role()),
        Definition::About(about()),
        Definition::Database(database()),
        // The same definitions in another database.
        Definition::Schema(SchemaDef { database: ObjectId(0x102), ..schema() }),
        Definition::Table(Box::new(TableDef { database: ObjectId(0x102), ..table() })),
        Definition::Sequence(SequenceDef { database: ObjectId(0x102), ..sequence() }),
        Definition::View(ViewDef { database: ObjectId(0x102), ..view() }),
    ]
}

#[test]
fn every_kind_of_definition_comes_back() {
    for definition in all() {
        let bytes = encode(&definition);
        let back = decode(&bytes).unwrap_or_else(|| panic!("{definition:?} is refused"));
        assert_eq!(format!("{back:?}"), format!("{definition:?}"));
    }
}

#[test]
fn the_option_of_a_view_comes_back() {
    for security_invoker in [None, Some(false), Some(true)] {
        let view = ViewDef { security_invoker, ..view() };
        let Some(Definition::View(back)) = decode(&encode(&Definition::View(view.clone()))) else {
            panic!("{view:?} is refused")
        };
        assert_eq!(back, view);
    }
}

#[test]
fn a_definition_that_is_cut_or_longer_is_refused() {
    for definition in all() {
        let mut bytes = encode(&definition);
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_none(), "cut at {cut}");
        }
        bytes.push(0);
        assert!(decode(&bytes).is_none(), "a byte too many");
    }
}

/// A fuzz target asserts this, too: damaged bytes are refused, or they are the only encoding of another
/// definition.
#[test]
fn a_damaged_definition_is_refused_or_another_one() {
    for definition in all() {
        let bytes = encode(&definition);
        for at in 0..bytes.len() {
            for damage in [1, 0x80, 0xFF] {
                let mut damaged = bytes.clone();
                damaged[at] ^= damage;
                if let Some(read) = decode(&damaged) {
                    assert_eq!(encode(&read), damaged, "byte {at} changed by {damage:#x}");
                }
            }
        }
    }
}

/// Definitions that a program wrote before there were several databases. They belong to the database
/// `postgres`, and are encoded as before.
#[test]
fn definitions_from_before_there_were_databases_are_of_postgres() {
    const SCHEMA: &[u8] = b"\x02\x01\x14\0\0\0\x01\0\0\0s";
    let Some(Definition::Schema(read)) = decode(SCHEMA) else { panic!("a schema is refused") };
    assert_eq!(read, schema());
    let before = [
        Definition::Schema(schema()),
        Definition::Table(Box::new(table())),
        Definition::Sequence(sequence()),
        Definition::View(view()),
        Definition::Role(role()),
        Definition::About(about()),
    ];
    for definition in before {
        assert_eq!(encode(&definition)[0], 2, "{definition:?}");
    }
}
