//! Reads the parser's tree directly from the parser's memory.
//!
//! The crate `pg_query` has a slower way to read a tree: its C library encodes the tree as a message, and the
//! crate decodes the message. Both steps take several times as long as the parse. So trees of common
//! statements are read from memory, into the same Rust types that the decoder produces.
//!
//! Invariants
//! 1. The result equals that of the decoder. In four cases the decoder itself is used: nodes that `layout`
//!    does not list, lists of anything but nodes, texts that are not UTF-8, and trees deeper than
//!    `DEPTH_MAX`.
//! 2. Only fields that `layout` lists are read, and only from nodes whose tag it lists.
//!
//! This module does not know the offsets of fields (`layout`) or who frees the memory (`library`).

use std::ffi::{CStr, c_char, c_long, c_void};
use std::marker::PhantomData;

use pg_query::NodeEnum;
use pg_query::protobuf::a_const::Val;
use pg_query::protobuf::{AConst, AStar, BitString, Boolean, Float, Integer, List, Node, RawStmt};

use super::layout;

/// Whether the layouts are right for this system.
pub(super) const FITS: bool = cfg!(all(unix, target_pointer_width = "64"));

/// The deepest nesting of nodes that is read here. It needs less stack than the smallest stack of
/// `with_room`.
const DEPTH_MAX: u32 = 64;

/// The tags of nodes that are read by special code (`nodetags.h`).
mod tag {
    pub(super) const LIST: u32 = 1;
    pub(super) const A_CONST: u32 = 72;
    pub(super) const A_STAR: u32 = 77;
    pub(super) const RAW_STMT: u32 = 136;
    pub(super) const INTEGER: u32 = 465;
    pub(super) const FLOAT: u32 = 466;
    pub(super) const BOOLEAN: u32 = 467;
    pub(super) const STRING: u32 = 468;
    pub(super) const BIT_STRING: u32 = 469;
}

/// A type of nodes that can be part of other nodes.
pub(super) trait Part: Sized {
    /// Reads the node. Returns `None` if the decoder must read the tree.
    fn read(at: Raw<'_>) -> Option<Self>;
}

/// A node in the parser's memory, which lives as long as `'t`.
#[derive(Clone, Copy)]
pub(super) struct Raw<'t> {
    start: *const u8,
    /// The number of further levels that may be nested in the node.
    left: u32,
    tree: PhantomData<&'t u8>,
}

/// Reads the statements of a tree.
///
/// # Safety `list` comes from the parser of this version. It is null or a list, and its memory is still
/// allocated.
pub(super) unsafe fn statements(list: *const c_void) -> Option<Vec<RawStmt>> {
    let list = Raw { start: list.cast(), left: DEPTH_MAX, tree: PhantomData };
    let mut statements = Vec::new();
    for cell in cells(list)? {
        let at = Raw { start: *cell, ..list };
        if at.start.is_null() || at.tag() != tag::RAW_STMT {
            return None;
        }
        let (stmt, stmt_location, stmt_len) = (at.node(8)?, at.int(16)?, at.int(20)?);
        statements.push(RawStmt { stmt, stmt_location, stmt_len });
    }
    Some(statements)
}

/// Returns the cells of a list of nodes.
fn cells(list: Raw<'_>) -> Option<&[*const u8]> {
    if list.start.is_null() {
        return Some(&[]);
    }
    if list.tag() != tag::LIST {
        return None;
    }
    let count = usize::try_from(list.int(4)?).ok()?;
    let elements: *const *const u8 = list.get(16);
    // SAFETY: the elements of a list of nodes are an array of pointers with the length of the list.
    Some(unsafe { std::slice::from_raw_parts(elements, count) })
}

impl<'t> Raw<'t> {
    /// Reads the field at this byte offset in the node.
    fn get<T: Copy>(self, place: usize) -> T {
        // SAFETY: `layout` has places and kinds of the fields of the node whose tag this one has, and the
        // node is there for `'t`.
        unsafe { self.start.add(place).cast::<T>().read() }
    }

