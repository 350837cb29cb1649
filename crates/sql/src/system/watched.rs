//! System tables about settings, sessions, and the row counts of ANALYZE.
//!
//! A line of `settings.txt` has these fields, separated by tabs: name in lower case, unit, category,
//! description, context, type, least and greatest value.
//!
//! This module does not know where the values come from (`crate::activity`, `crate::settings`).

use varve_engine::{ColumnType, Datum, LockInfo, LockOwner, Locked, ObjectId, Value, predefined};

use super::{Fill, Rows, SystemContext, list, oid, text};
use crate::activity::State;
use crate::rights::Holder;
use crate::system_settings::SystemSetting;

/// Returns the code for the tables of this file.
pub fn fill(name: &str) -> Option<Fill> {
    Some(match name {
        "pg_settings" => pg_settings,
        "pg_locks" => pg_locks,
        "pg_stat_activity" => pg_stat_activity,
        "pg_stat_all_tables" | "pg_stat_user_tables" => pg_stat_tables,
        _ => return None,
    })
}

/// Returns the description of a setting, with its fields in the order of the file.
pub fn described(name: &str) -> Option<[&'static str; 8]> {
    let name = name.to_lowercase();
    let fields = |line: &'static str| {
        let mut fields = line.split('\t');
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    };
    include_str!("settings.txt").lines().map(fields).find(|fields: &[&str; 8]| fields[0] == name)
}

fn pg_settings(world: &SystemContext, rows: &mut Rows<'_>) {
    let given = |value: &str| if value.is_empty() { Value::Null } else { text(value) };
    for setting in world.all_settings() {
        let known = described(setting.name).unwrap_or(["", "", "Varve", "", "user", "string", "", ""]);
        let [_, unit, category, description, context, kind, least, greatest] = known;
        let has_choices = kind == "enum" && !setting.choices.is_empty();
        rows.add([
            ("name", text(setting.name)),
            ("setting", text(setting.value)),
            ("unit", given(unit)),
            ("category", text(category)),
            ("short_desc", text(description)),
            ("context", text(context)),
            ("vartype", text(kind)),
            ("source", text(setting.source)),
            ("min_val", given(least)),
            ("max_val", given(greatest)),
            ("enumvals", if has_choices { words(setting.choices) } else { Value::Null }),
            ("boot_val", text(setting.boot)),
            ("reset_val", text(setting.reset)),
            ("pending_restart", Value::Bool(false)),
        ]);
    }
    world.process.all().iter().for_each(|setting| system_setting(setting, rows));
}

fn words(words: &[&str]) -> Value {
    list(ColumnType::Text, words.iter().map(|word| Datum::Text(word)))
}

/// Shows a setting of the process, which ALTER SYSTEM changes.
fn system_setting(setting: &SystemSetting, rows: &mut Rows<'_>) {
    let bound = |bound: Option<u64>| bound.map_or(Value::Null, |bound| text(bound.to_string()));
    rows.add([
        ("name", text(setting.name)),
        ("setting", text(&setting.value)),
        ("category", text("Varve")),
        ("short_desc", text(setting.description)),
        ("context", text(if setting.needs_restart { "postmaster" } else { "sighup" })),
        ("vartype", text(setting.kind)),
        ("unit", setting.unit.map_or(Value::Null, text)),
        ("enumvals", if setting.choices.is_empty() { Value::Null } else { words(&setting.choices) }),
        ("min_val", bound(setting.bounds.map(|(least, _)| least))),
        ("max_val", bound(setting.bounds.map(|(_, greatest)| greatest))),
        ("source", text(setting.source)),
        ("boot_val", text(&setting.default)),
        ("reset_val", text(&setting.value)),
        ("pending_restart", Value::Bool(setting.is_pending())),
    ]);
}

/// Lists the locks of tables and other objects, and of transactions. A transaction that waits for a row is
/// shown as waiting for the transaction that has the row.
fn pg_locks(world: &SystemContext, rows: &mut Rows<'_>) {
    for lock in world.engine.locks() {
        let of = match lock.owner {
            Some(owner) => virtual_id(owner),
            None => format!("{}/0", lock.label),
        };
        rows.add([
            ("locktype", text(lock_type(world, &lock))),
            ("virtualtransaction", text(of)),
            ("pid", Value::Int4(lock.label.cast_signed())),
            ("mode", text(lock.mode.name())),
            ("granted", Value::Bool(lock.is_granted)),
            ("fastpath", Value::Bool(lock.is_fast)),
        ]);
        match lock.on {
            Locked::Whole(owner) => rows.set([("virtualxid", text(virtual_id(owner)))]),
            Locked::Identity(id) => rows.set([("transactionid", Value::Int8(id.cast_signed()))]),
            Locked::Advisory(key) => rows.set([
                ("database", oid(key.database)),
                ("classid", oid(key.class)),
                ("objid", oid(key.object)),
                ("objsubid", Value::Int2(if key.is_pair { 2 } else { 1 })),
            ]),
            Locked::Partition(_, number) => rows.set([("objid", oid(u32::from(number)))]),
            Locked::Object(object) => {
                rows.set([("database", oid(database_of(world, object)))]);
                match class_of(world, object) {
                    None => rows.set([("relation", oid(object.0))]),
                    Some(class) => {
                        let place = [("classid", oid(class)), ("objid", oid(object.0))];
                        rows.set(place.into_iter().chain([("objsubid", Value::Int2(0))]));
                    }
                }
            }
        }
    }
}

