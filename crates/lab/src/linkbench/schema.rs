//! The tables, their contents, and the statements. A session prepares all statements once, and then runs each
//! one by its index in the list.

use std::fmt::Write;

use super::graph::LINK_TYPES;
use super::{AGE_MS_MAX, LOADED_AT_MS, LinkBench};
use varve_bench::Result;
use varve_bench::database::{Connection, Statement};
use varve_bench::random::Random;
use varve_bench::workload::load_rows;

const TABLES: &str = "
    DROP TABLE IF EXISTS linktable, counttable, nodetable;
    CREATE TABLE linktable (
        id1 bigint NOT NULL, id2 bigint NOT NULL, link_type bigint NOT NULL, visibility smallint NOT NULL, data bytea NOT NULL,
        time bigint NOT NULL, version integer NOT NULL, PRIMARY KEY (link_type, id1, id2));
    CREATE INDEX id1_type ON linktable (id1, link_type, visibility, time, id2, version);
    CREATE TABLE counttable (
        id bigint NOT NULL, link_type bigint NOT NULL, count bigint NOT NULL, time bigint NOT NULL, version bigint NOT NULL,
        PRIMARY KEY (id, link_type));
    CREATE TABLE nodetable (
        id bigserial PRIMARY KEY, type integer NOT NULL, version bigint NOT NULL, time integer NOT NULL, data bytea NOT NULL);";

/// The query that counts the pairs of a node and a type with a wrong count of links.
pub(super) const WRONG_COUNTS: &str = "
    SELECT count(*) FROM
        (SELECT id1, link_type, count(*) AS visible FROM linktable WHERE visibility = 1 GROUP BY id1, link_type) AS links
        FULL JOIN counttable ON counttable.id = links.id1 AND counttable.link_type = links.link_type
    WHERE coalesce(links.visible, 0) <> coalesce(counttable.count, 0)";

pub(super) const NODE_TYPE: i64 = 2048;

/// Makes the tables and fills them.
pub(super) fn load(bench: &LinkBench, c: &mut dyn Connection) -> Result<()> {
    c.simple(TABLES)?;
    let mut random = Random::seeded(bench.graph.nodes());
    load_rows(c, "nodetable (type, version, time, data)", bench.graph.nodes(), |_, sql| {
        let _ = write!(sql, "({NODE_TYPE}, 0, {}, ", LOADED_AT_MS / 1000);
        push_bytes(sql, &bench.node_data(&mut random));
    })?;
    load_links(bench, &mut random, c)?;
    load_counts(bench, c)
}

/// Returns each pair of a node and a type of which the node has links, with the number of these links.
fn lists(bench: &LinkBench) -> impl Iterator<Item = (i64, i64, u64)> + '_ {
    (1..=bench.graph.nodes() as i64).flat_map(move |node| {
        let counts = LINK_TYPES.into_iter().zip(bench.graph.links_of(node));
        counts.filter(|(_, count)| *count > 0).map(move |(link_type, count)| (node, link_type, count))
    })
}

fn load_links(bench: &LinkBench, random: &mut Random, c: &mut dyn Connection) -> Result<()> {
    let mut links = lists(bench)
        .flat_map(|(node, link_type, count)| (0..count as i64).map(move |end| (node, node + end, link_type)));
    load_rows(
        c,
        "linktable (id1, id2, link_type, visibility, time, version, data)",
        bench.graph.links(),
        |_, sql| {
            let (node, end, link_type) = links.next().unwrap_or_default();
            let time_ms = LOADED_AT_MS - random.below(AGE_MS_MAX) as i64;
            let _ = write!(sql, "({node}, {end}, {link_type}, 1, {time_ms}, 0, ");
            push_bytes(sql, &bench.link_data(random));
        },
    )
}

fn load_counts(bench: &LinkBench, c: &mut dyn Connection) -> Result<()> {
    let mut counts = lists(bench);
    let rows = lists(bench).count() as u64;
    load_rows(c, "counttable (id, link_type, count, time, version)", rows, |_, sql| {
        let (node, link_type, count) = counts.next().unwrap_or_default();
        let _ = write!(sql, "({node}, {link_type}, {count}, {LOADED_AT_MS}, 0)");
    })
}

