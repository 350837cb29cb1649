//! Running a plan: the runtime, its memory and temporary files, cancelling, and rows back to the session.
//!
//! Invariants
//! 1. One query runs on the thread of its connection: its runtime is made for it, drives all its streams, and is dropped
//!    with them before `run` returns. So no reader outlives the statement, and who waits for a page blocks nobody else.
//! 2. The wish to cancel is looked at between two polls, for each batch that an expression computes (`computed`), and for
//!    each leaf that a scan reads (the engine).
//!
//! Does not know: SQL.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::Session;
use datafusion::common::DataFusionError;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionConfig;
use parking_lot::Mutex;
use varve_engine::Datum;
use varve_sql::general::{Around, Emit, General, Query, Select, SqlError, SqlState, Ty};

use crate::append::Appends;
use crate::apply::ApplyPlanner;
use crate::cells::Cells;
use crate::error::{unwrapped, wrapped};
use crate::expand::ExpandPlanner;
use crate::join_order;
use crate::merge_joins::MergeJoins;
use crate::spill::Spills;
use crate::translate;

/// Stack of a query that is planned or runs: DataFusion walks plans and expressions by recursion, and a stack that overflows
/// ends the whole process. Only what is touched costs memory.
const STACK_BYTES: usize = 64 << 20;

/// What general queries may use.
#[derive(Debug, Clone)]
pub struct QueryOptions {
    /// Memory of all queries that run, in bytes; beyond their share they spill.
    pub memory_bytes: usize,
    /// Partitions of a scan and of what is built on it. They run on one thread; more than one pays once there are threads.
    pub partitions: usize,
    /// The directory where they spill to, by files without names; `None`: they fail with 53200 instead.
    pub spill: Option<PathBuf>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions { memory_bytes: 256 << 20, partitions: 1, spill: None }
    }
}

/// Runs general queries.
pub struct Queries {
    state: SessionState,
    /// The same with joins that spill, for queries that have run out of memory.
    thrifty: SessionState,
}

impl Queries {
    /// A runner for a database.
    pub fn new(options: &QueryOptions) -> varve_sql::Result<Queries> {
        let mut config =
            SessionConfig::new().with_target_partitions(options.partitions).with_collect_statistics(false);
        // The order and the sides of joins are ours (`join_order`).
        config.options_mut().optimizer.join_reordering = false;
        // What a sort keeps back for merging; the default, 10 MiB, fails every sort of a small pool.
        let reserved = &mut config.options_mut().execution.sort_spill_reservation_bytes;
        *reserved = (*reserved).min(options.memory_bytes / 16);
        let runtime = Arc::new(resources(options).map_err(unwrapped)?);
        let mut rules = PhysicalOptimizer::new().rules;
        rules.insert(0, Arc::new(Appends));
        let state = |rules| {
            SessionStateBuilder::new()
                .with_config(config.clone())
                .with_physical_optimizer_rules(rules)
                .with_runtime_env(runtime.clone())
                .with_query_planner(Arc::new(Planner))
                .build()
        };
        let with_hash_joins = state(rules.clone());
        rules.insert(0, Arc::new(MergeJoins));
        Ok(Queries { state: with_hash_joins, thrifty: state(rules) })
    }
}

fn resources(options: &QueryOptions) -> Result<RuntimeEnv, DataFusionError> {
    let disk = match &options.spill {
        Some(path) => DiskManagerMode::Custom(Arc::new(Spills { directory: path.clone() })),
        None => DiskManagerMode::Disabled,
    };
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(options.memory_bytes)))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(disk))
        .build()
}

/// DataFusion's planner, and the nodes of ours.
#[derive(Debug)]
struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![
            Arc::new(ApplyPlanner),
            Arc::new(ExpandPlanner),
        ]);
        let plan = join_order::ordered(plan.clone())?;
        planner.create_physical_plan(&plan, session).await
    }
}

impl General for Queries {
    fn run(&self, mut query: Query<'_>, emit: &mut Emit<'_>) -> varve_sql::Result<u64> {
        stacker::grow(STACK_BYTES, || {
            let mut given = false;
            let mut noted = |row: &[Datum<'_>]| {
                given = true;
                emit(row)
            };
            let first = runtime()?.block_on(run_here(&self.state, &mut query, &mut noted));
            match first {
                Err(e) if !given && is_out_of_memory(&e) => {
                    runtime()?.block_on(run_here(&self.thrifty, &mut query, emit))
                }
                other => other,
            }
            .map_err(unwrapped)
        })
    }

    fn explain(&self, mut query: Query<'_>) -> varve_sql::Result<Vec<String>> {
        let plan = stacker::grow(STACK_BYTES, || {
            runtime()?.block_on(physical(&self.state, &mut query)).map_err(unwrapped)
        })?;
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        Ok(shown.lines().map(str::to_owned).collect())
    }
}

/// A runtime on this thread, for one query.
fn runtime() -> varve_sql::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|e| SqlError::new(SqlState("53000"), format!("could not start the query: {e}")))
}

async fn physical(
    state: &SessionState,
    query: &mut Query<'_>,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let reader = Arc::new(Mutex::new(query.txn.reader()));
    let logical = translate::plan(query, reader)?;
    state.create_physical_plan(&logical).await
}

async fn run_here(
    state: &SessionState,
    query: &mut Query<'_>,
    emit: &mut Emit<'_>,
) -> Result<u64, DataFusionError> {
    let (types, around) = (shown_types(query.select), query.around.clone());
    let mut stream = execute_stream(physical(state, query).await?, state.task_ctx())?;
    let mut count = 0;
    while let Some(batch) = next(&mut stream, &around).await {
        count += give(&batch?, &types, emit).map_err(wrapped)?;
    }
    Ok(count)
}

/// Whether the query wanted more memory than there is for it.
fn is_out_of_memory(e: &DataFusionError) -> bool {
    matches!(e.find_root(), DataFusionError::ResourcesExhausted(_))
}

fn shown_types(select: &Select) -> Vec<Ty> {
    select.outputs[..select.visible].iter().map(|o| o.t.ty).collect()
}

/// The next batch; 57014 if the statement is to end.
async fn next(
    stream: &mut SendableRecordBatchStream,
    around: &Around,
) -> Option<Result<RecordBatch, DataFusionError>> {
    std::future::poll_fn(|cx| {
        if let Err(e) = around.check_cancel() {
            return std::task::Poll::Ready(Some(Err(wrapped(e))));
        }
        futures::Stream::poll_next(stream.as_mut(), cx)
    })
    .await
}

/// Gives out the rows of a batch.
fn give(batch: &RecordBatch, types: &[Ty], emit: &mut Emit<'_>) -> varve_sql::Result<u64> {
    let columns: Vec<Cells<'_>> =
        types.iter().zip(batch.columns()).map(|(t, array)| Cells::of(*t, array)).collect();
    let mut row: Vec<Datum<'_>> = Vec::with_capacity(columns.len());
    for n in 0..batch.num_rows() {
        row.clear();
        row.extend(columns.iter().map(|c| c.get(n)));
        emit(&row)?;
    }
    Ok(batch.num_rows() as u64)
}
