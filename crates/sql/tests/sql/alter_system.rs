//! Tests of ALTER SYSTEM with two settings: one changes at once, the other one with the next start.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::{Arc, Mutex};

use crate::support::{reopened, session};
use crate::waiting::{ask, run};
use varve_device::MemoryDirectory;
use varve_sql::{Result, SqlDatabase, SqlError, SqlState, SystemSetting, SystemSettings};

/// The altered values. A change of `now_size` has an effect at once.
#[derive(Default)]
struct Program(Mutex<[Option<String>; 2]>);

const NAMES: [&str; 2] = ["now_size", "later_size"];

impl SystemSettings for Program {
    fn all(&self) -> Vec<SystemSetting> {
        let given = self.0.lock().unwrap();
        let setting = |n: usize| {
            let after = given[n].clone().unwrap_or_else(|| "1".to_owned());
            let value = if n == 0 { after.clone() } else { "1".to_owned() };
            SystemSetting {
                name: NAMES[n],
                source: if value == "1" { "default" } else { "configuration file" },
                kind: "enum",
                unit: None,
                bounds: None,
                choices: vec!["1", "7"],
                hidden: None,
                warning: (after == "9").then(|| "nine is much".to_owned()),
                value,
                after_restart: after,
                default: "1".to_owned(),
                description: "a size",
                needs_restart: n == 1,
            }
        };
        vec![setting(0), setting(1)]
    }

    fn alter(&self, name: &str, value: Option<&str>) -> Result<()> {
        let Some(n) = NAMES.iter().position(|known| *known == name) else {
            let message = format!("unrecognized configuration parameter \"{name}\"");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        self.0.lock().unwrap()[n] = value.map(str::to_owned);
        Ok(())
    }

    fn reset_all(&self) -> Result<()> {
        *self.0.lock().unwrap() = [None, None];
        Ok(())
    }
}

fn database() -> Arc<SqlDatabase> {
    let plain = reopened(&MemoryDirectory::new());
    Arc::new(SqlDatabase::new(plain.engine().clone()).with_system(Arc::new(Program::default())))
}

#[test]
fn what_is_altered_shows() {
    let mut s = session(&database());
    run(&mut s, "alter system set now_size = '2 GiB'");
    assert_eq!(ask(&mut s, "show now_size"), ["2 GiB"]);
    let told = "~ Notice later_size changes when the server is started again";
    assert_eq!(ask(&mut s, "ALTER SYSTEM SET later_size TO 7"), [told]);
    assert_eq!(ask(&mut s, "select current_setting('later_size'), current_setting('now_size')"), ["1|2 GiB"]);
    let all = "select name, setting, context, pending_restart, source, reset_val from pg_settings
        where name like '%_size' and category = 'Varve' order by 1";
    assert_eq!(
        ask(&mut s, all),
        ["later_size|1|postmaster|t|default|1", "now_size|2 GiB|sighup|f|configuration file|2 GiB"]
    );
    let told = ["~ Warning nine is much", "~ Notice later_size changes when the server is started again"];
    assert_eq!(ask(&mut s, "ALTER SYSTEM SET later_size TO 9"), told);
    assert_eq!(
        ask(&mut s, "select vartype, enumvals from pg_settings where name = 'now_size'"),
        ["enum|{1,7}"]
    );
    assert!(ask(&mut s, "show all").contains(&"now_size|2 GiB|a size".to_owned()));
    run(&mut s, "alter system reset later_size");
    run(&mut s, "alter system set now_size = default");
    assert_eq!(ask(&mut s, "show now_size"), ["1"]);
    assert_eq!(ask(&mut s, "alter system set later_size = 8").len(), 1);
    run(&mut s, "alter system reset all");
    assert_eq!(ask(&mut s, "select count(*) from pg_settings where pending_restart"), ["0"]);
}

/// The messages are those of PostgreSQL 15.
#[test]
fn what_cannot_be_altered_is_refused() {
    let mut s = session(&database());
    let check = |s: &mut _, sql: &str, expect: &str| assert_eq!(ask(s, sql), [expect], "{sql}");
    check(&mut s, "alter system set nosuch = 5", "! 42704 unrecognized configuration parameter \"nosuch\"");
    let later = "parameter \"later_size\" cannot be changed without restarting the server";
    check(&mut s, "set later_size = 5", &format!("! 55P02 {later}"));
    check(&mut s, "set now_size = 5", "! 55P02 parameter \"now_size\" cannot be changed now");
    check(&mut s, "select set_config('later_size', '5', false)", &format!("! 55P02 {later}"));
    let of_sessions = "ALTER SYSTEM of work_mem, which is a setting of sessions, is not supported";
    check(&mut s, "alter system set work_mem = '5MB'", &format!("! 0A000 {of_sessions}"));
    run(&mut s, "begin");
    check(&mut s, "alter system reset all", "! 25001 ALTER SYSTEM cannot run inside a transaction block");
    run(&mut s, "rollback; create role low; set role low");
    check(&mut s, "alter system set now_size = 5", "! 42501 permission denied to set parameter \"now_size\"");
    check(&mut s, "alter system reset all", "! 42501 permission denied to perform ALTER SYSTEM RESET ALL");
    assert_eq!(ask(&mut s, "alter system set now_size 5").len(), 1);
}

#[test]
fn an_embedder_has_no_system_settings() {
    let mut s = session(&crate::support::database());
    let refused = "! 0A000 ALTER SYSTEM in a program that embeds the database is not supported";
    assert_eq!(ask(&mut s, "alter system set pool_size = '1GiB'"), [refused]);
}
