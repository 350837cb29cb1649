//! The search for deadlocks, and for an order of the queues in which there is none.
//!
//! An edge is hard if its waiter waits for what somebody has, and soft if only an order is in his way: he stands behind somebody in the
//! queue of a lock, or was put behind somebody who is about to look whether he can have a row. A cycle with a soft edge is none: a
//! queue is put into another order, or the waiter of a row looks for himself.
//!
//! Invariants
//! 1. What changes is the order of queues, never who has something.
//! 2. An order that is taken leaves no cycle through anybody who was moved.
//!
//! Does not know: sleeping; what rows and locks are. PostgreSQL's detector finds the same orders (its `README` of the lock manager says how).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::lock_queue::Tag;
use crate::modes::LockMode;
use crate::registry::{Party, Registry};
use crate::waits::{On, State};

/// Orders that are tried before the cycle counts as one that no order resolves.
const TRIES_MAX: usize = 1000;

/// A waiter stands behind somebody in a queue; as a wish, it is to stand before him.
#[derive(Clone, Copy)]
struct Behind {
    tag: Tag,
    waiter: Party,
    blocker: Party,
}

/// Edges of a cycle that are not hard, the last one first.
#[derive(Default)]
struct Cycle {
    behind: Vec<Behind>,
    /// Who waits for a row behind somebody who does not have it.
    inherited: Vec<Party>,
}

/// Other orders of queues.
type Orders = HashMap<Tag, Vec<Party>>;

/// What a search found.
pub(crate) enum Verdict {
    /// There is no cycle, or there was one that a queue's new order has resolved: these queues.
    Free(Vec<Tag>),
    /// Hard edges alone, or no order helps.
    Deadlock,
}

struct Search<'a> {
    state: &'a State,
    registry: &'a Registry,
    orders: &'a Orders,
    start: Party,
    visited: HashSet<Party>,
    cycle: Cycle,
}

impl Search<'_> {
    /// Whether `party` waits, directly or not, for where the search began.
    fn leads_back(&mut self, mut party: Party) -> bool {
        let mut inherited = Vec::new();
        // One waits for one transaction: such a chain may be long.
        let is_found = loop {
            if !self.visited.insert(party) {
                break party == self.start;
            }
            match self.state.edges.get(&party).map(|edge| edge.on) {
                Some(On::Held { by, is_inherited }) if self.registry.is_running(by) => {
                    inherited.extend(is_inherited.then_some(party));
                    party = self.registry.party(by.slot);
                }
                Some(On::Queued { tag, mode }) => break self.queue_leads_back(party, tag, mode),
                _ => break false,
            }
        };
        if is_found {
            self.cycle.inherited.extend(inherited);
        }
        is_found
    }

    fn queue_leads_back(&mut self, party: Party, tag: Tag, mode: LockMode) -> bool {
        let hard = self.state.locks.hard(self.registry, tag, party, mode);
        if hard.into_iter().any(|holder| self.leads_back(holder)) {
            return true;
        }
        let ahead = self.state.locks.ahead(tag, party, mode, self.orders.get(&tag));
        let blocker = ahead.into_iter().find(|other| self.leads_back(*other));
        self.cycle.behind.extend(blocker.map(|blocker| Behind { tag, waiter: party, blocker }));
        blocker.is_some()
    }
}

impl State {
    /// Looks for cycles through `start`, who has just begun to wait, and resolves those that can be.
    pub(crate) fn resolve(&mut self, registry: &Registry, start: Party) -> Verdict {
        let mut tries = 0;
        let Some(orders) = self.orders_without_cycle(registry, start, &mut Vec::new(), &mut tries) else {
            return Verdict::Deadlock;
        };
        orders.iter().for_each(|(tag, order)| self.locks.reorder(*tag, order));
        Verdict::Free(orders.into_keys().collect())
    }

    /// The orders that meet the wishes, and perhaps some more, with no cycle through anybody concerned.
    fn orders_without_cycle(
        &mut self,
        registry: &Registry,
        start: Party,
        wishes: &mut Vec<Behind>,
        tries: &mut usize,
    ) -> Option<Orders> {
        *tries += 1;
        let orders = self.orders_for(wishes).filter(|_| *tries <= TRIES_MAX)?;
        let concerned = wishes.iter().flat_map(|wish| [wish.waiter, wish.blocker]).chain([start]);
        let mut soft = Vec::new();
        for party in concerned.collect::<Vec<_>>() {
            let Some(behind) = self.cycle(registry, party, &orders) else { continue };
            if behind.is_empty() {
                return None;
            }
            soft = behind;
        }
        if soft.is_empty() {
            return Some(orders);
        }
        for wish in soft {
            wishes.push(wish);
            let found = self.orders_without_cycle(registry, start, wishes, tries);
            if found.is_some() {
                return found;
            }
            wishes.pop();
        }
        None
    }

    /// The soft edges of a cycle through `start`, none if all are hard; `None` if there is no cycle. Who is in a cycle only because he was
    /// put behind somebody is woken, to look for himself.
    fn cycle(&mut self, registry: &Registry, start: Party, orders: &Orders) -> Option<Vec<Behind>> {
        loop {
            let mut search = Search {
                state: &*self,
                registry,
                orders,
                start,
                visited: HashSet::new(),
                cycle: Cycle::default(),
            };
            if !search.leads_back(start) {
                return None;
            }
            let Cycle { behind, inherited } = search.cycle;
            if inherited.is_empty() {
                return Some(behind);
            }
            inherited.into_iter().for_each(|party| self.let_look(registry, party));
        }
    }

    /// Each queue that somebody wishes to be another, in an order that is as near as can be to the present one; `None` if there is none.
    fn orders_for(&self, wishes: &[Behind]) -> Option<Orders> {
        let mut orders = Orders::new();
        for wish in wishes {
            if let Entry::Vacant(free) = orders.entry(wish.tag) {
                let of_queue: Vec<Behind> = wishes.iter().filter(|w| w.tag == wish.tag).copied().collect();
                free.insert(sorted(self.locks.queue(wish.tag), &of_queue)?);
            }
        }
        Some(orders)
    }
}

/// The queue with every waiter of a wish before its blocker, filled from the end; `None` if the wishes contradict each other.
fn sorted(mut queue: Vec<Party>, wishes: &[Behind]) -> Option<Vec<Party>> {
    let mut order = Vec::new();
    while !queue.is_empty() {
        let may_be_last =
            |party: &Party| !wishes.iter().any(|w| w.waiter == *party && queue.contains(&w.blocker));
        let last = queue.iter().rposition(may_be_last)?;
        order.push(queue.remove(last));
    }
    order.reverse();
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_sorted_as_near_to_what_it_was_as_the_wishes_allow() {
        let [a, b, c, d] = [1, 2, 3, 4].map(Party::session);
        let before = |waiter, blocker| Behind { tag: Tag::Object(1), waiter, blocker };
        let queue = vec![a, b, c, d];
        assert_eq!(sorted(queue.clone(), &[]), Some(queue.clone()));
        assert_eq!(sorted(queue.clone(), &[before(c, b)]), Some(vec![a, c, b, d]));
        assert_eq!(sorted(queue.clone(), &[before(d, a), before(d, b)]), Some(vec![d, a, b, c]));
        assert_eq!(sorted(queue, &[before(b, a), before(a, b)]), None);
    }
}
