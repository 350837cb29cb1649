//! The workload LinkBench (Armstrong et al., SIGMOD 2013): Facebook's graph of nodes and links, as three
//! tables. It has ten kinds of requests, in the shares that Facebook measured in production.
//!
//! The source is facebookarchive/linkbench. Shares, skews and payloads are from its
//! `config/FBWorkload.properties`, statements from its `LinkStoreMysql.java`, and tables from its README.
//! [`Workload::deviations`] lists the differences.

mod graph;
mod requests;
mod schema;

use std::sync::atomic::{AtomicI64, Ordering};

use varve_bench::database::{Connection, Statement};
use varve_bench::random::Random;
use varve_bench::values::{Motif, log_normal};
use varve_bench::workload::{Condition, TransactionKind, Workload};
use varve_bench::{BenchError, Result};

pub use graph::Graph;

/// The kinds of requests, in the order of [`SHARES`].
const KINDS: &[TransactionKind] = &[
    TransactionKind { name: "addlink", rate: None },
    TransactionKind { name: "deletelink", rate: None },
    TransactionKind { name: "updatelink", rate: None },
    TransactionKind { name: "countlink", rate: None },
    TransactionKind { name: "getlink", rate: None },
    TransactionKind { name: "getlinklist", rate: None },
    TransactionKind { name: "getnode", rate: None },
    TransactionKind { name: "addnode", rate: None },
    TransactionKind { name: "updatenode", rate: None },
    TransactionKind { name: "deletenode", rate: None },
];

/// The share of each kind of request, in 10^-7 percent (FBWorkload.properties).
const SHARES: [u64; 10] = [
    89_886_601,
    29_907_664,
    80_122_125,
    48_863_567,
    5_261_142,
    507_119_145,
    129_326_683,
    25_732_789,
    73_664_370,
    10_115_914,
];

/// The median size of a payload in bytes, and its largest size: of links, and of nodes.
const LINK_DATA_MEDIAN: f64 = 8.0;
const LINK_DATA_MAX: u64 = 254;
const NODE_DATA_MEDIAN: f64 = 128.0;
const NODE_DATA_MAX: u64 = (1 << 20) - 1;

/// The time at which the graph was loaded, in milliseconds since 1970. Each write of a run gets a time that
/// is one millisecond later than the write before. So no clock is needed.
const LOADED_AT_MS: i64 = 1_767_225_600_000;
/// The greatest age of a loaded link: about 50 days.
const AGE_MS_MAX: u64 = 1 << 32;

/// The workload, with its graph and its payloads.
#[derive(Debug)]
pub struct LinkBench {
    graph: Graph,
    link_data: Motif,
    node_data: Motif,
    now_ms: AtomicI64,
}

impl LinkBench {
    /// Returns the workload on a graph of `nodes` nodes and about four times as many links.
    pub fn new(nodes: u64) -> Result<Self> {
        if nodes < 2 {
            return Err(BenchError::Arguments(format!("linkbench needs at least 2 nodes, not {nodes}")));
        }
        Ok(Self {
            graph: Graph::of(nodes),
            link_data: Motif::new(32, 100, 0.225, 1),
            node_data: Motif::new(50, 220, 0.63, 2),
            now_ms: AtomicI64::new(LOADED_AT_MS),
        })
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.fetch_add(1, Ordering::Relaxed)
    }

    fn link_data(&self, random: &mut Random) -> Vec<u8> {
        let bytes = log_normal(random, LINK_DATA_MEDIAN, LINK_DATA_MAX);
        self.link_data.value(random, bytes)
    }

    fn node_data(&self, random: &mut Random) -> Vec<u8> {
        let bytes = log_normal(random, NODE_DATA_MEDIAN, NODE_DATA_MAX);
        self.node_data.value(random, bytes)
    }
}

impl Workload for LinkBench {
    fn name(&self) -> String {
        "linkbench".to_owned()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"nodes": self.graph.nodes(), "links": self.graph.links()})
    }

    fn deviations(&self) -> Vec<String> {
        let mean = self.graph.links() as f64 / self.graph.nodes() as f64;
        vec![
            format!(
                "numbers of links of a node come from 16 points of the distribution that LinkBench ships, not from all of it: \
                 {mean:.2} on average here, 4.10 there"
            ),
            "the index of links holds no payload, linktable is not partitioned, payloads are bytea".to_owned(),
            "a link is looked for before it is added or updated, instead of INSERT ... ON DUPLICATE KEY UPDATE".to_owned(),
            "getlink asks for 1, 2, 4, ... 128 links: the next of these; getlinklist never asks for older ones (0.3 % there)".to_owned(),
            "all sessions share what repeats in payloads; times come from a counter".to_owned(),
        ]
    }

    fn statements(&self) -> Vec<Statement> {
        schema::statements()
    }

    fn load(&self, connection: &mut dyn Connection) -> Result<()> {
        schema::load(self, connection)
    }

    fn kinds(&self) -> &'static [TransactionKind] {
        KINDS
    }

    fn next_kind(&self, random: &mut Random) -> usize {
        random.weighted(&SHARES)
    }

    fn transaction(&self, kind: usize, connection: &mut dyn Connection, random: &mut Random) -> Result<()> {
        requests::run(self, kind, connection, random)
    }

    /// Checks that the table of counts counts as many links as are visible.
    fn verify(&self, c: &mut dyn Connection) -> Result<()> {
        let seen = c.scalar("SELECT count(*) FROM linktable WHERE visibility = 1")?;
        let counted = c.scalar("SELECT coalesce(sum(count), 0) FROM counttable")?;
        if seen == counted {
            return Ok(());
        }
        Err(BenchError::Wrong(format!("linktable has {seen} visible links, counttable counts {counted}")))
    }

    fn conditions(&self) -> Vec<Condition> {
        vec![Condition {
            name: "counts",
            says: "a node's count of links of a type is the number of its visible links of that type",
            violations: schema::WRONG_COUNTS.to_owned(),
        }]
    }
}
