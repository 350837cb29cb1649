//! A failed flush of the log ends every wait: no thread waits for a transaction that will never end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::database::*;
use varve_device::{ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, Space, When};
use varve_engine::{Database, Options};
use varve_pager::PagerConfig;

/// Earlier, a transaction that waited for a row of another transaction slept for ever if the commit of the
/// other one could not be flushed.
#[test]
fn who_waits_for_a_row_is_told_when_the_flush_fails() {
    let directory = MemoryDirectory::new();
    let device = Faulty::wrap(directory.clone());
    let pager = PagerConfig { log: device.clone(), ..PagerConfig::new(directory) };
    let database = Database::open(Options::new(pager)).unwrap();
    let def = create(&database, "t");
    load(&database, &def, (0..10).map(|i| (i, i)));
    let mut owner = begin(&database, RC);
    update(&mut owner, &def, 1, |v| v + 1).unwrap();
    thread::scope(|scope| {
        let (sender, told) = mpsc::channel();
        let (database, def) = (&database, &def);
        scope.spawn(move || {
            let mut waiter = begin(database, RC);
            let outcome = update(&mut waiter, def, 1, |v| v + 1).and_then(|_| waiter.commit());
            sender.send(outcome).unwrap();
        });
        assert!(told.recv_timeout(Duration::from_millis(200)).is_err(), "the row is free");
        let fault = Fault::Fails(ErrorKind::Io(5));
        for operation in [Operation::Flush, Operation::Write] {
            let (operation, space) = (Some(operation), Some(Space::Log));
            device.arm(Rule { operation, space, when: When::From(1), fault: fault.clone() });
        }
        assert!(owner.commit().is_err());
        let outcome = told.recv_timeout(Duration::from_secs(30)).expect("the waiter sleeps for ever");
        assert_eq!(state(outcome), "58030");
    });
}