    pub(super) fn tag(self) -> u32 {
        self.get(0)
    }

    /// Returns the node to which a field points. Returns the outer `None` if the node is nested too deeply.
    fn follow(self, place: usize) -> Option<Option<Raw<'t>>> {
        let start: *const u8 = self.get(place);
        if start.is_null() {
            return Some(None);
        }
        let left = self.left.checked_sub(1)?;
        Some(Some(Raw { start, left, tree: PhantomData }))
    }

    pub(super) fn int(self, place: usize) -> Option<i32> {
        Some(self.get(place))
    }

    pub(super) fn uint(self, place: usize) -> Option<u32> {
        Some(self.get(place))
    }

    pub(super) fn short(self, place: usize) -> Option<i32> {
        Some(i32::from(self.get::<i16>(place)))
    }

    pub(super) fn long(self, place: usize) -> Option<i64> {
        Some(self.get::<c_long>(place))
    }

    pub(super) fn flag(self, place: usize) -> Option<bool> {
        Some(self.get::<u8>(place) != 0)
    }

    /// Reads the value of an enumeration. The crate counts from 1, because 0 means that there is no value.
    pub(super) fn choice(self, place: usize) -> Option<i32> {
        self.get::<i32>(place).checked_add(1)
    }

    /// Reads a letter. Returns an empty string if there is none.
    pub(super) fn letter(self, place: usize) -> Option<String> {
        match self.get::<u8>(place) {
            0 => Some(String::new()),
            letter => letter.is_ascii().then(|| char::from(letter).to_string()),
        }
    }

    /// Reads a text. Returns an empty string if there is none.
    pub(super) fn text(self, place: usize) -> Option<String> {
        let text: *const c_char = self.get(place);
        if text.is_null() {
            return Some(String::new());
        }
        // SAFETY: the parser ends its texts in a byte 0.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_str().ok().map(str::to_owned)
    }

    /// Reads a field whose kind of node `layout` does not list. This works only if there is no node.
    pub(super) fn absent<T>(self, place: usize) -> Option<Option<T>> {
        self.get::<*const u8>(place).is_null().then_some(None)
    }

    pub(super) fn part<T: Part>(self, place: usize) -> Option<Option<T>> {
        self.follow(place)?.map_or(Some(None), |at| T::read(at).map(Some))
    }

    pub(super) fn boxed<T: Part>(self, place: usize) -> Option<Option<Box<T>>> {
        self.follow(place)?.map_or(Some(None), |at| at.made().map(Some))
    }

    /// Reads this node into a box.
    pub(super) fn made<T: Part>(self) -> Option<Box<T>> {
        T::read(self).map(Box::new)
    }

    pub(super) fn node(self, place: usize) -> Option<Option<Box<Node>>> {
        self.follow(place)?.map_or(Some(None), |at| Some(Some(Box::new(at.any()?))))
    }

    pub(super) fn list(self, place: usize) -> Option<Vec<Node>> {
        self.follow(place)?.map_or(Some(Vec::new()), Raw::items)
    }

    fn any(self) -> Option<Node> {
        let node = match self.tag() {
            tag::STRING => NodeEnum::String(pg_query::protobuf::String { sval: self.text(8)? }),
            tag::INTEGER => NodeEnum::Integer(Integer { ival: self.int(4)? }),
            tag::FLOAT => NodeEnum::Float(Float { fval: self.text(8)? }),
            tag::BOOLEAN => NodeEnum::Boolean(Boolean { boolval: self.flag(4)? }),
            tag::BIT_STRING => NodeEnum::BitString(BitString { bsval: self.text(8)? }),
            tag::LIST => NodeEnum::List(List { items: self.items()? }),
            tag::A_STAR => NodeEnum::AStar(AStar {}),
            tag::A_CONST => NodeEnum::AConst(self.constant()?),
            other => layout::node(other, self)?,
        };
        Some(Node { node: Some(node) })
    }

    /// Reads the nodes of this list.
    fn items(self) -> Option<Vec<Node>> {
        let left = self.left.checked_sub(1)?;
        let one = |cell: &*const u8| match cell.is_null() {
            true => Some(Node { node: None }),
            false => Raw { start: *cell, left, tree: PhantomData }.any(),
        };
        cells(self)?.iter().map(one).collect()
    }

    /// Reads a constant. Its value is a node inside it.
    fn constant(self) -> Option<AConst> {
        const VALUE: usize = 8;
        let isnull = self.flag(24)?;
        let val = match self.get::<u32>(VALUE) {
            _ if isnull => None,
            tag::INTEGER => Some(Val::Ival(Integer { ival: self.int(VALUE + 4)? })),
            tag::FLOAT => Some(Val::Fval(Float { fval: self.text(VALUE + 8)? })),
            tag::BOOLEAN => Some(Val::Boolval(Boolean { boolval: self.flag(VALUE + 4)? })),
            tag::STRING => Some(Val::Sval(pg_query::protobuf::String { sval: self.text(VALUE + 8)? })),
            tag::BIT_STRING => Some(Val::Bsval(BitString { bsval: self.text(VALUE + 8)? })),
            _ => return None,
        };
        Some(AConst { isnull, location: self.int(28)?, val })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::ffi::CString;
    use std::path::Path;

    use super::super::library::{Mode, parsed_by_message, parsed_in_place};
    use super::super::{raw, with_room};
    use super::*;

    /// Reads a text in place, and asserts that the decoder has the same result.
    fn read(sql: &str, mode: Mode) -> Option<Vec<RawStmt>> {
        let text = CString::new(sql).ok()?;
        with_room(sql, || match parsed_in_place(&text, mode)? {
            Ok(statements) => {
                let decoded = parsed_by_message(&text, mode).ok().unwrap().unwrap();
                assert_eq!(statements, decoded, "{sql}");
                Some(statements)
            }
            Err(complaint) => {
                let other = parsed_by_message(&text, mode).err().unwrap();
                assert_eq!((complaint.message, complaint.position), (other.message, other.position), "{sql}");
                None
            }
        })
    }

    /// Statements: at least one for each listed node.
    const STATEMENTS: &[&str] = &[
        "select distinct on (a) t.*, 1 as \"B\", -2, 3.5, 1e10, 'x', b'01', x'1f', null, true, $1 from only s.t as t (x, y), u, \
         lateral (select 1) q where a = any ($2) and not b or c is not null and d is true group by a, rollup (b, (c, d)), () \
         having count(*) filter (where a > 0) over w > 1 window w as (partition by a order by b desc nulls last \
         rows between 1 preceding and unbounded following) order by 1 using < limit 10 offset 5 for no key update of t nowait",
        "with recursive a (x) as materialized (select 1 union all select x + 1 from a) select * from a except (table b limit 1)",
        "select a::numeric(10, 2)[], cast(b as timestamp(3) with time zone), c collate \"C\", d[1], e[1:2], (f).g, array[1, 2], row(1), \
         (1, 2), coalesce(a, b), greatest(a, b), nullif(a, b), case a when 1 then 2 else 3 end, current_timestamp(2), current_user, \
         grouping(a), exists (select 1), a in (1, 2), a not in (select 1), a like b escape c, a between symmetric b and c, \
         extract(year from a), position('a' in b), trim(both from a), a at time zone 'utc', overlay(a placing b from 1), \
         string_agg(distinct a, ',' order by b), percentile_cont(0.5) within group (order by a), f(variadic a), a operator(pg_catalog.+) b",
        "select * from a natural left join b inner join c using (x) as j cross join (d full join e on d.x = e.x) as k",
        "select * from generate_series(1, 2) with ordinality as g (n, o), rows from (f(1), g(2)) as h (a int, b text)",
        "select a into temporary b from c",
        "values (1, default), (2, 'x')",
        "insert into t as x (a, b.c, d[1]) overriding system value values (1, default) on conflict (a, lower(b)) where c \
         do update set a = excluded.a, (b, c) = (select 1, 2) where t.a > 0 returning with (old as o) *, o.a",
        "insert into t default values on conflict on constraint k do nothing",
        "update only t set a = 1, (b, c) = row (2, default) from u where current of cur returning t.a",
        "delete from t using u where t.a = u.a returning *",
        "create table if not exists s.t (id bigint generated by default as identity (start 5) primary key, name varchar(100) \
         collate \"C\" not null default 'x', price numeric(10, 2) constraint p check (price > 0) no inherit, at timestamptz default now(), \
         unique (name, at) include (id) with (fillfactor = 70) using index tablespace x, foreign key (id) references u (a) match full \
         on delete set null (id) on update cascade deferrable initially deferred, exclude using gist (a with =) where (a > 0), \
         g int generated always as (1 + 1) stored) inherits (a, b) with (x = 1) on commit drop tablespace y",
        "create temp table t as select 1 with no data",
        "create unique index concurrently if not exists i on t using btree (a desc nulls last, (b + 1) c_ops (x = 1)) include (d) \
         with (fillfactor = 70) tablespace x where a > 0",
        "drop table if exists a, b.c cascade",
        "alter table if exists only t add column a int, alter b type text using b::text, drop constraint c restrict, owner to current_user",
        "alter table t alter a set statistics 5, alter column 3 set statistics 7",
        "create or replace view v (a, b) with (security_barrier) as select 1, 2 with local check option",
        "truncate a, b restart identity cascade",
        "begin isolation level serializable, read only, deferrable",
        "rollback to savepoint x",
        "commit and chain",
        "set local a.b to 'x', 1, 2.5",
        "set time zone interval '1' hour to minute",
        "show all",
        "explain (analyze, format json) select 1",
        "prepare p (int, text) as select $1",
        "execute p (1, 'x')",
        "deallocate all",
        "declare c binary insensitive no scroll cursor with hold for select 1",
        "fetch backward 5 from c",
        "move all in c",
        "close c",
        "lock table a, b in share row exclusive mode nowait",
        "select 1; select 2;",
        " -- nothing",
    ];

    #[test]
    fn trees_are_those_that_the_decoder_gives() {
        for sql in STATEMENTS {
            assert!(read(sql, Mode::Statement).is_some() == FITS || sql.contains("owner to"), "{sql}");
        }
        for sql in ["a + 1", "nextval('s'::regclass)", "(1)"] {
            assert_eq!(read(sql, Mode::Expression).is_some(), FITS, "{sql}");
        }
    }

    #[test]
    fn what_is_not_listed_is_decoded() {
        let deep = format!("select {}1", "1 + ".repeat(200));
        for sql in ["grant select on a to b", "create table a (b int) partition by list (b)", &deep] {
            assert!(read(sql, Mode::Statement).is_none(), "{sql}");
            assert!(raw(sql).unwrap().is_some(), "{sql}");
        }
        assert!(read("select '\\x' + e'\\xff'", Mode::Statement).is_none());
    }

    /// The reading in place and the decoder give the same tree for all statements of the stored records.
    #[test]
    fn statements_of_the_records_are_those_that_the_decoder_gives() {
        let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/slt-files");
        let mut compared = 0;
        for file in std::fs::read_dir(records).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|end| end != "slt") {
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            for record in text.split("\n\n").filter_map(|record| record.split_once('\n')) {
                let sql = record.1.split("\n----").next().unwrap_or_default();
                compared += usize::from(read(sql, Mode::Statement).is_some());
            }
        }
        assert!(compared > 1000 || !FITS, "{compared}");
    }
}
