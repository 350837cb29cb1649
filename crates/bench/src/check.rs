//! Checks the consistency conditions of a workload after its run.

use std::io::Write;

use crate::database::Connection;
use crate::workload::{Condition, Workload};
use crate::{BenchError, Result};

/// Checks each condition and writes a line for it. Returns an error after all checks if any condition is
/// broken.
pub fn run(workload: &dyn Workload, connection: &mut dyn Connection, out: &mut dyn Write) -> Result<()> {
    let conditions = workload.conditions();
    if conditions.is_empty() {
        return Err(BenchError::Arguments(format!("{} has no conditions to check", workload.name())));
    }
    let broken = broken(&conditions, connection)?;
    for condition in &conditions {
        let count = broken.iter().find(|(name, _)| *name == condition.name).map(|(_, count)| count);
        let verdict = count.map_or("holds".to_owned(), |count| format!("BROKEN {count} times"));
        writeln!(out, "condition {:9} {verdict}: {}", condition.name, condition.says)?;
    }
    if broken.is_empty() { Ok(()) } else { Err(BenchError::Wrong(named(&broken))) }
}

/// Returns the names of the conditions that don't hold, and the number of violations of each.
pub fn broken(
    conditions: &[Condition],
    connection: &mut dyn Connection,
) -> Result<Vec<(&'static str, String)>> {
    let mut broken = Vec::new();
    for condition in conditions {
        let count = connection.scalar(&condition.violations)?;
        if count != "0" {
            broken.push((condition.name, count));
        }
    }
    Ok(broken)
}

fn named(broken: &[(&str, String)]) -> String {
    let names: Vec<&str> = broken.iter().map(|(name, _)| *name).collect();
    format!("conditions broken: {}", names.join(", "))
}
