//! `has_table_privilege` and similar functions.
//!
//! Invariants
//! 1. The functions return whether a statement of the role would be allowed, by the same rules as for
//!    statements (`crate::rights`).
//!
//! A column has the rights of its table. Rights on functions, languages and types cannot be granted: every
//! role has them.

use varve_engine::{Catalog, Datum, ObjectId, Rights};

use super::{Builtin, catalog, text};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, reg};
use crate::rights::{Holder, Kind, Object, Who, memberships};
use crate::system::tablespaces::{self, owner_of};
use crate::system::{self, SystemContext, What};
use crate::ty::Reg;
use crate::ty::Ty::{Bool, Int2, Name, Oid, Text};

/// Returns the overloads of a function. The role is left out, or given by name or OID, and the object is
/// given by name or OID.
const fn rows(name: &'static str, run: super::Run) -> [Builtin; 6] {
    [
        catalog(name, &[Text, Text], Bool, run),
        catalog(name, &[Oid, Text], Bool, run),
        catalog(name, &[Name, Text, Text], Bool, run),
        catalog(name, &[Name, Oid, Text], Bool, run),
        catalog(name, &[Oid, Text, Text], Bool, run),
        catalog(name, &[Oid, Oid, Text], Bool, run),
    ]
}

pub(super) static TABLES: [Builtin; 6] = rows("has_table_privilege", |a, cx| of_relation(a, &[], cx));
pub(super) static ANY_COLUMNS: [Builtin; 6] =
    rows("has_any_column_privilege", |a, cx| of_relation(a, &[], cx));
pub(super) static SEQUENCES: [Builtin; 6] = rows("has_sequence_privilege", |a, cx| of_relation(a, &[], cx));
pub(super) static SCHEMAS: [Builtin; 6] = rows("has_schema_privilege", of_schema);
pub(super) static DATABASES: [Builtin; 6] = rows("has_database_privilege", of_database);
pub(super) static ROLES: [Builtin; 6] = rows("pg_has_role", of_role);
pub(super) static FUNCTIONS: [Builtin; 6] = rows("has_function_privilege", of_function);
pub(super) static LANGUAGES: [Builtin; 6] = rows("has_language_privilege", of_language);
pub(super) static TYPES: [Builtin; 6] = rows("has_type_privilege", of_type);
pub(super) static TABLESPACES: [Builtin; 6] = rows("has_tablespace_privilege", of_tablespace);

/// `has_column_privilege` with a role. Passes role, relation and right on like `has_table_privilege`.
fn of_column<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    of_relation(&[a[0], a[1], a[3]], &a[1..], cx)
}

pub(super) const COLUMNS: &[Builtin] = &[
    catalog("has_column_privilege", &[Name, Text, Text, Text], Bool, of_column),
    catalog("has_column_privilege", &[Name, Text, Int2, Text], Bool, of_column),
    catalog("has_column_privilege", &[Name, Oid, Text, Text], Bool, of_column),
    catalog("has_column_privilege", &[Name, Oid, Int2, Text], Bool, of_column),
    catalog("has_column_privilege", &[Oid, Text, Text, Text], Bool, of_column),
    catalog("has_column_privilege", &[Oid, Text, Int2, Text], Bool, of_column),
    catalog("has_column_privilege", &[Oid, Oid, Text, Text], Bool, of_column),
    catalog("has_column_privilege", &[Oid, Oid, Int2, Text], Bool, of_column),
    catalog("has_column_privilege", &[Text, Text, Text], Bool, |a, cx| of_relation(&[a[0], a[2]], a, cx)),
    catalog("has_column_privilege", &[Oid, Text, Text], Bool, |a, cx| of_relation(&[a[0], a[2]], a, cx)),
    catalog("has_column_privilege", &[Text, Int2, Text], Bool, |a, cx| of_relation(&[a[0], a[2]], a, cx)),
    catalog("has_column_privilege", &[Oid, Int2, Text], Bool, |a, cx| of_relation(&[a[0], a[2]], a, cx)),
];