/// Returns the database of a locked object, or 0 for an object that all databases share.
fn database_of(world: &SystemContext, object: ObjectId) -> u32 {
    let catalog = &world.catalog;
    if catalog.role_by_id(object).is_some() || catalog.database_by_id(object).is_some() {
        return 0;
    }
    catalog.database_of(object).map_or(0, |database| database.0)
}

/// Returns the kind of a locked object, in the words of pg_locks and pg_stat_activity.
fn lock_type(world: &SystemContext, lock: &LockInfo) -> &'static str {
    match lock.on {
        Locked::Whole(_) => "virtualxid",
        Locked::Identity(_) => "transactionid",
        Locked::Object(object) if class_of(world, object).is_some() => "object",
        Locked::Object(_) => "relation",
        Locked::Advisory(_) => "advisory",
        Locked::Partition(..) => "partition",
    }
}

fn virtual_id((place, serial): LockOwner) -> String {
    format!("{}/{serial}", place + 1)
}

/// Returns the system table that lists a schema or role, or `None` for relations.
fn class_of(world: &SystemContext, object: ObjectId) -> Option<u32> {
    let of = |name| super::table("pg_catalog", name).map(|t| t.oid);
    if world.catalog.schemas().any(|s| s.id == object) {
        return of("pg_namespace");
    }
    if world.catalog.database_by_id(object).is_some_and(|database| !database.is_predefined()) {
        return of("pg_database");
    }
    world.catalog.role_by_id(object).and_then(|_| of("pg_authid"))
}

/// Lists the sessions. Only members of `pg_read_all_stats`, and members of the session's role, see what a
/// session does.
fn pg_stat_activity(world: &SystemContext, rows: &mut Rows<'_>) {
    let holder = Holder::of(&world.catalog, world.who);
    let time = |at: Option<i64>| at.map_or(Value::Null, Value::TimestampTz);
    let locks = world.engine.locks();
    for session in world.watched.sessions() {
        let role = world.catalog.role(&session.user);
        let now = session.now();
        rows.add([
            ("datid", oid(session.database.0)),
            (
                "datname",
                world.catalog.database_by_id(session.database).map_or(Value::Null, |d| text(&d.name)),
            ),
            ("pid", Value::Int4(session.process_id)),
            ("usesysid", role.map_or(Value::Null, |r| oid(r.id.0))),
            ("usename", text(&session.user)),
            ("application_name", text(&now.application_name)),
        ]);
        if !holder.is(predefined::READ_ALL_STATS) && !role.is_some_and(|r| holder.is(r.id)) {
            rows.set([("query", text("<insufficient privilege>"))]);
            continue;
        }
        if let Some(peer) = session.peer {
            let port = Value::Int4(i32::from(peer.port()));
            rows.set([("client_addr", text(peer.ip().to_string())), ("client_port", port)]);
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
        // The session waits for its client's next statement.
        if matches!(now.state, State::Idle | State::InBlock | State::Failed) {
            rows.set([("wait_event_type", text("Client")), ("wait_event", text("ClientRead"))]);
        }
        let is_identity =
            |lock: &&LockInfo| lock.label.cast_signed() == session.process_id && lock.is_granted;
        if let Some(Locked::Identity(id)) =
            locks.iter().filter(is_identity).map(|lock| lock.on).find(|on| matches!(on, Locked::Identity(_)))
        {
            // As in PostgreSQL, the view shows the low 32 bits.
            rows.set([("backend_xid", oid(id as u32))]);
        }
        let its_own = |lock: &&LockInfo| lock.label.cast_signed() == session.process_id;
        if let Some(awaited) = locks.iter().filter(its_own).find(|lock| !lock.is_granted) {
            let event = text(lock_type(world, awaited));
            rows.set([("wait_event_type", text("Lock")), ("wait_event", event)]);
        }
    }
}

/// Shows accesses to tables, and the rows that ANALYZE has counted. Until ANALYZE counts them, the number of
/// rows is that of inserts less deletes.
fn pg_stat_tables(world: &SystemContext, rows: &mut Rows<'_>) {
    let number = |number: u64| Value::Int8(i64::try_from(number).unwrap_or(i64::MAX));
    for table in world.catalog.tables() {
        let count = world.watched.count(table.id);
        let own = world.engine.table_accesses(table.id);
        let (index_scans, index_rows) = world.index_accesses(&table.indexes);
        let live = count.map_or(own.inserted.saturating_sub(own.deleted), |count| count.rows);
        rows.add([
            ("relid", oid(table.id.0)),
            ("schemaname", text(&table.schema)),
            ("relname", text(&table.name)),
            ("seq_scan", number(own.scans)),
            ("seq_tup_read", number(own.rows_read)),
            ("idx_scan", number(own.key_scans + index_scans)),
            ("idx_tup_fetch", number(own.key_rows + index_rows)),
            ("n_tup_ins", number(own.inserted)),
            ("n_tup_upd", number(own.updated)),
            ("n_tup_del", number(own.deleted)),
            ("n_tup_hot_upd", Value::Int8(0)),
            ("n_live_tup", number(live)),
            ("n_dead_tup", Value::Int8(0)),
            ("last_analyze", count.map_or(Value::Null, |c| Value::TimestampTz(c.at_us))),
            ("vacuum_count", Value::Int8(0)),
            ("autovacuum_count", Value::Int8(0)),
            ("autoanalyze_count", Value::Int8(0)),
            ("analyze_count", Value::Int8(count.map_or(0, |c| c.times))),
        ]);
    }
}
