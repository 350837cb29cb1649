//! System tables about what happens: settings with what PostgreSQL says of them, sessions, rows that ANALYZE counted.
//!
//! Line of `settings.txt`, tabs between: name in lower case, unit, category, description, context, type, least and greatest value.
//!
//! Does not know: who keeps these (`crate::activity`, `crate::settings`).

use varve_engine::Value;

use super::{Fill, Rows, World, ids, oid, text};
use crate::rights::Holder;

/// The code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "pg_settings" => pg_settings,
        "pg_stat_activity" => pg_stat_activity,
        "pg_stat_all_tables" | "pg_stat_user_tables" => pg_stat_tables,
        _ => return None,
    })
}

/// What is known of a setting; its fields in the order of the file.
pub fn described(name: &str) -> Option<[&'static str; 8]> {
    let name = name.to_lowercase();
    let fields = |line: &'static str| {
        let mut fields = line.split('\t');
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    };
    include_str!("settings.txt").lines().map(fields).find(|fields: &[&str; 8]| fields[0] == name)
}

fn pg_settings(world: &World, rows: &mut Rows<'_>) {
    let given = |value: &str| if value.is_empty() { Value::Null } else { text(value) };
    for (name, value) in &world.settings {
        let known = described(name).unwrap_or(["", "", "Varve", "", "user", "string", "", ""]);
        let [_, unit, category, description, context, kind, least, greatest] = known;
        rows.add([
            ("name", text(name)),
            ("setting", text(value)),
            ("unit", given(unit)),
            ("category", text(category)),
            ("short_desc", text(description)),
            ("context", text(context)),
            ("vartype", text(kind)),
            ("source", text("default")),
            ("min_val", given(least)),
            ("max_val", given(greatest)),
            ("boot_val", text(value)),
            ("reset_val", text(value)),
            ("pending_restart", Value::Bool(false)),
        ]);
    }
}

/// What others do is for superusers to see, and for those who do it.
fn pg_stat_activity(world: &World, rows: &mut Rows<'_>) {
    let holder = Holder::of(&world.catalog, world.who);
    let time = |at: Option<i64>| at.map_or(Value::Null, Value::TimestampTz);
    for session in world.shared.watched().sessions() {
        let role = world.catalog.role(&session.user);
        let now = session.now();
        rows.add([
            ("datid", oid(ids::DATABASE)),
            ("datname", text(&world.database)),
            ("pid", Value::Int4(session.process_id)),
            ("usesysid", role.map_or(Value::Null, |r| oid(r.id.0))),
            ("usename", text(&session.user)),
            ("application_name", text(&now.application_name)),
        ]);
        if !holder.is_superuser() && !role.is_some_and(|r| holder.is(r.id)) {
            rows.set([("query", text("<insufficient privilege>"))]);
            continue;
        }
        rows.set([
            ("backend_start", Value::TimestampTz(session.start_us)),
            ("xact_start", time(now.transaction_start_us)),
            ("query_start", time(now.query_start_us)),
            ("state_change", Value::TimestampTz(now.state_change_us)),
            ("state", text(now.state.word())),
            ("query", text(now.query)),
            ("backend_type", text("client backend")),
        ]);
    }
}

/// Rows as ANALYZE counted them; what Varve doesn't count is NULL.
fn pg_stat_tables(world: &World, rows: &mut Rows<'_>) {
    for table in world.catalog.tables() {
        let count = world.shared.watched().count(table.id);
        rows.add([
            ("relid", oid(table.id.0)),
            ("schemaname", text(&table.schema)),
            ("relname", text(&table.name)),
            ("n_live_tup", Value::Int8(count.map_or(0, |c| i64::try_from(c.rows).unwrap_or(i64::MAX)))),
            ("n_dead_tup", Value::Int8(0)),
            ("last_analyze", count.map_or(Value::Null, |c| Value::TimestampTz(c.at_us))),
            ("analyze_count", Value::Int8(count.map_or(0, |c| c.times))),
        ]);
    }
}
