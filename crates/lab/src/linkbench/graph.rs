//! Computes how many links each node of the graph has, and chooses the nodes for requests.
//!
//! 1. Nodes are numbered from 1. The links of one type from node n go to the nodes n, n + 1, and so on. So a
//!    request can compute which links were loaded.
//! 2. Everything is computed from the number of nodes. Nothing is stored for each node.

use varve_bench::random::{Permutation, Random, Zipfian};

/// The types of links.
pub(super) const LINK_TYPES: [i64; 2] = [123_456_789, 123_456_790];

/// Pairs of a number of links, and how many nodes in a million have more links than that. They are points of
/// `nlinks` in LinkBench's `config/Distribution.dat`. Between two points the logarithms are interpolated.
const MORE_LINKS: [(u64, f64); 16] = [
    (0, 546_684.0),
    (1, 225_374.0),
    (2, 130_419.0),
    (3, 80_069.5),
    (4, 55_492.0),
    (6, 32_774.7),
    (10, 16_719.7),
    (20, 6_730.44),
    (50, 2_784.4),
    (100, 1_686.39),
    (200, 1_148.65),
    (1_000, 493.408),
    (5_000, 125.467),
    (20_000, 14.6227),
    (100_000, 0.3721),
    (961_963, 0.001),
];

/// The share of the requests for links that does not prefer nodes with many links (`read_uncorr_blend`,
/// `write_uncorr_blend`).
const READS_UNCORRELATED: f64 = 0.995;
const WRITES_UNCORRELATED: f64 = 0.95;

/// The graph after the load, and the skews of the requests.
#[derive(Debug)]
pub struct Graph {
    nodes: u64,
    links: u64,
    by_links: Permutation,
    by_link_requests: Permutation,
    by_node_requests: Permutation,
    link_reads: Zipfian,
    link_writes: Zipfian,
    node_reads: Zipfian,
    node_updates: Zipfian,
}

