//! Sets the number of processors that this process may use.
//!
//! The command `taskset` of util-linux sets this number for all threads. Threads that are started later
//! inherit it.

use std::process::{Command, Stdio};

use varve_bench::Result;

/// Lets this process use only the first `count` processors. Returns whether it can use this number now.
pub fn use_first(count: usize) -> Result<bool> {
    if count_now() == count {
        return Ok(true);
    }
    let list = format!("0-{}", count.saturating_sub(1));
    let process = std::process::id().to_string();
    let mut command = Command::new("taskset");
    command.args(["--all-tasks", "--cpu-list", "--pid", &list, &process]).stdout(Stdio::null());
    match command.stderr(Stdio::null()).status() {
        Ok(_) => Ok(count_now() == count),
        // The machine does not have the command `taskset`.
        Err(_) => Ok(false),
    }
}

/// Returns the number of processors that this thread may use.
pub fn count_now() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}
