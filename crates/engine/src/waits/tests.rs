//! Tests of waiters one by one: the state of the queues and the graph after each step.

use std::thread;

use super::*;
use crate::lock_queue::Holder;

const FOREVER: Patience<'static> =
    Patience { timeout: None, deadline: None, cancel: None, log: None, notice: None };

fn finish(registry: &Registry, waits: &Waits, owner: Owner) {
    waits.unlock_all(registry, owner, 0, |_, _| false);
    registry.end(owner);
    waits.wake(registry, owner);
    registry.vacate(owner);
}

fn held(by: Owner, want: u64) -> HeldRow {
    HeldRow { by, released: 0, want, ticket: 0 }
}

impl Waits {
    fn edge_count(&self) -> usize {
        self.look(|state| state.edges.len())
    }

    /// Adds a waiter as another thread would. It keeps waiting.
    fn begin(&self, registry: &Registry, me: Owner, held: HeldRow) -> Result<bool> {
        self.add_edge(registry, me, held)
    }

    fn ask(&self, registry: &Registry, waiter: Owner, table: u32, mode: LockMode) -> Option<Asked> {
        let (party, holder) = (registry.party(waiter.slot), Holder::Transaction(waiter));
        let request = Request { party, holder, waiter, mode };
        let wish = Wish { tag: Tag::Object(table), strong: None, request, is_noted: false };
        self.change(registry, |state| state.ask(registry, wish, true))
    }

    fn is_waiting(&self, registry: &Registry, me: Owner) -> bool {
        self.look(|state| state.edges.contains_key(&registry.party(me.slot)))
    }
}

#[test]
fn a_wait_ends_with_the_transaction_and_heirs_follow_one_by_one() {
    let (registry, waits) = (Arc::new(Registry::new()), Arc::new(Waits::default()));
    let holder = registry.claim();
    let sleepers: Vec<_> = (0..4)
        .map(|_| {
            let (registry, waits) = (Arc::clone(&registry), Arc::clone(&waits));
            thread::spawn(move || {
                let me = registry.claim();
                waits.wait(&registry, me, held(holder, 7), FOREVER).unwrap();
                finish(&registry, &waits, me);
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(20));
    finish(&registry, &waits, holder);
    for sleeper in sleepers {
        sleeper.join().unwrap();
    }
    assert_eq!(waits.edge_count(), 0);
}

#[test]
fn the_edge_that_closes_a_cycle_is_refused() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let (a, b) = (registry.claim(), registry.claim());
    assert!(waits.begin(&registry, a, held(b, 1)).unwrap());
    assert!(matches!(waits.wait(&registry, b, held(a, 2), FOREVER), Err(Error::Deadlock)));
    finish(&registry, &waits, b);
    assert!(!waits.is_waiting(&registry, a));
}

/// In an earlier version, a transaction that waited for a row slept until the holder's end, if ROLLBACK TO
/// freed the row at that moment.
#[test]
fn what_was_given_up_since_the_look_is_not_waited_for() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let (holder, waiter) = (registry.claim(), registry.claim());
    let released = waits.releases();
    waits.release(&registry, holder);
    waits.wait(&registry, waiter, HeldRow { released, ..held(holder, 1) }, FOREVER).unwrap();
    assert_eq!(registry.place(holder.slot).queued.load(Ordering::SeqCst), 0);
}

/// The first waiter is woken when the holder ends. If it finds that a waiter after it shares the row, that
/// waiter is woken, too, and checks the row.
#[test]
fn who_was_put_behind_somebody_he_keeps_waiting_looks_for_himself() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let [holder, first, sharer, last] = [(); 4].map(|()| registry.claim());
    for (waiter, ticket) in [(first, 1), (sharer, 2), (last, 3)] {
        assert!(waits.begin(&registry, waiter, HeldRow { ticket, ..held(holder, 7) }).unwrap());
    }
    finish(&registry, &waits, holder);
    assert!(!waits.is_waiting(&registry, first) && waits.is_waiting(&registry, sharer));
    assert!(waits.begin(&registry, first, HeldRow { ticket: 1, ..held(sharer, 7) }).unwrap());
    assert!(!waits.is_waiting(&registry, sharer), "it waits for who waits for it");
    assert!(*registry.place(sharer.slot).woken.lock());
    // The others have moved together with the first one, and stay after it.
    let line = || registry.place(sharer.slot).queue.lock().iter().map(|w| w.slot).collect::<Vec<_>>();
    assert_eq!(line(), [first.slot, last.slot]);
    finish(&registry, &waits, sharer);
    assert!(!waits.is_waiting(&registry, first) && waits.is_waiting(&registry, last));
    assert_eq!(waits.deadlock_count.load(Ordering::Relaxed), 0);
}

