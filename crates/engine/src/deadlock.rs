//! Deadlock detection, and the search for an order of the lock queues that avoids a deadlock.
//!
//! A hard edge leads from a waiter to a holder. A soft edge leads from a waiter to another waiter before it
//! in a queue. A cycle of hard edges is a deadlock. A cycle with a soft edge can be resolved in two ways.
//! Either a queue gets another order, or the waiter for a row is woken and checks the row again.
//!
//! Invariants
//! 1. Only the order of queues is changed, never the holders of a lock.
//! 2. A chosen order leaves no cycle through any transaction that was moved.
//!
//! This module does not know how threads sleep or what is locked. PostgreSQL's detector finds the same orders
//! (`README` of its lock manager).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::lock_queue::Tag;
use crate::modes::{LockMode, Modes};
use crate::registry::{Party, Registry};
use crate::waits::{On, State};

/// After this many orders were tried, the cycle counts as a deadlock.
const TRIES_MAX: usize = 1000;

/// A soft edge of a cycle: `waiter` is after `blocker` in a queue. In a list of *wishes*, it says the
/// opposite: in the new order of the queue, `waiter` must be before `blocker`.
#[derive(Clone, Copy)]
struct Behind {
    tag: Tag,
    waiter: Party,
    blocker: Party,
}

/// The edges of a cycle that are not hard, the last one first.
#[derive(Default)]
struct Cycle {
    behind: Vec<Behind>,
    /// Parties that wait for a row after another waiter, which does not have the row either.
    inherited: Vec<Party>,
}

/// Other orders of queues.
type Orders = HashMap<Tag, Vec<Party>>;

/// The result of a search.
pub(crate) enum Verdict {
    /// There is no cycle now. The queues in the list got a new order, which has resolved a cycle.
    Free(Vec<Tag>),
    /// There is a cycle of hard edges, or one that no order resolves.
    Deadlock,
}

/// Searches the graph depth first, and visits each party once. The search is a loop and not a recursion,
/// because a chain may be as long as the number of sessions.
struct Search<'a> {
    state: &'a State,
    registry: &'a Registry,
    orders: &'a Orders,
    start: Party,
    visited: HashSet<Party>,
    queues: HashMap<Tag, Queue>,
    cycle: Cycle,
}

/// A queue in the order that is tried.
struct Queue {
    order: Vec<(Party, LockMode)>,
    places: HashMap<Party, usize>,
    /// For each mode: the position up to which the parties that it waits for were visited.
    seen: [usize; 9],
    /// The modes whose holders were visited.
    asked: Modes,
}

/// A party on the path that waits in a queue.
struct Step {
    /// The parties that lead to this one by inherited edges.
    inherited: Vec<Party>,
    party: Party,
    tag: Tag,
    mode: LockMode,
    /// The holders that it waits for and that were not visited yet.
    holders: std::vec::IntoIter<Party>,
    /// The positions in the queue that must still be visited.
    ahead: Range<usize>,
    /// The next party on the path, if the edge to it comes only from the queue's order.
    blocker: Option<Party>,
}

/// Where the edges from a party lead.
enum Way {
    /// Back to the start. The path has these inherited edges.
    Back(Vec<Party>),
    Queued(Step),
    Out,
}

impl Search<'_> {
    /// Returns whether the start waits for itself, directly or through other parties.
    fn leads_back(&mut self) -> bool {
        let mut path: Vec<Step> = Vec::new();
        let mut next = Some(self.start);
        loop {
            match next.map_or(Way::Out, |party| self.follow(party)) {
                Way::Back(inherited) => {
                    self.found(inherited, path);
                    return true;
                }
                Way::Queued(step) => path.push(step),
                Way::Out => {}
            }
            next = loop {
                let Some(step) = path.last_mut() else { return false };
                if let Some(party) = step.next(&self.queues) {
                    break Some(party);
                }
                path.pop();
            };
        }
    }

    fn found(&mut self, inherited: Vec<Party>, path: Vec<Step>) {
        self.cycle.inherited.extend(inherited);
        for step in path.into_iter().rev() {
            let Step { tag, party: waiter, .. } = step;
            self.cycle.behind.extend(step.blocker.map(|blocker| Behind { tag, waiter, blocker }));
            self.cycle.inherited.extend(step.inherited);
        }
    }

    /// Follows waits for transactions up to a queue. Each party waits for one transaction at most.
    fn follow(&mut self, mut party: Party) -> Way {
        let mut inherited = Vec::new();
        loop {
            if !self.visited.insert(party) {
                return if party == self.start { Way::Back(inherited) } else { Way::Out };
            }
            match self.state.edges.get(&party).map(|edge| edge.on) {
                Some(On::Held { by, is_inherited }) if self.registry.is_running(by) => {
                    inherited.extend(is_inherited.then_some(party));
                    party = self.registry.party(by.slot);
                }
                Some(On::Queued { tag, mode }) => return Way::Queued(self.step(inherited, party, tag, mode)),
                _ => return Way::Out,
            }
        }
    }

    fn step(&mut self, inherited: Vec<Party>, party: Party, tag: Tag, mode: LockMode) -> Step {
        let (state, order) = (self.state, self.orders.get(&tag));
        let queue = self.queues.entry(tag).or_insert_with(|| Queue::new(state.locks.queued(tag), order));
        // The start's own locks block other parties but not itself, so the start computes its holders anew.
        let is_known = party != self.start && queue.asked & mode.bit() != 0;
        let holders = match is_known {
            true => Vec::new(),
            false => state.locks.hard(self.registry, tag, party, mode),
        };
        if party != self.start {
            queue.asked |= mode.bit();
        }
        let end = queue.places.get(&party).copied().unwrap_or(0);
        let seen = &mut queue.seen[mode as usize];
        let ahead = *seen..end;
        *seen = end.max(*seen);
        Step { inherited, party, tag, mode, holders: holders.into_iter(), ahead, blocker: None }
    }
}

