//! Finds the text that each part of a pattern matches.
//!
//! For each part, an automaton finds the positions where its match can end. A greedy part tries the last
//! of these ends first, a non-greedy part the first one. For each end, the matcher matches the parts
//! inside this part, and then the parts that follow. PostgreSQL tries in the same order, so the first
//! match that is found is PostgreSQL's.
//!
//! Invariants
//! 1. The work is bounded by a number of steps. A byte that an automaton reads is a step, and so is a part
//!    that is tried. Failures are remembered and not tried again.
//! 2. A search can be cancelled.
//!
//! This module does not know the syntax of patterns.

use std::cell::RefCell;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};
use rustc_hash::FxHashSet;

use super::atoms::Edge;
use super::syntax::{CHECKED, Kind, Part, REFERS, SHORT, Times};
use super::{Groups, Look, SIZE_MAX, invalid_for};
use crate::error::Result;

/// The largest number of steps of a search. One step is a byte that is read, or a part that is tried.
const STEPS_MAX: u64 = 200_000_000;
/// The number of steps between two checks whether the statement is cancelled.
const STEPS_UNSEEN: u64 = 1 << 20;
/// The number of steps that a remembered failure counts, because it takes memory.
const STEPS_OF_MEMORY: u64 = 100;

/// A part that is ready to be searched for.
#[derive(Debug)]
pub struct Node {
    number: usize,
    kind: NodeKind,
    is_short: bool,
    is_checked: bool,
    refers: bool,
    groups: (usize, usize),
    automaton: Option<Automaton>,
}

#[derive(Debug)]
enum NodeKind {
    Leaf,
    Sequence(Vec<Node>),
    Alternatives(Vec<Node>),
    Repeated(Box<Node>, Times),
    Group(usize, Box<Node>),
    Reference(usize, Times),
    Look { behind: bool, negated: bool, inner: Box<Node>, longest: Option<usize> },
    Word(Edge),
}

/// A lazily made automaton that finds all ends of a match.
#[derive(Debug)]
struct Automaton {
    dfa: DFA,
    cache: RefCell<Cache>,
}

impl Automaton {
    fn new(text: &str, folds_case: bool) -> Result<Automaton> {
        let dfa = DFA::builder()
            .syntax(syntax::Config::new().case_insensitive(folds_case))
            .thompson(regex_automata::nfa::thompson::Config::new().nfa_size_limit(Some(SIZE_MAX)))
            .configure(
                DFA::config()
                    .match_kind(MatchKind::All)
                    .cache_capacity(SIZE_MAX)
                    .skip_cache_capacity_check(true),
            )
            .build(text);
        let dfa = dfa.map_err(|_| invalid_for("regular expression is too complex"))?;
        let cache = RefCell::new(dfa.create_cache());
        Ok(Automaton { dfa, cache })
    }

    /// Calls `found` with each end of a match that begins at `start`, the nearest end first, until `found`
    /// returns false. Returns the number of bytes that were read.
    fn ends(
        &self,
        text: &[u8],
        start: usize,
        limit: usize,
        mut found: impl FnMut(usize) -> bool,
    ) -> Result<u64> {
        let too_complex = || invalid_for("regular expression is too complex");
        let (dfa, cache) = (&self.dfa, &mut *self.cache.borrow_mut());
        let input = Input::new(text).range(start..limit).anchored(Anchored::Yes);
        let mut state = dfa.start_state_forward(cache, &input).map_err(|_| too_complex())?;
        for (at, byte) in text.iter().enumerate().take(limit).skip(start) {
            state = dfa.next_state(cache, state, *byte).map_err(|_| too_complex())?;
            // A match state means that a match ended before the last byte.
            if state.is_tagged() {
                if state.is_match() {
                    if !found(at) {
                        return Ok((at - start) as u64);
                    }
                } else if state.is_dead() || state.is_quit() {
                    return Ok((at - start) as u64);
                }
            }
        }
        let last = match text.get(limit) {
            Some(byte) => dfa.next_state(cache, state, *byte),
            None => dfa.next_eoi_state(cache, state),
        };
        if last.map_err(|_| too_complex())?.is_match() {
            found(limit);
        }
        Ok((limit - start) as u64)
    }
}