/// Returns the role in the first of three arguments, or the session's role.
fn asked<'a>(a: &[Datum<'a>], world: &SystemContext) -> Result<Who> {
    match a {
        [Datum::Text(name), _, _] => {
            let role = world.catalog.role(name).ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
            })?;
            Ok(Some(role.id))
        }
        [number, _, _] => Ok(number.as_integer().and_then(|n| u32::try_from(n).ok()).map(ObjectId)),
        _ => Ok(world.who),
    }
}

/// Returns the role, the object and the list of rights. Without a role argument it is the session's role.
fn parts<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<(Holder, Datum<'a>, &'a str)> {
    let world = cx.env.world()?;
    let [.., object, _] = a else { return Err(SqlError::internal("a privilege function without arguments")) };
    Ok((Holder::of(&world.catalog, asked(a, world)?), *object, text(a, a.len() - 1)))
}

/// The words for rights. Each kind of objects has some of them.
const WORDS: [(&str, Rights); 13] = [
    ("SELECT", Rights::SELECT),
    ("INSERT", Rights::INSERT),
    ("UPDATE", Rights::UPDATE),
    ("DELETE", Rights::DELETE),
    ("TRUNCATE", Rights::TRUNCATE),
    ("REFERENCES", Rights::REFERENCES),
    ("TRIGGER", Rights::TRIGGER),
    ("USAGE", Rights::USAGE),
    ("CREATE", Rights::CREATE),
    ("CONNECT", Rights::CONNECT),
    ("TEMPORARY", Rights::TEMPORARY),
    ("TEMP", Rights::TEMPORARY),
    ("EXECUTE", Rights::EXECUTE),
];

/// The text after a right in a list, which asks for the option to grant this right.
const GRANT_OPTION: &str = " WITH GRANT OPTION";

/// A right, or the option to grant it.
#[derive(Clone, Copy)]
struct Asked {
    right: Rights,
    option: bool,
}

/// Returns whether the role has one of these rights.
fn has_any(holder: &Holder, catalog: &Catalog, object: &Object, wanted: &[Asked]) -> bool {
    wanted.iter().any(|asked| match asked.option {
        true => holder.may_grant(catalog, object, asked.right),
        false => holder.may_any(catalog, object, &[asked.right]),
    })
}

/// Returns the rights in a list such as `SELECT, INSERT`. The role needs only one of them.
fn wanted(list: &str, possible: Rights) -> Result<Vec<Asked>> {
    let word = |written: &str| {
        let upper = written.trim().to_ascii_uppercase();
        let plain = upper.strip_suffix(GRANT_OPTION).unwrap_or(&upper);
        let found = WORDS.iter().find(|(word, right)| *word == plain && possible.has(*right));
        found.map(|(_, right)| Asked { right: *right, option: plain != upper }).ok_or_else(|| {
            let message = format!("unrecognized privilege type: \"{}\"", written.trim());
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        })
    };
    list.split(',').map(word).collect()
}

fn by_name(object: Datum<'_>, kind: Reg, world: &SystemContext) -> Result<Option<u32>> {
    match object {
        Datum::Text(name) => reg::find(kind, name, &world.catalog, &world.path).map(Some),
        number => Ok(number.as_integer().and_then(|n| u32::try_from(n).ok())),
    }
}

