//! Tables of information_schema about grants, and about memberships of roles.
//!
//! Invariants
//! 1. A role sees grants to PUBLIC, grants that it has made, and grants that it has received. For each role
//!    of which it is a member, it also sees the grants that this role has made or received.
//!
//! Varve has no rights on single columns.

use varve_engine::{BOOTSTRAP_ROLE, Grant, ObjectId, Rights, Value, predefined};

use super::information::Seen;
use super::relations::{What, relations};
use super::{Fill, Rows, SystemContext, show, text, yes};
use crate::rights::{Holder, Kind, Object, memberships};

/// The rights on tables and views, in the order of their letters in `relacl`.
const ON_TABLES: [(Rights, &str); 7] = [
    (Rights::INSERT, "INSERT"),
    (Rights::SELECT, "SELECT"),
    (Rights::UPDATE, "UPDATE"),
    (Rights::DELETE, "DELETE"),
    (Rights::TRUNCATE, "TRUNCATE"),
    (Rights::REFERENCES, "REFERENCES"),
    (Rights::TRIGGER, "TRIGGER"),
];

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "table_privileges" => |world, rows| table_privileges(world, rows, true),
        "role_table_grants" => |world, rows| table_privileges(world, rows, false),
        "enabled_roles" => enabled_roles,
        "applicable_roles" => applicable_roles,
        _ => return None,
    })
}

/// Makes one row for each right of each grant. `with_public` includes grants to PUBLIC.
fn table_privileges(world: &SystemContext, rows: &mut Rows<'_>, with_public: bool) {
    let catalog = &world.catalog;
    let seen = Seen::by(world);
    for r in relations(catalog) {
        let object = match r.what {
            What::Table(table) => Object::new(table.id, Kind::Table, r.name),
            What::Part(..) => continue,
            What::View(view) => Object::new(view.id, Kind::View, r.name),
            _ => continue,
        };
        let owner = catalog.owner(object.id);
        let is_shown = |g: &&Grant| match g.grantee {
            None => with_public || seen.holder.is(g.grantor),
            Some(grantee) => seen.holder.is(grantee) || seen.holder.is(g.grantor),
        };
        let grants = object.grants(catalog);
        for grant in grants.iter().filter(is_shown) {
            // A grantee that is the owner, or a member of the owner's role, may grant all its rights.
            let owns = grant.grantee.is_some_and(|grantee| Holder::of(catalog, Some(grantee)).is(owner));
            for (right, name) in ON_TABLES.iter().filter(|(right, _)| grant.rights.has(*right)) {
                rows.add([
                    ("grantor", text(show::role_name(catalog, grant.grantor.0))),
                    ("grantee", grantee(world, grant.grantee)),
                    ("table_catalog", text(&world.database)),
                    ("table_schema", text(r.schema)),
                    ("table_name", text(r.name)),
                    ("privilege_type", text(*name)),
                    ("is_grantable", yes(owns || grant.grantable.has(*right))),
                    ("with_hierarchy", yes(*right == Rights::SELECT)),
                ]);
            }
        }
    }
}

fn grantee(world: &SystemContext, role: Option<ObjectId>) -> Value {
    role.map_or_else(|| text("PUBLIC"), |role| text(show::role_name(&world.catalog, role.0)))
}

fn enabled_roles(world: &SystemContext, rows: &mut Rows<'_>) {
    let holder = Holder::of(&world.catalog, world.who);
    for role in world.catalog.roles().filter(|role| holder.is(role.id)) {
        rows.add([("role_name", text(&role.name))]);
    }
}

fn applicable_roles(world: &SystemContext, rows: &mut Rows<'_>) {
    let catalog = &world.catalog;
    let own = world.who.map(|who| memberships(catalog, who, &|role| role.inherits)).unwrap_or_default();
    let is_superuser = Holder::of(catalog, world.who).is_superuser();
    if is_superuser || own.contains(&BOOTSTRAP_ROLE) {
        // The owner of the database is a member of this role without a GRANT.
        rows.add([
            ("grantee", text(show::role_name(catalog, BOOTSTRAP_ROLE.0))),
            ("role_name", text(show::role_name(catalog, predefined::DATABASE_OWNER.0))),
            ("is_grantable", yes(false)),
        ]);
    }
    for role in catalog.roles().filter(|role| is_superuser || own.contains(&role.id)) {
        for membership in &role.member_of {
            rows.add([
                ("grantee", text(&role.name)),
                ("role_name", text(show::role_name(catalog, membership.role.0))),
                ("is_grantable", yes(membership.is_admin)),
            ]);
        }
    }
}