/// Two transactions that share a row and both want to change it are a deadlock.
#[test]
fn who_looked_and_waits_is_in_a_cycle() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let [a, b] = [(); 2].map(|()| registry.claim());
    assert!(waits.begin(&registry, a, held(b, 7)).unwrap());
    assert!(matches!(waits.begin(&registry, b, held(a, 7)), Err(Error::Deadlock)));
    assert!(waits.is_waiting(&registry, a));
}

#[test]
fn a_cycle_through_somebody_who_was_put_behind_is_found_once_he_has_looked() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let [holder, heir, waiter] = [(); 3].map(|()| registry.claim());
    assert!(waits.begin(&registry, heir, held(holder, 7)).unwrap());
    assert!(waits.begin(&registry, waiter, held(holder, 7)).unwrap());
    finish(&registry, &waits, holder);
    // The heir has locked the row, and waits for another row of the transaction that waits for the first row.
    assert!(waits.begin(&registry, heir, held(waiter, 8)).unwrap());
    assert!(!waits.is_waiting(&registry, waiter));
    assert!(matches!(waits.begin(&registry, waiter, held(heir, 7)), Err(Error::Deadlock)));
}

/// Four parties, of which two wait after others. The order of one queue is changed.
#[test]
fn a_cycle_of_queues_is_resolved_by_another_order() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let [d1, d2, e1, e2] = [(); 4].map(|()| registry.claim());
    let (weak, alone) = (LockMode::AccessShare, LockMode::AccessExclusive);
    let ask = |me, table, mode| waits.ask(&registry, me, table, mode);
    assert_eq!(ask(d1, 1, weak), Some(Asked::Granted));
    assert_eq!(ask(d2, 2, weak), Some(Asked::Granted));
    assert_eq!(ask(e1, 1, alone), Some(Asked::Queued));
    assert_eq!(ask(e2, 2, alone), Some(Asked::Queued));
    assert_eq!(ask(d1, 2, weak), Some(Asked::Queued));
    assert_eq!(ask(d2, 1, weak), Some(Asked::Queued));
    assert!(!waits.is_waiting(&registry, d1), "it goes before the one that wants the table alone");
    finish(&registry, &waits, d1);
    assert!(!waits.is_waiting(&registry, e1) && waits.is_waiting(&registry, d2));
    finish(&registry, &waits, e1);
    finish(&registry, &waits, d2);
    assert_eq!(waits.edge_count(), 0);
}

#[test]
fn who_closes_the_cycle_may_go_before_several_at_once() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let [s1, s2, s3, s4] = [(); 4].map(|()| registry.claim());
    let ask = |me, table, mode| waits.ask(&registry, me, table, mode);
    assert_eq!(ask(s1, 1, LockMode::ShareUpdateExclusive), Some(Asked::Granted));
    assert_eq!(ask(s2, 2, LockMode::AccessShare), Some(Asked::Granted));
    assert_eq!(ask(s2, 1, LockMode::ShareUpdateExclusive), Some(Asked::Queued));
    assert_eq!(ask(s3, 2, LockMode::AccessExclusive), Some(Asked::Queued));
    assert_eq!(ask(s4, 2, LockMode::AccessExclusive), Some(Asked::Queued));
    assert_eq!(ask(s1, 2, LockMode::ShareUpdateExclusive), Some(Asked::Granted));
    assert_eq!(waits.edge_count(), 3);
}

