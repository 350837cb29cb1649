//! The setting `join_method`: how general queries join tables by equality.

/// How tables are joined by equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JoinMethod {
    /// A hash join in memory. If memory is not enough, a join with files, by the cheapest method.
    #[default]
    Auto,
    /// Reads one input once for each part of the other that fits in memory.
    BlockNestedLoops,
    /// Sorts both inputs and merges them.
    SortMerge,
    /// Divides both inputs into partitions by hashes.
    GraceHash,
    /// The same, with one partition that stays in memory.
    HybridHash,
}

impl JoinMethod {
    /// The names that the setting takes.
    pub const NAMES: &[&str] = &["auto", "block_nested_loops", "sort_merge", "grace_hash", "hybrid_hash"];

    /// The method with this name; `Auto` for any other name.
    pub fn named(name: &str) -> JoinMethod {
        match name {
            "block_nested_loops" => JoinMethod::BlockNestedLoops,
            "sort_merge" => JoinMethod::SortMerge,
            "grace_hash" => JoinMethod::GraceHash,
            "hybrid_hash" => JoinMethod::HybridHash,
            _ => JoinMethod::Auto,
        }
    }
}