impl Graph {
    /// Returns a graph of this many nodes. This function takes time linear in `nodes`.
    pub fn of(nodes: u64) -> Self {
        Self {
            nodes,
            links: (0..nodes).map(|rank| links_of_rank(rank, nodes)).sum(),
            by_links: Permutation::of(nodes, 1),
            by_link_requests: Permutation::of(nodes, 2),
            by_node_requests: Permutation::of(nodes, 3),
            link_reads: Zipfian::with_theta(nodes, 0.8),
            link_writes: Zipfian::with_theta(nodes, 0.741),
            node_reads: Zipfian::with_theta(nodes, 0.625),
            node_updates: Zipfian::with_theta(nodes, 0.606),
        }
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Returns the number of links of all nodes together.
    pub fn links(&self) -> u64 {
        self.links
    }

    /// Returns the number of links of each type that the load makes for a node.
    pub fn links_of(&self, node: i64) -> [u64; 2] {
        let all = links_of_rank(self.by_links.rank(node as u64 - 1), self.nodes);
        [all.div_ceil(2), all / 2]
    }

    /// Draws a node for a read of its links.
    pub(super) fn link_read(&self, random: &mut Random) -> i64 {
        self.link_request(&self.link_reads, READS_UNCORRELATED, random)
    }

    /// Draws a node for a change of its links.
    pub(super) fn link_write(&self, random: &mut Random) -> i64 {
        self.link_request(&self.link_writes, WRITES_UNCORRELATED, random)
    }

    fn link_request(&self, skew: &Zipfian, uncorrelated: f64, random: &mut Random) -> i64 {
        let order = if random.unit() < uncorrelated { &self.by_link_requests } else { &self.by_links };
        1 + order.place(skew.rank(random)) as i64
    }

    /// Draws a node to read.
    pub(super) fn node_read(&self, random: &mut Random) -> i64 {
        1 + self.by_node_requests.place(self.node_reads.rank(random)) as i64
    }

    /// Draws a node to change.
    pub(super) fn node_update(&self, random: &mut Random) -> i64 {
        1 + self.by_node_requests.place(self.node_updates.rank(random)) as i64
    }

    /// Draws a node to delete.
    pub(super) fn node_delete(&self, random: &mut Random) -> i64 {
        1 + random.below(self.nodes) as i64
    }

    /// Draws the other end of a link of `node`. The load has made this link with about the probability
    /// `existing`.
    pub(super) fn link_end(&self, node: i64, link_type: usize, existing: f64, random: &mut Random) -> i64 {
        node + random.below(self.ends(node, link_type, existing)) as i64
    }

    /// Draws `count` different other ends of links. If there are fewer ends, it returns all of them.
    pub(super) fn link_ends(
        &self,
        node: i64,
        link_type: usize,
        count: usize,
        existing: f64,
        random: &mut Random,
    ) -> Vec<i64> {
        let ends = self.ends(node, link_type, existing);
        if ends <= count as u64 {
            return (0..ends).map(|end| node + end as i64).collect();
        }
        let mut chosen = Vec::with_capacity(count);
        while chosen.len() < count {
            let end = node + random.below(ends) as i64;
            if !chosen.contains(&end) {
                chosen.push(end);
            }
        }
        chosen
    }

    fn ends(&self, node: i64, link_type: usize, existing: f64) -> u64 {
        let loaded = self.links_of(node)[link_type] as f64;
        ((loaded / existing).ceil() as u64).max(1)
    }
}

/// Returns the number of links of a node. `rank` is the place of the node in the order by number of links,
/// counted from 0.
fn links_of_rank(rank: u64, nodes: u64) -> u64 {
    let above = (rank as f64 + 0.5) / nodes as f64 * 1e6;
    let Some(place) = MORE_LINKS.iter().position(|(_, more)| *more <= above) else {
        return MORE_LINKS[MORE_LINKS.len() - 1].0;
    };
    let (links, more) = MORE_LINKS[place];
    let Some((fewer_links, fewer)) = place.checked_sub(1).map(|place| MORE_LINKS[place]) else {
        return 0;
    };
    if fewer_links == 0 {
        return links;
    }
    let share = (fewer.ln() - above.ln()) / (fewer.ln() - more.ln());
    let (from, to) = ((fewer_links as f64).ln(), (links as f64).ln());
    (from + share * (to - from)).exp().ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_links_are_facebooks() {
        let nodes = 100_000;
        let links: Vec<u64> = (0..nodes).map(|rank| links_of_rank(rank, nodes)).collect();
        let with_more = |than: u64| links.iter().filter(|links| **links > than).count() as f64 * 10.0;
        for (than, expected) in MORE_LINKS.iter().take(13) {
            let found = with_more(*than);
            assert!((found - expected).abs() <= 10.0 + expected * 0.01, "{than}: {found} not {expected}");
        }
        // LinkBench's whole file gives 3.995 links on average for this number of nodes. The node with the
        // most links gets 33,136.
        let mean = links.iter().sum::<u64>() as f64 / nodes as f64;
        assert!((3.8..4.1).contains(&mean), "{mean}");
        assert!((31_000..34_000).contains(&links[0]), "{}", links[0]);
        assert!(links.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn a_links_other_end_was_loaded_as_often_as_asked() {
        let (graph, mut random) = (Graph::of(10_000), Random::seeded(1));
        let node = (1..).find(|node| graph.links_of(*node)[0] > 100).expect("some node has many links");
        for existing in [0.05, 0.5, 0.9] {
            let loaded = |end: i64| ((end - node) as u64) < graph.links_of(node)[0];
            let hits = (0..10_000).filter(|_| loaded(graph.link_end(node, 0, existing, &mut random))).count();
            assert!((hits as f64 / 10_000.0 - existing).abs() < 0.03, "{existing}: {hits}");
        }
        let ends = graph.link_ends(node, 0, 50, 0.5, &mut random);
        let different: std::collections::BTreeSet<_> = ends.iter().collect();
        assert_eq!((ends.len(), different.len()), (50, 50));
    }

    #[test]
    fn all_links_are_counted() {
        let graph = Graph::of(5_000);
        let sum: u64 = (1..=5_000).map(|node| graph.links_of(node).iter().sum::<u64>()).sum();
        assert_eq!(sum, graph.links());
    }
}