/// Numbers the parts and makes their automata.
pub fn node(part: &Part, folds_case: bool, number: &mut usize) -> Result<Node> {
    let own = *number;
    // Each position in a sequence has its own number.
    *number += 1;
    let mut many = |parts: &[Part]| -> Result<Vec<Node>> {
        *number += parts.len();
        parts.iter().map(|part| node(part, folds_case, number)).collect()
    };
    let kind = match &part.kind {
        Kind::Leaf => NodeKind::Leaf,
        Kind::Sequence(parts) => NodeKind::Sequence(many(parts)?),
        Kind::Alternatives(parts) => NodeKind::Alternatives(many(parts)?),
        Kind::Repeated(part, times) => NodeKind::Repeated(Box::new(node(part, folds_case, number)?), *times),
        Kind::Group(group, part) => NodeKind::Group(*group, Box::new(node(part, folds_case, number)?)),
        Kind::Reference(group, times) => NodeKind::Reference(*group, *times),
        Kind::Look(behind, negated, inner) => NodeKind::Look {
            behind: *behind,
            negated: *negated,
            longest: longest(inner, folds_case),
            inner: Box::new(node(inner, folds_case, number)?),
        },
        Kind::Word(edge) => NodeKind::Word(*edge),
    };
    let needs_none = matches!(kind, NodeKind::Reference(..) | NodeKind::Look { .. } | NodeKind::Word(_));
    let automaton = match needs_none {
        true => None,
        false => Some(Automaton::new(&part.text.automaton, folds_case)?),
    };
    Ok(Node {
        number: own,
        kind,
        is_short: part.flags & SHORT != 0,
        is_checked: part.flags & CHECKED != 0,
        refers: part.flags & REFERS != 0,
        groups: part.groups,
        automaton,
    })
}

/// Returns the largest number of bytes that a part can match, if there is a limit.
fn longest(part: &Part, folds_case: bool) -> Option<usize> {
    let config = syntax::Config::new().case_insensitive(folds_case);
    syntax::parse_with(&part.text.automaton, &config).ok()?.properties().maximum_len()
}

/// The ends of matches. Each end is a bit.
struct Ends {
    first: usize,
    bits: Vec<u64>,
    /// The number of words at the beginning that are empty.
    empty: usize,
}

impl Ends {
    fn new(first: usize) -> Ends {
        Ends { first, bits: Vec::new(), empty: 0 }
    }

    fn one(at: usize) -> Ends {
        let mut ends = Ends::new(at);
        ends.add(at);
        ends
    }

    fn add(&mut self, at: usize) {
        let (word, bit) = ((at - self.first) / 64, (at - self.first) % 64);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << bit;
    }

    /// Removes and returns the nearest or the farthest end.
    fn take(&mut self, nearest: bool) -> Option<usize> {
        let word = match nearest {
            true => self.empty + self.bits.get(self.empty..)?.iter().position(|word| *word != 0)?,
            false => self.bits.iter().rposition(|word| *word != 0)?,
        };
        let bits = self.bits[word];
        let bit = if nearest { bits.trailing_zeros() } else { 63 - bits.leading_zeros() } as usize;
        self.bits[word] &= !(1 << bit);
        if nearest {
            self.empty = word;
        } else {
            self.bits.truncate(word + 1);
        }
        Some(self.first + word * 64 + bit)
    }
}

/// A search in one text.
pub struct Search<'t> {
    text: &'t str,
    folds_case: bool,
    groups: Groups,
    steps: u64,
    seen: u64,
    look: Look<'t>,
    /// The parts, and the text ranges in which they were tried without success.
    failed: FxHashSet<(usize, usize, usize)>,
}

