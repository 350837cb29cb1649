//! Checks a whole tree.
//!
//! The check reads all pages of the tree. It checks each node (`node::check`), and the kind, owner and level
//! of each page. The fences of a node must equal the separators in its parent. Right siblings must be linked,
//! and every page must have one parent. The caller can compare the pages that were found with the allocated
//! pages.
//!
//! This module does not know rows. The caller checks each leaf entry itself.

use std::collections::{BTreeMap, HashMap};

use varve_pager::{Access, PageId, Pager, PagerError, SpaceId};

use super::{Tree, TreeError, TreeResult};
use crate::node::{self, EntryRef, NodeRef};

/// The most damages that are stored. More are only counted.
const DAMAGES_MAX: usize = 100;

/// Collects the pages to which structures refer, and the damages.
#[derive(Debug, Default)]
pub struct Checker {
    claimed: HashMap<PageId, u32>,
    damages: Vec<String>,
    damage_count: u64,
}

impl Checker {
    /// Returns a checker without pages and damages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a structure of segment `owner` refers to a page. If another structure refers to it,
    /// records a damage and returns false.
    pub fn claim(&mut self, page: PageId, owner: u32) -> bool {
        let before = self.claimed.insert(page, owner);
        if let Some(other) = before {
            self.damage(format!("page {page} is used twice: by segment {owner} and by segment {other}"));
        }
        before.is_none()
    }

    /// Compares the pages that structures of segment `owner` use with the pages that are allocated to it.
    /// They must be the same.
    pub fn compare_with_allocation(&mut self, pager: &Pager, space: SpaceId, owner: u32) -> TreeResult<()> {
        let is_of_owner = |(page, by): &(&PageId, &u32)| **by == owner && page.space() == space;
        let claimed: Vec<PageId> = self.claimed.iter().filter(is_of_owner).map(|(page, _)| *page).collect();
        let allocated = pager.pages_of_owner(space, owner)?;
        self.compare(owner, &allocated, claimed);
        Ok(())
    }

    /// Does the same as `compare_with_allocation` for all segments of a space, in the order of their numbers.
    /// Reads each page once.
    pub fn compare_all_with_allocation(&mut self, pager: &Pager, space: SpaceId) -> TreeResult<()> {
        let mut claimed: BTreeMap<u32, Vec<PageId>> =
            pager.owners(space)?.into_keys().map(|owner| (owner, Vec::new())).collect();
        for (page, owner) in self.claimed.iter().filter(|(page, owner)| page.space() == space && **owner != 0)
        {
            claimed.entry(*owner).or_default().push(*page);
        }
        for (owner, claimed) in claimed {
            let allocated = pager.pages_of_owner(space, owner)?;
            self.compare(owner, &allocated, claimed);
        }
        Ok(())
    }

    /// Compares the pages of one segment. `allocated` is in page order.
    fn compare(&mut self, owner: u32, allocated: &[PageId], mut claimed: Vec<PageId>) {
        claimed.sort_unstable();
        for page in allocated.iter().filter(|page| claimed.binary_search(page).is_err()) {
            self.damage(format!("page {page} is allocated to segment {owner}, but nothing refers to it"));
        }
        for page in claimed.iter().filter(|page| allocated.binary_search(page).is_err()) {
            self.damage(format!("page {page} is used by segment {owner}, but not allocated to it"));
        }
    }

    /// Records a damage.
    pub fn damage(&mut self, what: String) {
        self.damage_count += 1;
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(what);
        }
    }

    /// Returns the damages, in the order in which they were found.
    pub fn damages(&self) -> &[String] {
        &self.damages
    }

    /// Returns the number of damages.
    pub const fn damage_count(&self) -> u64 {
        self.damage_count
    }

    /// Returns the pages to which structures refer, with the segment of the structure.
    pub const fn claimed(&self) -> &HashMap<PageId, u32> {
        &self.claimed
    }
}