#[test]
fn hard_edges_alone_are_a_deadlock_and_leave_nothing_behind() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let [a, b] = [(); 2].map(|()| registry.claim());
    let ask = |me, table| waits.ask(&registry, me, table, LockMode::AccessExclusive);
    assert_eq!((ask(a, 1), ask(b, 2)), (Some(Asked::Granted), Some(Asked::Granted)));
    assert_eq!(ask(a, 2), Some(Asked::Queued));
    assert_eq!(ask(b, 1), None);
    finish(&registry, &waits, b);
    assert!(!waits.is_waiting(&registry, a));
    finish(&registry, &waits, a);
    waits.look(|state| state.locks.each(|_, grant| panic!("{grant:?}"), |_, request| panic!("{request:?}")));
}

/// A cycle may go through any transaction that uses a table.
#[test]
fn a_cycle_through_any_user_of_a_table_is_found() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let [idle, user, excluder] = [(); 3].map(|()| registry.claim());
    let (weak, alone) = (LockMode::AccessShare, LockMode::AccessExclusive);
    registry.place(idle.slot).note_table(9, weak.bit());
    registry.place(user.slot).note_table(9, weak.bit());
    assert!(waits.begin(&registry, user, held(excluder, 1)).unwrap());
    assert_eq!(waits.ask(&registry, excluder, 9, alone), None);
    waits.change(&registry, |state| state.leave(&registry, user));
    assert_eq!(waits.ask(&registry, excluder, 9, alone), Some(Asked::Queued));
    assert!(matches!(waits.begin(&registry, user, held(excluder, 1)), Err(Error::Deadlock)));
    // Each of them wakes the waiters when it removes its record.
    finish(&registry, &waits, idle);
    assert!(waits.is_waiting(&registry, excluder));
    finish(&registry, &waits, user);
    assert_eq!(waits.edge_count(), 0);
}

/// A transaction that has just recorded a table which another one wants exclusively must remove its record,
/// and wake the waiter.
#[test]
fn a_note_that_is_taken_back_is_not_waited_for() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let [reader, excluder] = [(); 2].map(|()| registry.claim());
    let weak = LockMode::AccessShare;
    registry.place(reader.slot).note_table(9, weak.bit());
    assert_eq!(waits.ask(&registry, excluder, 9, LockMode::AccessExclusive), Some(Asked::Queued));
    let (party, holder) = (registry.party(reader.slot), Holder::Transaction(reader));
    let request = Request { party, holder, waiter: reader, mode: weak };
    let wish = Wish { tag: Tag::Object(9), strong: None, request, is_noted: true };
    assert_eq!(waits.change(&registry, |state| state.ask(&registry, wish, true)), Some(Asked::Queued));
    assert!(!waits.is_waiting(&registry, excluder));
    finish(&registry, &waits, excluder);
    assert!(!waits.is_waiting(&registry, reader));
    assert_eq!(waits.deadlock_count.load(Ordering::Relaxed), 0);
}

#[test]
fn time_out_and_cancel_end_a_wait() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let (a, b) = (registry.claim(), registry.claim());
    let short = Patience {
        timeout: Some(Duration::from_millis(5)),
        deadline: None,
        cancel: None,
        log: None,
        notice: None,
    };
    assert!(matches!(waits.wait(&registry, a, held(b, 1), short), Err(Error::LockTimeout)));
    let flag = AtomicBool::new(true);
    let cancelled = Patience { timeout: None, deadline: None, cancel: Some(&flag), log: None, notice: None };
    assert!(matches!(waits.wait(&registry, a, held(b, 1), cancelled), Err(Error::Cancelled)));
    assert_eq!(registry.place(b.slot).queued.load(Ordering::SeqCst), 0);
}

/// A session's transactions and its session-level locks are one party.
#[test]
fn a_session_is_not_in_its_own_way() {
    let (registry, waits) = (Registry::new(), Waits::default());
    let session = waits.new_party();
    let (a, b) = (registry.claim(), registry.claim());
    registry.place(a.slot).set_party(session);
    assert_eq!(waits.ask(&registry, a, 1, LockMode::Exclusive), Some(Asked::Granted));
    registry.place(b.slot).set_party(session);
    assert_eq!(waits.ask(&registry, b, 1, LockMode::Share), Some(Asked::Granted));
    // A transaction that will be undone in the background does not belong to its session any more.
    waits.disown(&registry, a);
    assert_eq!(waits.ask(&registry, b, 1, LockMode::Exclusive), Some(Asked::Queued));
}
