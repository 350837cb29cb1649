//! Finds circles of imports in a crate. A circle is a set of files that import each other, directly or
//! through other files of the set.
//!
//! A folder's own file (`mod.rs`) and the files of the folder are one module: `mod.rs` declares a type, and
//! the other files implement parts of it. So imports between `mod.rs` and these files make no circle. Imports
//! between two files of the folder count.

use crate::imports::CrateImports;
use std::collections::{BTreeMap, BTreeSet};

/// The edges of a graph, by node.
pub type Edges = BTreeMap<usize, BTreeSet<usize>>;

/// Returns the circles of a crate's files, each as positions in [`CrateImports::files`], the largest first.
pub fn of_files(imports: &CrateImports) -> Vec<Vec<usize>> {
    let mut edges = Edges::new();
    for import in &imports.imports {
        let modules = (imports.files.get(import.from), imports.files.get(import.to));
        let (Some(user), Some(used)) = modules else { continue };
        if user.module.starts_with(&used.module) || used.module.starts_with(&user.module) {
            continue;
        }
        edges.entry(import.from).or_default().insert(import.to);
    }
    of_graph(&edges)
}

/// Returns the strongly connected components of more than one node, the largest first.
pub fn of_graph(edges: &Edges) -> Vec<Vec<usize>> {
    let mut search = Search::on(edges);
    edges.keys().for_each(|node| search.visit(*node));
    let mut circles: Vec<Vec<usize>> = search.circles.into_iter().filter(|circle| circle.len() > 1).collect();
    circles.iter_mut().for_each(|circle| circle.sort_unstable());
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Tarjan's search for strongly connected components (Depth-first search and linear graph algorithms, 1972).
struct Search<'a> {
    edges: &'a Edges,
    /// For each node, the number in the order in which nodes were reached, and the earliest node that the
    /// node leads back to.
    reached: BTreeMap<usize, (usize, usize)>,
    stack: Vec<usize>,
    circles: Vec<Vec<usize>>,
}

impl<'a> Search<'a> {
    fn on(edges: &'a Edges) -> Self {
        Self { edges, reached: BTreeMap::new(), stack: Vec::new(), circles: Vec::new() }
    }

    fn visit(&mut self, node: usize) {
        if self.reached.contains_key(&node) {
            return;
        }
        let order = self.reached.len();
        self.reached.insert(node, (order, order));
        self.stack.push(node);
        let edges = self.edges;
        let mut earliest = order;
        for next in edges.get(&node).into_iter().flatten() {
            self.visit(*next);
            if self.stack.contains(next) {
                earliest = earliest.min(self.reached.get(next).map_or(order, |(_, earliest)| *earliest));
            }
        }
        self.reached.insert(node, (order, earliest));
        if earliest == order
            && let Some(start) = self.stack.iter().position(|on_stack| *on_stack == node)
        {
            self.circles.push(self.stack.split_off(start));
        }
    }
}