impl<'t> Search<'t> {
    pub fn new(text: &'t str, folds_case: bool, group_count: usize, look: Look<'t>) -> Search<'t> {
        let groups = vec![None; group_count + 1];
        Search { text, folds_case, groups, steps: 0, seen: 0, look, failed: FxHashSet::default() }
    }

    /// Counts the bytes that the search has passed.
    pub fn passed(&mut self, bytes: usize) -> Result<()> {
        self.step(bytes as u64)
    }

    fn step(&mut self, count: u64) -> Result<()> {
        self.steps += count;
        if self.steps - self.seen >= STEPS_UNSEEN {
            self.seen = self.steps;
            (self.look)()?;
            if self.steps > STEPS_MAX {
                return Err(invalid_for("regular expression is too complex"));
            }
        }
        Ok(())
    }

    /// Returns the end of the match of the whole pattern that begins at `start`. The tree is searched only if
    /// the pattern's automaton is not exact, or if groups are wanted.
    pub fn end(&mut self, top: &Node, start: usize, wants_groups: bool) -> Result<Option<usize>> {
        if top.is_checked {
            let mut ends = self.ends(top, start, self.text.len())?;
            while let Some(end) = ends.take(top.is_short) {
                self.groups.fill(None);
                if self.parts(top, start, end)? {
                    return Ok(Some(end));
                }
            }
            return Ok(None);
        }
        let mut end = None;
        if let Some(automaton) = &top.automaton {
            let found = |at| {
                end = Some(at);
                !top.is_short
            };
            let read = automaton.ends(self.text.as_bytes(), start, self.text.len(), found)?;
            self.step(read + 1)?;
        }
        let Some(end) = end else { return Ok(None) };
        self.groups.fill(None);
        Ok((!wants_groups || self.parts(top, start, end)?).then_some(end))
    }

    /// Returns the groups of the last match. The first one is the whole match.
    pub fn groups(&self, start: usize, end: usize) -> Groups {
        let mut groups = self.groups.clone();
        groups[0] = Some((start, end));
        groups
    }

    /// Returns the positions up to `limit` where a part that begins at `start` can end.
    fn ends(&mut self, node: &Node, start: usize, limit: usize) -> Result<Ends> {
        let mut ends = Ends::new(start);
        match (&node.kind, &node.automaton) {
            (NodeKind::Reference(group, times), _) => self.again(*group, *times, start, limit, &mut ends),
            (_, Some(automaton)) => {
                let found = |at| {
                    ends.add(at);
                    true
                };
                let read = automaton.ends(self.text.as_bytes(), start, limit, found)?;
                self.step(read + 1)?;
            }
            _ => return Ok(Ends::one(start)),
        }
        Ok(ends)
    }

    fn can_end(&mut self, node: &Node, start: usize, end: usize) -> Result<bool> {
        Ok(self.ends(node, start, end)?.take(false) == Some(end))
    }

    /// Adds the possible ends of a back reference: the text of the group, repeated as often as `times`
    /// allows.
    fn again(&self, group: usize, times: Times, start: usize, limit: usize, ends: &mut Ends) {
        let Some((from, to)) = self.groups[group] else { return };
        let (wanted, mut at, mut count) = (&self.text[from..to], start, 0);
        loop {
            if count >= times.least {
                ends.add(at);
            }
            let next = if times.most == Some(count) { None } else { self.same(wanted, at) };
            match next.filter(|next| *next <= limit) {
                Some(next) if next > at || count < times.least => (at, count) = (next, count + 1),
                _ => return,
            }
        }
    }

    /// If the text at `at` equals `wanted`, returns where it ends.
    fn same(&self, wanted: &str, at: usize) -> Option<usize> {
        let rest = &self.text[at..];
        if !self.folds_case {
            return rest.starts_with(wanted).then_some(at + wanted.len());
        }
        let mut chars = rest.chars();
        let folded = |c: char| c.to_lowercase().next();
        wanted.chars().all(|c| chars.next().is_some_and(|other| folded(other) == folded(c))).then_some(())?;
        Some(self.text.len() - chars.as_str().len())
    }

    fn clear(&mut self, groups: (usize, usize)) {
        if let Some(groups) = self.groups.get_mut(groups.0..groups.1) {
            groups.fill(None);
        }
    }

    /// Returns whether the parts inside a part match, if the part is from `start` to `end`. Its automaton has
    /// already found this end.
    fn parts(&mut self, node: &Node, start: usize, end: usize) -> Result<bool> {
        self.step(1)?;
        match &node.kind {
            NodeKind::Leaf | NodeKind::Reference(..) => Ok(true),
            NodeKind::Group(number, inner) => {
                let fits = self.parts(inner, start, end)?;
                self.groups[*number] = fits.then_some((start, end));
                Ok(fits)
            }
            NodeKind::Sequence(nodes) => self.sequence(node, nodes, 0, start, end),
            NodeKind::Alternatives(nodes) => {
                for branch in nodes {
                    self.clear(node.groups);
                    if self.can_end(branch, start, end)? && self.parts(branch, start, end)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            NodeKind::Repeated(inner, times) => self.repeated(inner, *times, start, end),
            NodeKind::Look { behind, negated, inner, longest } => {
                let sees = match behind {
                    false => self.sees_ahead(inner, start)?,
                    true => self.sees_behind(inner, *longest, start)?,
                };
                Ok(sees != *negated)
            }
            NodeKind::Word(edge) => Ok(self.is_edge(*edge, start)),
        }
    }

    /// Returns whether the parts of a sequence match, from this position in the sequence on.
    fn sequence(
        &mut self,
        whole: &Node,
        nodes: &[Node],
        place: usize,
        start: usize,
        end: usize,
    ) -> Result<bool> {
        let Some(node) = nodes.get(place) else { return Ok(start == end) };
        if place + 1 == nodes.len() {
            return Ok(self.can_end(node, start, end)? && self.parts(node, start, end)?);
        }
        let key = (whole.number + 1 + place, start, end);
        if !whole.refers && self.failed.contains(&key) {
            return Ok(false);
        }
        let mut ends = self.ends(node, start, end)?;
        while let Some(middle) = ends.take(node.is_short) {
            self.clear((node.groups.0, whole.groups.1));
            if self.parts(node, start, middle)? && self.sequence(whole, nodes, place + 1, middle, end)? {
                return Ok(true);
            }
        }
        if !whole.refers {
            self.step(STEPS_OF_MEMORY)?;
            self.failed.insert(key);
        }
        Ok(false)
    }

    /// Returns whether repetitions of a part match one after the other.
    fn repeated(&mut self, inner: &Node, times: Times, start: usize, end: usize) -> Result<bool> {
        if start == end && times.least == 0 {
            return Ok(true);
        }
        // For each repetition: where it begins, and where else it may end.
        let mut turns = vec![(start, self.ends(inner, start, end)?)];
        while let Some((from, ends)) = turns.last_mut() {
            let from = *from;
            let Some(to) = ends.take(inner.is_short) else {
                turns.pop();
                continue;
            };
            let count = u32::try_from(turns.len()).unwrap_or(u32::MAX);
            let is_enough = count >= times.least;
            // A repetition that matches the empty text is only needed to reach the least number of
            // repetitions.
            if (to == end && !is_enough) || (to == from && to != end && is_enough) {
                continue;
            }
            self.clear(inner.groups);
            if !self.parts(inner, from, to)? {
                continue;
            }
            if to == end {
                return Ok(true);
            }
            if times.most.is_none_or(|most| count < most) {
                turns.push((to, self.ends(inner, to, end)?));
            }
        }
        Ok(false)
    }

    fn sees_ahead(&mut self, inner: &Node, at: usize) -> Result<bool> {
        let mut ends = self.ends(inner, at, self.text.len())?;
        while let Some(end) = ends.take(true) {
            if self.parts(inner, at, end)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn sees_behind(&mut self, inner: &Node, longest: Option<usize>, at: usize) -> Result<bool> {
        let far = longest.unwrap_or(at);
        for start in (at.saturating_sub(far)..=at).rev().filter(|start| self.text.is_char_boundary(*start)) {
            if self.can_end(inner, start, at)? && self.parts(inner, start, at)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_edge(&self, edge: Edge, at: usize) -> bool {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let before = self.text[..at].chars().next_back().is_some_and(is_word);
        let after = self.text[at..].chars().next().is_some_and(is_word);
        match edge {
            Edge::Start => !before && after,
            Edge::End => before && !after,
            Edge::Either => before != after,
            Edge::Neither => before == after,
        }
    }
}
