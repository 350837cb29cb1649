//! Memory layout of the nodes of PostgreSQL's parser: for each node its tag, and the byte offset of each
//! field.
//!
//! The numbers belong to the `pg_query` version in Cargo.toml (`nodetags.h`, `parsenodes.h`, `primnodes.h`),
//! on systems with 64-bit pointers and `long`. If a tree has a node or field that is not listed here, the
//! whole tree is read from its encoded form.
//!
//! Invariants
//! 1. Each number is the one that the C compiler uses for that version. A test reads many statements in both
//!    ways.
//!
//! This module does not know how a field is read.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AArrayExpr, AExpr, AIndices, AIndirection, Alias, AlterTableCmd, AlterTableStmt, BoolExpr, BooleanTest,
    CaseExpr, CaseWhen, ClosePortalStmt, CoalesceExpr, CollateClause, ColumnDef, ColumnRef, CommonTableExpr,
    Constraint, CreateStmt, CreateTableAsStmt, CurrentOfExpr, DeallocateStmt, DeclareCursorStmt, DefElem,
    DeleteStmt, DropStmt, ExecuteStmt, ExplainStmt, FetchStmt, FuncCall, GroupingFunc, GroupingSet,
    IndexElem, IndexStmt, InferClause, InsertStmt, IntoClause, JoinExpr, LockStmt, LockingClause, MinMaxExpr,
    MultiAssignRef, NullTest, OnConflictClause, ParamRef, PrepareStmt, RangeFunction, RangeSubselect,
    RangeVar, ResTarget, ReturningClause, ReturningOption, RowExpr, SelectStmt, SetToDefault, SortBy,
    SqlValueFunction as SqlvalueFunction, SubLink, TransactionStmt, TruncateStmt, TypeCast, TypeName,
    UpdateStmt, VariableSetStmt, VariableShowStmt, ViewStmt, WindowDef, WithClause,
};

use super::tree::{Part, Raw};

/// The way in which the crate's tree stores a node: directly or in a box.
macro_rules! held {
    (boxed $variant:ident $at:ident) => {
        NodeEnum::$variant($at.made()?)
    };
    (plain $variant:ident $at:ident) => {
        NodeEnum::$variant(Part::read($at)?)
    };
}

macro_rules! nodes {
    ($($tag:literal $how:ident $name:ident {
        $($field:ident: $kind:ident $place:literal $($part:ident)?,)*
    })*) => {
        $(impl Part for $name {
            #[allow(clippy::needless_update, reason = "only some have fields that the parser leaves empty")]
            fn read(at: Raw<'_>) -> Option<Self> {
                if at.tag() != $tag {
                    return None;
                }
                Some($name {
                    $($field: at.$kind$(::<$part>)?($place)?,)*
                    ..$name::default()
                })
            }
        })*

        /// Reads the node at an address. Returns `None` if the node, or a node in it, is not listed here.
        pub(super) fn node(tag: u32, at: Raw<'_>) -> Option<NodeEnum> {
            Some(match tag {
                $($tag => held!($how $name at),)*
                _ => return None,
            })
        }
    };
}