/// Checks rights on a table, view or sequence. If `column` has a second value, it is the name or number of a
/// column, and rights on this column are checked.
fn of_relation<'a>(a: &[Datum<'a>], column: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let world = cx.env.world()?;
    let catalog = &world.catalog;
    let Some(oid) = by_name(object, Reg::Class, world)? else { return Ok(Datum::Null) };
    let Some(r) = system::relation(catalog, oid) else { return Ok(Datum::Null) };
    if let Some(Datum::Text(name)) = column.get(1)
        && !r.attributes().iter().any(|column| column.name == **name)
    {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", r.name);
        return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
    }
    let kind = match r.what {
        What::Sequence(_) => Kind::Sequence,
        What::View(_) => Kind::View,
        _ => Kind::Table,
    };
    let wanted = wanted(list, kind.all())?;
    let id = match r.what {
        What::Part(table, _) => ObjectId::from(table.id),
        What::Index(_) => return Ok(Datum::Bool(holder.is_superuser())),
        What::System(_) => {
            let reads = wanted.iter().any(|asked| asked.right == Rights::SELECT && !asked.option);
            let reads = reads && !matches!(r.name, "pg_authid" | "pg_shadow");
            return Ok(Datum::Bool(reads || holder.is_superuser()));
        }
        _ => ObjectId(oid),
    };
    Ok(Datum::Bool(has_any(&holder, catalog, &Object::new(id, kind, r.name), &wanted)))
}

fn of_schema<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let catalog = &cx.env.world()?.catalog;
    let Some(oid) = by_name(object, Reg::Namespace, cx.env.world()?)? else { return Ok(Datum::Null) };
    let wanted = wanted(list, Kind::Schema.all())?;
    let Some(name) = system::show::namespace_name(catalog, oid) else { return Ok(Datum::Null) };
    match catalog.schemas().find(|schema| schema.name == name) {
        Some(schema) => Ok(Datum::Bool(has_any(&holder, catalog, &Object::schema(schema), &wanted))),
        None => {
            let uses = wanted.iter().any(|asked| asked.right == Rights::USAGE && !asked.option);
            Ok(Datum::Bool(uses || holder.is_superuser()))
        }
    }
}

fn of_database<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let catalog = &cx.env.world()?.catalog;
    let database = match object {
        Datum::Text(name) => Some(catalog.database_named(name).ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_DATABASE, format!("database \"{name}\" does not exist"))
        })?),
        number => {
            let id = number.as_integer().and_then(|id| u32::try_from(id).ok());
            id.and_then(|id| catalog.database_by_id(ObjectId(id)))
        }
    };
    let wanted = wanted(list, Kind::Database.all())?;
    let Some(database) = database else { return Ok(Datum::Null) };
    Ok(Datum::Bool(has_any(&holder, catalog, &Object::database(database), &wanted)))
}

/// Returns the result for an object on which every role has the right. Only superusers have the option to
/// grant it.
fn for_all(holder: &Holder, wanted: &[Asked]) -> Datum<'static> {
    Datum::Bool(holder.is_superuser() || wanted.iter().any(|asked| !asked.option))
}

fn of_function<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let is_there = match object {
        Datum::Text(signature) => find_function(signature).map(|()| true)?,
        number => system::types()
            .iter()
            .flat_map(|t| t.functions)
            .any(|(id, _)| number.as_integer() == Some(i64::from(id))),
    };
    let wanted = wanted(list, Rights::EXECUTE)?;
    Ok(if is_there { for_all(&holder, &wanted) } else { Datum::Null })
}

/// Fails with 42883 if there is no function with the signature `name(type, ...)`.
fn find_function(signature: &str) -> Result<()> {
    let malformed = |what| SqlError::new(SqlState::INVALID_TEXT, format!("expected a {what} parenthesis"));
    let (name, arguments) = signature.split_once('(').ok_or_else(|| malformed("left"))?;
    let arguments = arguments.trim_end().strip_suffix(')').ok_or_else(|| malformed("right"))?;
    let typed = |written: &str| {
        let named = crate::parse::type_name(written.trim());
        named.map(|t| t.ty).ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", written.trim()))
        })
    };
    let written = arguments.split(',').filter(|_| !arguments.trim().is_empty());
    let types = written.map(typed).collect::<Result<Vec<_>>>()?;
    let (schema, name) = crate::names::split_name(name.trim());
    let is_there = match crate::path::has_schema(signature) && schema != "pg_catalog" {
        true => false,
        false => {
            super::overloads(&name).any(|f| f.arguments == types) || crate::bind::is_special_function(&name)
        }
    };
    let message = || format!("function \"{signature}\" does not exist");
    is_there.then_some(()).ok_or_else(|| SqlError::new(SqlState::UNDEFINED_FUNCTION, message()))
}

