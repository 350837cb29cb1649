//! A short run of the protocol fuzzer with a fixed seed. `wire_fuzz` of the crate `varve` runs longer, and
//! with a real database. The test is a program of its own, because it counts the panics of all threads.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "server/support/mod.rs"]
mod support;

use std::time::Duration;

use crate::support::fuzz::{Plan, count_panics, run};
use crate::support::server;

#[test]
fn damaged_conversations_do_no_harm() {
    count_panics();
    let server = server();
    let statements: &[(&str, &[&str])] = &[
        ("rows 3", &[]),
        ("echo", &["17", "text"]),
        ("copy", &[]),
        ("fail", &[]),
        ("notice", &[]),
        ("", &[]),
        ("SELECT c", &["1"]),
    ];
    let plan = Plan {
        address: server.address(),
        statements,
        probe: ("rows 1", "T[number:23:0 text:25:0] D[0|row 0] C[SELECT 1] Z[I]"),
        seed: 7,
    };
    assert_eq!(run(&plan, 1500, None), 1500);
    assert_eq!(server.stop(Duration::from_secs(5)), 0);
}