impl Queue {
    fn new(queued: Vec<(Party, LockMode)>, order: Option<&Vec<Party>>) -> Queue {
        let modes: HashMap<Party, LockMode> = queued.iter().copied().collect();
        let order = match order {
            Some(order) => order.iter().filter_map(|party| Some((*party, *modes.get(party)?))).collect(),
            None => queued,
        };
        let places = order.iter().enumerate().map(|(at, (party, _))| (*party, at)).collect();
        Queue { order, places, seen: [0; 9], asked: 0 }
    }
}

impl Step {
    /// Returns the next party that this one waits for.
    fn next(&mut self, queues: &HashMap<Tag, Queue>) -> Option<Party> {
        if let Some(holder) = self.holders.next() {
            return Some(holder);
        }
        let order = queues.get(&self.tag).map_or(&[][..], |queue| &queue.order);
        let in_the_way = |at: &usize| order[*at].1.bit() & self.mode.excludes() != 0;
        self.blocker = self.ahead.find(in_the_way).map(|at| order[at].0);
        self.blocker
    }
}

impl State {
    /// Searches for cycles through `start`, which has just begun to wait. If new orders of the queues resolve
    /// all of them, it changes the queues, and returns those that it changed. Otherwise it leaves the queues
    /// as they are, and returns `Deadlock`.
    pub(crate) fn resolve(&mut self, registry: &Registry, start: Party) -> Verdict {
        let mut tries = 0;
        let Some(orders) = self.orders_without_cycle(registry, start, &mut Vec::new(), &mut tries) else {
            return Verdict::Deadlock;
        };
        orders.iter().for_each(|(tag, order)| self.locks.reorder(*tag, order));
        Verdict::Free(orders.into_keys().collect())
    }

    /// Returns orders of queues that fulfil the wishes and leave no cycle through `start` or a party of a
    /// wish. If necessary, the function adds wishes. Returns `None` if it finds no such orders.
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

    /// Returns the soft edges of a cycle through `start`; the list is empty if all edges are hard. Returns
    /// `None` if there is no cycle. Waiters that wait only after another waiter for a row are woken, and then
    /// check the row themselves.
    fn cycle(&mut self, registry: &Registry, start: Party, orders: &Orders) -> Option<Vec<Behind>> {
        loop {
            let mut search = Search {
                state: &*self,
                registry,
                orders,
                start,
                visited: HashSet::new(),
                queues: HashMap::new(),
                cycle: Cycle::default(),
            };
            if !search.leads_back() {
                return None;
            }
            let Cycle { behind, inherited } = search.cycle;
            if inherited.is_empty() {
                return Some(behind);
            }
            inherited.into_iter().for_each(|party| self.let_look(registry, party));
        }
    }

    /// Returns a new order for each queue that a wish concerns. The order fulfils the wishes, and is as near
    /// to the present order as possible. Returns `None` if there is no such order.
    fn orders_for(&self, wishes: &[Behind]) -> Option<Orders> {
        let mut orders = Orders::new();
        for wish in wishes {
            if let Entry::Vacant(free) = orders.entry(wish.tag) {
                let of_queue: Vec<Behind> = wishes.iter().filter(|w| w.tag == wish.tag).copied().collect();
                let queue = self.locks.queued(wish.tag).into_iter().map(|(party, _)| party).collect();
                free.insert(sorted(queue, &of_queue)?);
            }
        }
        Some(orders)
    }
}

/// Sorts the queue so that every waiter of a wish is before its blocker. The new order is filled from its
/// end. Returns `None` if the wishes contradict each other.
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