nodes! {
    141 boxed SelectStmt {
        distinct_clause: list 8, into_clause: boxed 16 IntoClause, target_list: list 24,
        from_clause: list 32, where_clause: node 40, group_clause: list 48, group_distinct: flag 56,
        having_clause: node 64, window_clause: list 72, values_lists: list 80, sort_clause: list 88,
        limit_offset: node 96, limit_count: node 104, limit_option: choice 112, locking_clause: list 120,
        with_clause: part 128 WithClause, op: choice 136, all: flag 140, larg: boxed 144 SelectStmt,
        rarg: boxed 152 SelectStmt,
    }
    137 boxed InsertStmt {
        relation: part 8 RangeVar, cols: list 16, select_stmt: node 24,
        on_conflict_clause: boxed 32 OnConflictClause, returning_clause: part 40 ReturningClause,
        with_clause: part 48 WithClause, r#override: choice 56,
    }
    139 boxed UpdateStmt {
        relation: part 8 RangeVar, target_list: list 16, where_clause: node 24, from_clause: list 32,
        returning_clause: part 40 ReturningClause, with_clause: part 48 WithClause,
    }
    138 boxed DeleteStmt {
        relation: part 8 RangeVar, using_clause: list 16, where_clause: node 24,
        returning_clause: part 32 ReturningClause, with_clause: part 40 WithClause,
    }
    5 boxed IntoClause {
        rel: part 8 RangeVar, col_names: list 16, access_method: text 24, options: list 32,
        on_commit: choice 40, table_space_name: text 48, view_query: absent 56, skip_data: flag 64,
    }
    110 plain WithClause {
        ctes: list 8, recursive: flag 16, location: int 20,
    }
    115 boxed CommonTableExpr {
        ctename: text 8, aliascolnames: list 16, ctematerialized: choice 24, ctequery: node 32,
        search_clause: absent 40, cycle_clause: absent 48, location: int 56, cterecursive: flag 60,
        cterefcount: int 64, ctecolnames: list 72, ctecoltypes: list 80, ctecoltypmods: list 88,
        ctecolcollations: list 96,
    }
    81 boxed ResTarget {
        name: text 8, indirection: list 16, val: node 24, location: int 32,
    }
    69 plain ColumnRef {
        fields: list 8, location: int 16,
    }
    70 plain ParamRef {
        number: int 4, location: int 8,
    }
    71 boxed AExpr {
        kind: choice 4, name: list 8, lexpr: node 16, rexpr: node 24, rexpr_list_start: int 32,
        rexpr_list_end: int 36, location: int 40,
    }
    21 boxed BoolExpr {
        boolop: choice 4, args: list 8, location: int 16,
    }
    52 boxed NullTest {
        arg: node 8, nulltesttype: choice 16, argisrow: flag 20, location: int 24,
    }
    53 boxed BooleanTest {
        arg: node 8, booltesttype: choice 16, location: int 20,
    }
    73 boxed TypeCast {
        arg: node 8, type_name: part 16 TypeName, location: int 24,
    }
    68 plain TypeName {
        names: list 8, type_oid: uint 16, setof: flag 20, pct_type: flag 21, typmods: list 24,
        typemod: int 32, array_bounds: list 40, location: int 48,
    }
    74 boxed CollateClause {
        arg: node 8, collname: list 16, location: int 24,
    }
    76 boxed FuncCall {
        funcname: list 8, args: list 16, agg_order: list 24, agg_filter: node 32, over: boxed 40 WindowDef,
        agg_within_group: flag 48, agg_star: flag 49, agg_distinct: flag 50, func_variadic: flag 51,
        funcformat: choice 52, location: int 56,
    }
    78 boxed AIndices {
        is_slice: flag 4, lidx: node 8, uidx: node 16,
    }
    79 boxed AIndirection {
        arg: node 8, indirection: list 16,
    }
    80 plain AArrayExpr {
        elements: list 8, list_start: int 16, list_end: int 20, location: int 24,
    }
    82 boxed MultiAssignRef {
        source: node 8, colno: int 16, ncolumns: int 20,
    }
    22 boxed SubLink {
        sub_link_type: choice 4, sub_link_id: int 8, testexpr: node 16, oper_name: list 24,
        subselect: node 32, location: int 40,
    }
    32 boxed CaseExpr {
        casetype: uint 4, casecollid: uint 8, arg: node 16, args: list 24, defresult: node 32,
        location: int 40,
    }
    33 boxed CaseWhen {
        expr: node 8, result: node 16, location: int 24,
    }
    36 boxed RowExpr {
        args: list 8, row_typeid: uint 16, row_format: choice 20, colnames: list 24, location: int 32,
    }
    38 boxed CoalesceExpr {
        coalescetype: uint 4, coalescecollid: uint 8, args: list 16, location: int 24,
    }
    39 boxed MinMaxExpr {
        minmaxtype: uint 4, minmaxcollid: uint 8, inputcollid: uint 12, op: choice 16, args: list 24,
        location: int 32,
    }
    40 boxed SqlvalueFunction {
        op: choice 4, r#type: uint 8, typmod: int 12, location: int 16,
    }
    57 boxed SetToDefault {
        type_id: uint 4, type_mod: int 8, collation: uint 12, location: int 16,
    }
    10 boxed GroupingFunc {
        args: list 8, refs: list 16, agglevelsup: uint 32, location: int 36,
    }
    83 boxed SortBy {
        node: node 8, sortby_dir: choice 16, sortby_nulls: choice 20, use_op: list 24, location: int 32,
    }
    84 boxed WindowDef {
        name: text 8, refname: text 16, partition_clause: list 24, order_clause: list 32,
        frame_options: int 40, start_offset: node 48, end_offset: node 56, location: int 64,
    }
    85 boxed RangeSubselect {
        lateral: flag 4, subquery: node 8, alias: part 16 Alias,
    }
    86 plain RangeFunction {
        lateral: flag 4, ordinality: flag 5, is_rowsfrom: flag 6, functions: list 8, alias: part 16 Alias,
        coldeflist: list 24,
    }
    3 plain RangeVar {
        catalogname: text 8, schemaname: text 16, relname: text 24, inh: flag 32, relpersistence: letter 33,
        alias: part 40 Alias, location: int 48,
    }
    2 plain Alias {
        aliasname: text 8, colnames: list 16,
    }
    64 boxed JoinExpr {
        jointype: choice 4, is_natural: flag 8, larg: node 16, rarg: node 24, using_clause: list 32,
        join_using_alias: part 40 Alias, quals: node 48, alias: part 56 Alias, rtindex: int 64,
    }
    94 plain LockingClause {
        locked_rels: list 8, strength: choice 16, wait_policy: choice 20,
    }
    112 boxed OnConflictClause {
        action: choice 4, infer: boxed 8 InferClause, target_list: list 16, where_clause: node 24,
        location: int 32,
    }
    111 boxed InferClause {
        index_elems: list 8, where_clause: node 16, conname: text 24, location: int 32,
    }
    92 boxed IndexElem {
        name: text 8, expr: node 16, indexcolname: text 24, collation: list 32, opclass: list 40,
        opclassopts: list 48, ordering: choice 56, nulls_ordering: choice 60,
    }
    118 plain ReturningClause {
        options: list 8, exprs: list 16,
    }
    117 plain ReturningOption {
        option: choice 4, value: text 8, location: int 16,
    }
    107 plain GroupingSet {
        kind: choice 4, content: list 8, location: int 16,
    }
    58 boxed CurrentOfExpr {
        cvarno: uint 4, cursor_name: text 8, cursor_param: int 16,
    }
    160 plain CreateStmt {
        relation: part 8 RangeVar, table_elts: list 16, inh_relations: list 24, partbound: absent 32,
        partspec: absent 40, of_typename: part 48 TypeName, constraints: list 56, nnconstraints: list 64,
        options: list 72, oncommit: choice 80, tablespacename: text 88, access_method: text 96,
        if_not_exists: flag 104,
    }
    90 boxed ColumnDef {
        colname: text 8, type_name: part 16 TypeName, compression: text 24, inhcount: short 32,
        is_local: flag 34, is_not_null: flag 35, is_from_type: flag 36, storage: letter 37,
        storage_name: text 40, raw_default: node 48, cooked_default: node 56, identity: letter 64,
        identity_sequence: part 72 RangeVar, generated: letter 80, coll_clause: boxed 88 CollateClause,
        coll_oid: uint 96, constraints: list 104, fdwoptions: list 112, location: int 120,
    }
    161 boxed Constraint {
        contype: choice 4, conname: text 8, deferrable: flag 16, initdeferred: flag 17, is_enforced: flag 18,
        skip_validation: flag 19, initially_valid: flag 20, is_no_inherit: flag 21, raw_expr: node 24,
        cooked_expr: text 32, generated_when: letter 40, generated_kind: letter 41,
        nulls_not_distinct: flag 42, keys: list 48, without_overlaps: flag 56, including: list 64,
        exclusions: list 72, options: list 80, indexname: text 88, indexspace: text 96,
        reset_default_tblspc: flag 104, access_method: text 112, where_clause: node 120,
        pktable: part 128 RangeVar, fk_attrs: list 136, pk_attrs: list 144, fk_with_period: flag 152,
        pk_with_period: flag 153, fk_matchtype: letter 154, fk_upd_action: letter 155,
        fk_del_action: letter 156, fk_del_set_cols: list 160, old_conpfeqop: list 168,
        old_pktable_oid: uint 176, location: int 180,
    }
    93 boxed DefElem {
        defnamespace: text 8, defname: text 16, arg: node 24, defaction: choice 32, location: int 36,
        arg_location: int 40,
    }
    242 boxed CreateTableAsStmt {
        query: node 8, into: boxed 16 IntoClause, objtype: choice 24, is_select_into: flag 28,
        if_not_exists: flag 29,
    }
    225 plain TransactionStmt {
        kind: choice 4, options: list 8, savepoint_name: text 16, gid: text 24, chain: flag 32,
        location: int 36,
    }
    204 boxed IndexStmt {
        idxname: text 8, relation: part 16 RangeVar, access_method: text 24, table_space: text 32,
        index_params: list 40, index_including_params: list 48, options: list 56, where_clause: node 64,
        exclude_op_names: list 72, idxcomment: text 80, index_oid: uint 88, old_number: uint 92,
        old_create_subid: uint 96, old_first_relfilelocator_subid: uint 100, unique: flag 104,
        nulls_not_distinct: flag 105, primary: flag 106, isconstraint: flag 107, iswithoutoverlaps: flag 108,
        deferrable: flag 109, initdeferred: flag 110, transformed: flag 111, concurrent: flag 112,
        if_not_exists: flag 113, reset_default_tblspc: flag 114,
    }
    197 plain DropStmt {
        objects: list 8, remove_type: choice 16, behavior: choice 20, missing_ok: flag 24,
        concurrent: flag 25,
    }
    158 plain VariableSetStmt {
        kind: choice 4, name: text 8, args: list 16, jumble_args: flag 24, is_local: flag 25,
        location: int 28,
    }
    159 plain VariableShowStmt {
        name: text 8,
    }
    146 plain AlterTableStmt {
        relation: part 8 RangeVar, cmds: list 16, objtype: choice 24, missing_ok: flag 28,
    }
    147 boxed AlterTableCmd {
        subtype: choice 4, name: text 8, num: short 16, newowner: absent 24, def: node 32,
        behavior: choice 40, missing_ok: flag 44, recurse: flag 45,
    }
    230 boxed ViewStmt {
        view: part 8 RangeVar, aliases: list 16, query: node 24, replace: flag 32, options: list 40,
        with_check_option: choice 48,
    }
    198 plain TruncateStmt {
        relations: list 8, restart_seqs: flag 16, behavior: choice 20,
    }
    241 boxed ExplainStmt {
        query: node 8, options: list 16,
    }
    252 boxed PrepareStmt {
        name: text 8, argtypes: list 16, query: node 24,
    }
    253 plain ExecuteStmt {
        name: text 8, params: list 16,
    }
    254 plain DeallocateStmt {
        name: text 8, isall: flag 16, location: int 20,
    }
    201 boxed DeclareCursorStmt {
        portalname: text 8, options: int 16, query: node 24,
    }
    203 plain FetchStmt {
        direction: choice 4, how_many: long 8, portalname: text 16, ismove: flag 24,
    }
    202 plain ClosePortalStmt {
        portalname: text 8,
    }
    246 plain LockStmt {
        relations: list 8, mode: int 16, nowait: flag 20,
    }
}