fn of_language<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let is_there = match object {
        Datum::Text(name) if system::LANGUAGES.iter().any(|(_, known)| *known == name) => true,
        Datum::Text(name) => {
            let message = format!("language \"{name}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
        number => system::LANGUAGES.iter().any(|(id, _)| number.as_integer() == Some(i64::from(*id))),
    };
    let wanted = wanted(list, Rights::USAGE)?;
    Ok(if is_there { for_all(&holder, &wanted) } else { Datum::Null })
}

fn of_type<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let world = cx.env.world()?;
    let oid = match object {
        Datum::Text(name) => Some(reg::find_named(Reg::Type, name, &world.catalog, &world.path)?),
        number => number.as_integer().and_then(|n| u32::try_from(n).ok()),
    };
    let wanted = wanted(list, Rights::USAGE)?;
    let is_there = oid.and_then(system::type_row).is_some();
    Ok(if is_there { for_all(&holder, &wanted) } else { Datum::Null })
}

/// Checks rights on a tablespace. Every role creates tables in `pg_default`, but only superusers and the
/// owner have rights on a tablespace.
fn of_tablespace<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let world = cx.env.world()?;
    let known = |is_it: &dyn Fn(&(u32, &str)) -> bool| tablespaces::KNOWN.iter().any(is_it);
    let (is_known, made) = match object {
        Datum::Text(name) => match tablespaces::named(world, name) {
            None if !known(&|one| one.1 == name) => {
                let message = format!("tablespace \"{name}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
            made => (true, made),
        },
        number => {
            let number = number.as_integer().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
            (known(&|one| one.0 == number), tablespaces::with_oid(world, number))
        }
    };
    wanted(list, Rights::CREATE)?;
    let owns = made.as_ref().is_some_and(|one| holder.is(owner_of(one)));
    Ok(if is_known || made.is_some() { Datum::Bool(holder.is_superuser() || owns) } else { Datum::Null })
}

/// Returns whether a role is a member of another role: directly or indirectly (MEMBER), or only through
/// inherited memberships (USAGE).
fn of_role<'a>(a: &[Datum<'a>], cx: &Cx<'a>) -> Result<Datum<'a>> {
    let (holder, object, list) = parts(a, cx)?;
    let world = cx.env.world()?;
    let Some(oid) = by_name(object, Reg::Role, world)? else { return Ok(Datum::Null) };
    let who = asked(a, world)?;
    let mut is = false;
    for written in list.split(',') {
        let upper = written.trim().to_ascii_uppercase();
        let (plain, is_admin) =
            match upper.strip_suffix(" WITH ADMIN OPTION").or(upper.strip_suffix(GRANT_OPTION)) {
                Some(plain) => (plain, true),
                None => (upper.as_str(), false),
            };
        is |= match plain {
            _ if is_admin && matches!(plain, "USAGE" | "MEMBER") => is_admin_of(world, who, ObjectId(oid)),
            "USAGE" => holder.is(ObjectId(oid)),
            "MEMBER" => who.is_some_and(|role| {
                memberships(&world.catalog, role, &|_| true).contains(&ObjectId(oid)) || holder.is_superuser()
            }),
            _ => {
                let message = format!("unrecognized privilege type: \"{}\"", written.trim());
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        };
    }
    Ok(Datum::Bool(is))
}

/// Returns whether `who` may make other roles members of `role`.
fn is_admin_of(world: &SystemContext, who: Who, role: ObjectId) -> bool {
    let catalog = &world.catalog;
    Holder::of(catalog, who).is_superuser()
        || who.into_iter().flat_map(|who| memberships(catalog, who, &|_| true)).any(|held| {
            let held = catalog.role_by_id(held);
            held.is_some_and(|held| held.member_of.iter().any(|m| m.role == role && m.is_admin))
        })
}
