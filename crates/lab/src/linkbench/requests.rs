//! The ten kinds of requests. Each one does the same as in LinkBench's `LinkStoreMysql.java`.

use super::graph::LINK_TYPES;
use super::schema::{
    ADD_NODE, BEGIN, COMMIT, COUNT_LINKS, COUNT_ONE_LESS, COUNT_ONE_MORE, DELETE_NODE, GET_LINKS, GET_NODE,
    HIDE_LINK, INSERT_LINK, LINKS_MAX, LIST_LINKS, LOCK_LINK, NODE_TYPE, UPDATE_LINK, UPDATE_NODE,
};
use super::{KINDS, LinkBench};
use varve_bench::database::{Connection, Param, Value};
use varve_bench::random::Random;
use varve_bench::{BenchError, Result};

/// The probability that the load has made the link of a request (`ID2Chooser.java`).
const EXISTS_WHEN_ADDED: f64 = 0.05;
const EXISTS_WHEN_CHANGED: f64 = 0.9;
const EXISTS_WHEN_READ: f64 = 0.5;

/// The probability that a request for links asks for one more link. It is 1 minus `link_multiget_dist_prob`.
const ONE_MORE_LINK: f64 = 1.0 - 0.382;

const VISIBLE: Value = Value::Int(1);

/// Runs a request. `kind` is its index in [`KINDS`].
pub(super) fn run(bench: &LinkBench, kind: usize, c: &mut dyn Connection, random: &mut Random) -> Result<()> {
    let mut request = Request { bench, c, random };
    match KINDS.get(kind).map(|kind| kind.name) {
        Some("addlink") => request.put_link(EXISTS_WHEN_ADDED),
        Some("deletelink") => request.delete_link(),
        Some("updatelink") => request.put_link(EXISTS_WHEN_CHANGED),
        Some("countlink") => request.count_links(),
        Some("getlink") => request.get_links(),
        Some("getlinklist") => request.list_links(),
        Some("getnode") => request.get_node(),
        Some("addnode") => request.add_node(),
        Some("updatenode") => request.update_node(),
        Some("deletenode") => request.delete_node(),
        _ => Err(BenchError::Arguments(format!("linkbench has no request {kind}"))),
    }
}

struct Request<'a> {
    bench: &'a LinkBench,
    c: &'a mut dyn Connection,
    random: &'a mut Random,
}

/// The key of a link, in the order of the statements' parameters: first end, other end, type.
type Link = [Param<'static>; 3];

impl Request<'_> {
    fn link_type(&mut self) -> usize {
        self.random.below(LINK_TYPES.len() as u64) as usize
    }

    fn link(&mut self, existing: f64) -> Link {
        let (node, link_type) = (self.bench.graph.link_write(self.random), self.link_type());
        let end = self.bench.graph.link_end(node, link_type, existing, self.random);
        [Param::Int(node), Param::Int(end), Param::Int(LINK_TYPES[link_type])]
    }

    /// Locks the row of a link until the transaction ends. Returns whether the link is visible, or `None` if
    /// it has no row.
    fn lock(&mut self, link: Link) -> Result<Option<bool>> {
        let rows = self.c.rows(LOCK_LINK, &link)?;
        Ok(rows.first().map(|row| row.first() == Some(&VISIBLE)))
    }

    /// Adds a link. If the link has a row already, the row is overwritten and made visible.
    fn put_link(&mut self, existing: f64) -> Result<()> {
        let link = self.link(existing);
        let (data, now) = (self.bench.link_data(self.random), Param::Int(self.bench.now_ms()));
        let [node, end, link_type] = link;
        let all = [node, end, link_type, Param::Bytes(&data), now];
        self.c.run(BEGIN, &[])?;
        let found = self.lock(link)?;
        self.c.run(if found.is_some() { UPDATE_LINK } else { INSERT_LINK }, &all)?;
        if found != Some(true) {
            self.c.run(COUNT_ONE_MORE, &[node, link_type, now])?;
        }
        self.c.run(COMMIT, &[]).map(drop)
    }

    /// Makes a link invisible. Rows of links are never removed.
    fn delete_link(&mut self) -> Result<()> {
        let link = self.link(EXISTS_WHEN_CHANGED);
        let [node, _, link_type] = link;
        let now = Param::Int(self.bench.now_ms());
        self.c.run(BEGIN, &[])?;
        if self.lock(link)? == Some(true) {
            self.c.run(HIDE_LINK, &link)?;
            self.c.run(COUNT_ONE_LESS, &[node, link_type, now])?;
        }
        self.c.run(COMMIT, &[]).map(drop)
    }

    /// Draws a node and a type of links for a read.
    fn list(&mut self) -> (i64, usize) {
        (self.bench.graph.link_read(self.random), self.link_type())
    }

    fn count_links(&mut self) -> Result<()> {
        let (node, link_type) = self.list();
        self.c.run(COUNT_LINKS, &[Param::Int(node), Param::Int(LINK_TYPES[link_type])]).map(drop)
    }

    fn list_links(&mut self) -> Result<()> {
        let (node, link_type) = self.list();
        self.c.run(LIST_LINKS, &[Param::Int(node), Param::Int(LINK_TYPES[link_type])]).map(drop)
    }

    fn get_links(&mut self) -> Result<()> {
        let (node, link_type) = self.list();
        let mut count = 1;
        while count < LINKS_MAX && self.random.unit() < ONE_MORE_LINK {
            count += 1;
        }
        let ends = self.bench.graph.link_ends(node, link_type, count, EXISTS_WHEN_READ, self.random);
        let places = ends.len().next_power_of_two();
        let mut params = vec![Param::Int(node), Param::Int(LINK_TYPES[link_type])];
        // The statement has more parameters than there are ends, so the last end fills the others.
        params.extend((0..places).filter_map(|at| ends.get(at).or(ends.last())).map(|end| Param::Int(*end)));
        self.c.run(GET_LINKS + places.ilog2() as usize, &params).map(drop)
    }

    fn get_node(&mut self) -> Result<()> {
        let node = self.bench.graph.node_read(self.random);
        self.c.run(GET_NODE, &[Param::Int(node)]).map(drop)
    }

    fn add_node(&mut self) -> Result<()> {
        let (data, now) = (self.bench.node_data(self.random), self.now_s());
        self.c.run(ADD_NODE, &[Param::Int(NODE_TYPE), now, Param::Bytes(&data)]).map(drop)
    }

    fn update_node(&mut self) -> Result<()> {
        let node = Param::Int(self.bench.graph.node_update(self.random));
        let (data, now) = (self.bench.node_data(self.random), self.now_s());
        self.c.run(UPDATE_NODE, &[node, Param::Int(NODE_TYPE), now, Param::Bytes(&data)]).map(drop)
    }

    fn delete_node(&mut self) -> Result<()> {
        let node = Param::Int(self.bench.graph.node_delete(self.random));
        self.c.run(DELETE_NODE, &[node, Param::Int(NODE_TYPE)]).map(drop)
    }

    fn now_s(&self) -> Param<'static> {
        Param::Int(self.bench.now_ms() / 1000)
    }
}