/// Appends bytes as the last value of a row.
fn push_bytes(sql: &mut String, bytes: &[u8]) {
    sql.push_str("'\\x");
    for byte in bytes {
        let _ = write!(sql, "{byte:02x}");
    }
    sql.push_str("')");
}

pub(super) const BEGIN: usize = 0;
pub(super) const COMMIT: usize = 1;
pub(super) const LOCK_LINK: usize = 2;
pub(super) const INSERT_LINK: usize = 3;
pub(super) const UPDATE_LINK: usize = 4;
pub(super) const HIDE_LINK: usize = 5;
pub(super) const COUNT_ONE_MORE: usize = 6;
pub(super) const COUNT_ONE_LESS: usize = 7;
pub(super) const COUNT_LINKS: usize = 8;
pub(super) const LIST_LINKS: usize = 9;
pub(super) const GET_NODE: usize = 10;
pub(super) const ADD_NODE: usize = 11;
pub(super) const UPDATE_NODE: usize = 12;
pub(super) const DELETE_NODE: usize = 13;
/// The statement that reads one link. The statements for 2, 4, 8, ... [`LINKS_MAX`] links follow.
pub(super) const GET_LINKS: usize = 14;

/// The most links that a request reads by their other ends.
pub(super) const LINKS_MAX: usize = 128;

const TEXTS: [&str; GET_LINKS] = [
    "BEGIN",
    "COMMIT",
    "SELECT visibility FROM linktable WHERE id1 = $1 AND id2 = $2 AND link_type = $3 FOR UPDATE",
    "INSERT INTO linktable (id1, id2, link_type, visibility, data, time, version) VALUES ($1, $2, $3, 1, $4, $5, 0)",
    "UPDATE linktable SET visibility = 1, data = $4, time = $5, version = 0 WHERE id1 = $1 AND id2 = $2 AND link_type = $3",
    "UPDATE linktable SET visibility = 0 WHERE id1 = $1 AND id2 = $2 AND link_type = $3",
    "INSERT INTO counttable (id, link_type, count, time, version) VALUES ($1, $2, 1, $3, 0) \
     ON CONFLICT (id, link_type) DO UPDATE SET count = counttable.count + 1, time = $3, version = counttable.version + 1",
    "INSERT INTO counttable (id, link_type, count, time, version) VALUES ($1, $2, 0, $3, 0) \
     ON CONFLICT (id, link_type) DO UPDATE SET count = CASE WHEN counttable.count = 0 THEN 0 ELSE counttable.count - 1 END, \
     time = $3, version = counttable.version + 1",
    "SELECT count FROM counttable WHERE id = $1 AND link_type = $2",
    "SELECT id1, id2, link_type, visibility, data, time, version FROM linktable \
     WHERE id1 = $1 AND link_type = $2 AND visibility = 1 ORDER BY time DESC LIMIT 10000",
    "SELECT id, type, version, time, data FROM nodetable WHERE id = $1",
    "INSERT INTO nodetable (type, version, time, data) VALUES ($1, 1, $2, $3) RETURNING id",
    "UPDATE nodetable SET version = 2, time = $3, data = $4 WHERE id = $1 AND type = $2",
    "DELETE FROM nodetable WHERE id = $1 AND type = $2",
];

/// Returns all statements, in the order of the constants above.
pub(super) fn statements() -> Vec<Statement> {
    let sizes = std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|size| *size <= LINKS_MAX);
    TEXTS.iter().map(|text| (*text).to_owned()).chain(sizes.map(get_links)).collect()
}

fn get_links(count: usize) -> Statement {
    let places: Vec<String> = (3..3 + count).map(|place| format!("${place}")).collect();
    format!(
        "SELECT id1, id2, link_type, visibility, data, time, version FROM linktable \
         WHERE id1 = $1 AND link_type = $2 AND id2 IN ({})",
        places.join(", ")
    )
}