/// The properties of a child that follow from its parent.
struct Expected {
    page: PageId,
    level: Option<u8>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Tree {
    /// Reads the whole tree. Damages are reported to `checker`. The result is an error only if the pager has
    /// stopped. `visit` is called with every entry of every undamaged leaf, in key order. The tree must not
    /// change meanwhile. All leaves must have the same widths (`Frame::widths`).
    pub fn check(
        &self,
        pager: &Pager,
        checker: &mut Checker,
        visit: &mut dyn FnMut(&mut Checker, EntryRef<'_>),
    ) -> TreeResult<()> {
        self.check_with(pager, checker, None, visit)
    }

    /// Does the same as `check`. All leaves must have the widths `widths`, which are those of the table's
    /// columns.
    pub fn check_with_widths(
        &self,
        pager: &Pager,
        checker: &mut Checker,
        widths: &[u8],
        visit: &mut dyn FnMut(&mut Checker, EntryRef<'_>),
    ) -> TreeResult<()> {
        self.check_with(pager, checker, Some(widths.to_vec()), visit)
    }

    fn check_with(
        &self,
        pager: &Pager,
        checker: &mut Checker,
        widths: Option<Vec<u8>>,
        visit: &mut dyn FnMut(&mut Checker, EntryRef<'_>),
    ) -> TreeResult<()> {
        let _alone = self.structure.lock();
        let root = Expected { page: self.root, level: None, lower: Vec::new(), upper: None };
        let mut walk = Walk { tree: self, pager, checker, visit, right_of: Vec::new(), widths };
        walk.node(root)?;
        let ends = std::mem::take(&mut walk.right_of);
        for (level, end) in ends.into_iter().enumerate() {
            if let Some((page, right)) = end.filter(|(_, right)| *right != 0) {
                walk.checker
                    .damage(format!("page {page}, the last of level {level}, has a right sibling {right}"));
            }
        }
        Ok(())
    }
}

struct Walk<'a, 'v> {
    tree: &'a Tree,
    pager: &'a Pager,
    checker: &'a mut Checker,
    visit: &'v mut dyn FnMut(&mut Checker, EntryRef<'_>),
    /// For each level: the node that was read last, and its right sibling.
    right_of: Vec<Option<(PageId, u32)>>,
    /// The widths that each leaf must have. If the caller does not know them, they are those of the first
    /// leaf.
    widths: Option<Vec<u8>>,
}

impl Walk<'_, '_> {
    fn node(&mut self, expected: Expected) -> TreeResult<()> {
        let id = expected.page;
        if !self.checker.claim(id, self.tree.owner) {
            return Ok(());
        }
        let page = match self.pager.fix_s(id, Access::Sequential) {
            Ok(page) => page.to_vec(),
            Err(error @ (PagerError::DamagedPage { .. } | PagerError::NoSuchPage { .. })) => {
                self.checker.damage(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(what) = self.wrong(&page, &expected) {
            self.checker.damage(format!("page {id} of segment {}: {what}", self.tree.owner));
            return Ok(());
        }
        let node = NodeRef::new(&page);
        self.check_sibling(node, id);
        match node.is_leaf() {
            true => (0..node.len()).for_each(|at| (self.visit)(self.checker, node.entry(at))),
            false => self.children(node)?,
        }
        Ok(())
    }

    fn wrong(&mut self, page: &[u8], expected: &Expected) -> Option<String> {
        if let Err(TreeError::Damaged { what, .. }) = self.tree.node_level(page, expected.page) {
            return Some(what);
        }
        if let Some(what) = node::check::damage(page) {
            return Some(what);
        }
        let node = NodeRef::new(page);
        if expected.level.is_some_and(|level| level != node.level()) {
            return Some(format!("it has level {}", node.level()));
        }
        if node.is_stamped() != self.tree.is_stamped() {
            return Some("it is of the other kind of tree".into());
        }
        let same = node.lower_fence() == expected.lower && node.upper_fence() == expected.upper.as_deref();
        if !same {
            return Some("its fences are not its parent's separators".into());
        }
        self.wrong_widths(node)
    }

    fn wrong_widths(&mut self, node: NodeRef<'_>) -> Option<String> {
        if !node.is_leaf() {
            return None;
        }
        let expected = self.widths.get_or_insert_with(|| node.widths().to_vec());
        let (found, expected) = (node.widths(), expected.as_slice());
        (found != expected)
            .then(|| format!("its columns have the widths {found:?}, those of the table have {expected:?}"))
    }

    fn check_sibling(&mut self, node: NodeRef<'_>, id: PageId) {
        let level = usize::from(node.level());
        if self.right_of.len() <= level {
            self.right_of.resize(level + 1, None);
        }
        if let Some((left, right)) = self.right_of[level].replace((id, node.right()))
            && right != id.no().0
        {
            self.checker.damage(format!("page {left} has the right sibling {right}, but page {id} follows"));
        }
    }

    fn children(&mut self, node: NodeRef<'_>) -> TreeResult<()> {
        for index in 0..=node.len() {
            let lower = if index == 0 { node.lower_fence().to_vec() } else { node.key(index - 1) };
            let upper = match index == node.len() {
                true => node.upper_fence().map(<[u8]>::to_vec),
                false => Some(node.key(index)),
            };
            let page = self.tree.page_id(node.child(index));
            self.node(Expected { page, level: Some(node.level() - 1), lower, upper })?;
        }
        Ok(())
    }
}
