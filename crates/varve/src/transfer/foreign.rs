//! Objects of PostgreSQL that no statement of the import makes: functions, triggers, policies and others.

use super::TransferError;
use super::link::Link;
use super::read::Scope;
use super::trial::Report;

/// A kind of object, and the query that returns the names of all such objects. `{}` stands for the condition
/// on the schema `n`.
const KINDS: [(&str, &str, &str); 15] = [
    (
        "Varve has no functions",
        "function",
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(p.proname) || '(' || pg_get_function_identity_arguments(p.oid) || ')' \
         FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE {} \
         AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e')",
    ),
    (
        "Varve has no triggers",
        "trigger",
        "SELECT quote_ident(t.tgname) || ' on ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname) \
         FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE NOT t.tgisinternal AND {}",
    ),
    (
        "Varve has no rules",
        "rule",
        "SELECT quote_ident(r.rulename) || ' on ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname) \
         FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE r.rulename <> '_RETURN' AND {}",
    ),
    (
        "Varve has no row security: all roles with rights on the table see all rows",
        "policy",
        "SELECT quote_ident(y.polname) || ' on ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname) \
         FROM pg_policy y JOIN pg_class c ON c.oid = y.polrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {}",
    ),
    (
        "Varve has no materialized views; a view or a table can take its place",
        "materialized view",
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'm' AND {}",
    ),
    (
        "Varve has no foreign tables; its rows are elsewhere and were not copied",
        "foreign table",
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'f' AND {}",
    ),
    (
        "Varve has no enums, domains and composite types; columns of the type become others, named above",
        "type",
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(t.typname) FROM pg_type t \
         JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid \
         WHERE (t.typtype IN ('e', 'd', 'r') OR t.typtype = 'c' AND c.relkind = 'c') AND {} \
         AND NOT EXISTS (SELECT 1 FROM pg_depend e WHERE e.classid = 'pg_type'::regclass AND e.objid = t.oid AND e.deptype = 'e')",
    ),
    (
        "Varve has no extended statistics",
        "statistics",
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(s.stxname) FROM pg_statistic_ext s \
         JOIN pg_namespace n ON n.oid = s.stxnamespace WHERE {}",
    ),
    (
        "Varve has no operators of users",
        "operator",
        "SELECT quote_ident(n.nspname) || '.' || o.oprname FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace \
         WHERE {} AND NOT EXISTS (SELECT 1 FROM pg_depend e \
         WHERE e.classid = 'pg_operator'::regclass AND e.objid = o.oid AND e.deptype = 'e')",
    ),
    (
        "Varve has no collations except C",
        "collation",
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l \
         JOIN pg_namespace n ON n.oid = l.collnamespace WHERE {}",
    ),
    (
        "Varve has no full-text search",
        "text search configuration",
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(f.cfgname) FROM pg_ts_config f \
         JOIN pg_namespace n ON n.oid = f.cfgnamespace WHERE {}",
    ),
    (
        "Varve has no extensions; types, functions and indexes that it gives are named with the objects that use them",
        "extension",
        "SELECT quote_ident(x.extname) FROM pg_extension x JOIN pg_namespace n ON n.oid = x.extnamespace \
         WHERE x.extname <> 'plpgsql' AND n.nspname IS NOT NULL",
    ),
    (
        "Varve has no logical replication",
        "publication",
        "SELECT quote_ident(p.pubname) FROM pg_publication p",
    ),
    ("Varve has no event triggers", "event trigger", "SELECT quote_ident(v.evtname) FROM pg_event_trigger v"),
    ("Varve has no large objects", "large object", "SELECT m.oid::text FROM pg_largeobject_metadata m"),
];

/// The most names of one kind that are reported alone.
const NAMES_MAX: usize = 200;

/// Adds the objects that have no place in Varve to the report.
pub fn report(link: &mut dyn Link, scope: &Scope, report: &mut Report) -> Result<(), TransferError> {
    for (why, kind, query) in KINDS {
        // With some schemas named, objects of the whole database are not asked for.
        if !scope.schemas.is_empty() && !query.contains("{}") {
            continue;
        }
        let sql = format!("{} ORDER BY 1", query.replace("{}", &scope.condition()));
        let rows =
            link.rows(&sql).map_err(|error| error.of(format!("reading each {kind} from the catalog")))?;
        let names = rows.iter().filter_map(|row| row.first().cloned().flatten());
        for name in names.take(NAMES_MAX) {
            report.leave_out(format!("{kind} {name}"), why);
        }
        if rows.len() > NAMES_MAX {
            report.leave_out(format!("{} more of the kind {kind}", rows.len() - NAMES_MAX), why);
        }
    }
    let roles = "SELECT count(*) FROM pg_roles WHERE rolname !~ '^pg_' AND oid <> 10";
    let rows = link.rows(roles).map_err(|error| error.of("reading roles from the catalog"))?;
    let number = rows.first().and_then(|row| row.first().cloned().flatten()).unwrap_or_default();
    if number != "0" {
        report.leave_out(
            format!("{number} roles, owners and rights"),
            "all objects belong to the role that imports; create roles and GRANT rights afterwards",
        );
    }
    Ok(())
}
