//! Tries the definitions in the target, in a transaction that is rolled back. The report says what the target
//! refuses. So it cannot differ from what the load does.

use std::fmt::Write;

use super::TransferError;
use super::definitions::{Choice, Item, Phase};
use super::link::Link;

/// The compatibility report.
#[derive(Debug, Default)]
pub struct Report {
    /// Objects that are made in another form: name, and what differs.
    pub changed: Vec<(String, String)>,
    /// Objects that are not made: name, and the reason.
    pub left_out: Vec<(String, String)>,
}

impl Report {
    /// Adds an object that gets another form.
    pub fn change(&mut self, what: impl Into<String>, how: impl Into<String>) {
        self.changed.push((what.into(), how.into()));
    }

    /// Adds an object that is not made.
    pub fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.left_out.push((what.into(), why.into()));
    }

    /// Returns the report as text.
    pub fn text(&self) -> String {
        if self.changed.is_empty() && self.left_out.is_empty() {
            return "compatibility: everything that was read can be imported as it is\n".to_owned();
        }
        let mut text = format!(
            "compatibility: {} changed, {} left out\n",
            count(self.changed.len(), "object"),
            count(self.left_out.len(), "object")
        );
        for (what, how) in &self.changed {
            let _ = writeln!(text, "  changed   {what}: {how}");
        }
        for (what, why) in &self.left_out {
            let _ = writeln!(text, "  left out  {what}: {why}");
        }
        text
    }
}

/// Returns a number with a noun.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// An object as it will be made.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The object.
    pub what: String,
    /// When it is made.
    pub phase: Phase,
    /// The way.
    pub choice: Choice,
}

/// Tries all items in order, and rolls back. Returns those that the target accepts.
pub fn attempt(
    link: &mut dyn Link,
    items: &[Item],
    report: &mut Report,
) -> Result<Vec<Chosen>, TransferError> {
    let step = |error: super::StatementError| error.of("trying the definitions in the target");
    link.run("BEGIN").map_err(step)?;
    let mut chosen = Vec::new();
    let tried: Result<(), TransferError> = items.iter().try_for_each(|item| {
        match choose(link, item).map_err(step)? {
            Ok(choice) => {
                if let Some(change) = &choice.change {
                    report.change(&item.what, change);
                }
                chosen.push(Chosen { what: item.what.clone(), phase: item.phase, choice });
            }
            Err(why) => report.leave_out(&item.what, why),
        }
        Ok(())
    });
    let rolled_back = link.run("ROLLBACK").map_err(step);
    tried?;
    rolled_back?;
    Ok(chosen)
}

/// Returns the first way that the target accepts, or its first error.
fn choose(link: &mut dyn Link, item: &Item) -> Result<Result<Choice, String>, super::StatementError> {
    let mut refused = None;
    for choice in &item.choices {
        link.run("SAVEPOINT tried")?;
        match link.run(&choice.sql) {
            Ok(()) => {
                link.run("RELEASE tried")?;
                return Ok(Ok(choice.clone()));
            }
            Err(error) => {
                link.run("ROLLBACK TO tried; RELEASE tried")?;
                refused.get_or_insert(error);
            }
        }
    }
    Ok(Err(refused.map_or_else(|| "there is no way to make it".to_owned(), |error| error.to_string())))
}
