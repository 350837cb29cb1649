//! The setting `join_method`: how general queries join tables by equality.

/// How tables are joined by equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JoinMethod {
    /// Joins by a hash table in memory. If the memory is not enough, joins with files, by the cheapest
    /// method.
    #[default]
    Auto,
    /// Reads one input once for each part of the other one that fits in memory.
    BlockNestedLoops,
    /// Sorts both inputs and merges them.
    SortMerge,
    /// Divides both inputs into partitions by hashes.
    GraceHash,
    /// Does the same as `GraceHash`, but one partition stays in memory.
    HybridHash,
}

impl JoinMethod {
    /// The names that the setting takes.
    pub const NAMES: &[&str] = &["auto", "block_nested_loops", "sort_merge", "grace_hash", "hybrid_hash"];

    /// Returns the method with this name, or `Auto` for any other name.
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
