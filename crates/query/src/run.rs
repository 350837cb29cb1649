//! Runs a plan. This module sets up the async runtime, memory, temporary files and cancellation, and passes
//! the rows to the session.
//!
//! Invariants
//! 1. A query runs on the thread of its connection, in an async runtime of its own. Threads of the query help
//!    with large tables (`gather.rs`). The runtime, all its streams and these threads have ended before `run`
//!    returns. So no reader outlives the statement, and a wait for a page blocks no other session.
//! 2. A query checks for a cancel request between two polls. Expressions (`computed`) and joins (`cancel`)
//!    check at each batch. Scans check at each leaf (in the engine).

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::Session;
use datafusion::common::DataFusionError;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionConfig;
use varve_device::Accounting;
use varve_engine::{Datum, PageMeter, planted_panic};
use varve_sql::general::{
    Analyzed, Around, Emit, Gauge, General, JoinMethod, Query, Rates, Select, SmartMode, SqlError, SqlState,
    Step, Ty,
};

use crate::analyze::{Node, nodes};
use crate::apply::ApplyPlanner;
use crate::budget;
use crate::cancel;
use crate::cells::Cells;
use crate::costs;
use crate::error::{is_out_of_memory, unwrapped, wrapped};
use crate::expand::ExpandPlanner;
use crate::gather::Threads;
use crate::join_order;
use crate::kept::{Assumed, KeptPlan, KeptPlans, Snapshot};
use crate::memory;
use crate::merge_joins::JoinsBy;
use crate::rules;
use crate::smart_rule::SmartScans;
use crate::smart_scan::SmartOptions;
use crate::spill::{self, Spills};
use crate::steps;
use crate::subquery_scan::SubqueryScanPlanner;
use crate::temporary::{EmulatedDrive, JoinResources, TemporaryDirectory};
use crate::translate;

/// The size of the stack while a query is planned or runs. DataFusion walks plans and expressions by
/// recursion, and a stack overflow would end the whole process. Only the used part of a stack occupies
/// memory.
const STACK_BYTES: usize = 64 << 20;

/// The options for general queries.
#[derive(Debug, Clone)]
pub struct QueryOptions {
    /// The memory limit for all running queries together, in bytes. An operator that needs more than its
    /// share of it spills.
    pub memory_bytes: usize,
    /// The number of partitions of a scan and of the nodes above it, which run on one thread. Several
    /// partitions are not faster.
    pub partitions: usize,
    /// The number of threads that read large tables for one query, while no other query runs.
    pub threads: usize,
    /// A table with fewer rows is read by one thread.
    pub threads_rows: u64,
    /// The directory for the temporary files of queries, which have no names. If it is `None`, a query that
    /// needs to spill fails with error 53200.
    pub spill: Option<PathBuf>,
    /// The emulated device with this directory, if it is emulated. Otherwise the drive is measured when a
    /// join spills for the first time.
    pub emulated_spill: Option<EmulatedDrive>,
    /// The counters of the requests to these files, unless their device is emulated. An emulated device has
    /// counters of its own.
    pub spill_accounting: Arc<Accounting>,
    /// The number of executions of a statement after which its next plan is cached.
    pub custom_plans: u32,
    /// A smart device that can scan the tables, if there is one.
    pub smart: Option<Arc<SmartOptions>>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions {
            memory_bytes: 256 << 20,
            partitions: 1,
            threads: 1,
            threads_rows: 50_000,
            spill: None,
            emulated_spill: None,
            spill_accounting: Arc::default(),
            custom_plans: 1,
            smart: None,
        }
    }
}

/// Runs general queries.
pub struct Queries {
    threads: Arc<Threads>,
    state: SessionState,
    /// The same state, but with joins that spill. It is for queries that have run out of memory.
    thrifty: SessionState,
    /// The smart device, and both states for each way to use it.
    smart: Option<Smart>,
    kept: KeptPlans,
    memory_bytes: usize,
    /// The directory of temporary files, if queries may spill.
    temporary: Option<Arc<TemporaryDirectory>>,
}

/// The states with which queries are planned if there is a smart device. The first state of each pair is used
/// as `Queries::state` is, and the second one for queries that have run out of memory.
struct Smart {
    options: Arc<SmartOptions>,
    auto: [SessionState; 2],
    on: [SessionState; 2],
}

impl Smart {
    fn new(
        smart: &Arc<SmartOptions>,
        options: &QueryOptions,
        runtime: &Arc<RuntimeEnv>,
        threads: &Arc<Threads>,
    ) -> Smart {
        let states = |mode: SmartMode| {
            [JoinsBy::InMemory, JoinsBy::Spilling].map(|joins| {
                let scans = SmartScans { options: smart.clone(), mode };
                state(options, runtime.clone(), joins, Some(scans), threads)
            })
        };
        Smart { options: smart.clone(), auto: states(SmartMode::Auto), on: states(SmartMode::On) }
    }

    fn states(&self, mode: SmartMode) -> Option<&[SessionState; 2]> {
        match mode {
            SmartMode::Auto => Some(&self.auto),
            SmartMode::On => Some(&self.on),
            SmartMode::Off => None,
        }
    }
}

impl Queries {
    /// Returns the runner of general queries for a database.
    pub fn new(options: &QueryOptions) -> varve_sql::Result<Queries> {
        let temporary = options.spill.clone().map(|path| {
            let accounting = options.spill_accounting.clone();
            Arc::new(TemporaryDirectory::new(path, options.emulated_spill.as_ref(), accounting))
        });
        let runtime = Arc::new(resources(options, temporary.clone()).map_err(unwrapped)?);
        let threads = Threads::new(options.threads, options.threads_rows);
        Ok(Queries {
            smart: options.smart.as_ref().map(|smart| Smart::new(smart, options, &runtime, &threads)),
            state: state(options, runtime.clone(), JoinsBy::InMemory, None, &threads),
            thrifty: state(options, runtime, JoinsBy::Spilling, None, &threads),
            threads,
            kept: KeptPlans::after(options.custom_plans),
            memory_bytes: options.memory_bytes,
            temporary,
        })
    }
}

fn state(
    options: &QueryOptions,
    runtime: Arc<RuntimeEnv>,
    joins: JoinsBy,
    smart: Option<SmartScans>,
    threads: &Arc<Threads>,
) -> SessionState {
    let mut config =
        SessionConfig::new().with_target_partitions(options.partitions).with_collect_statistics(false);
    let optimizer = &mut config.options_mut().optimizer;
    // Varve chooses the order and the sides of joins itself (`join_order`).
    optimizer.join_reordering = false;
    // Scans do not support dynamic filters, and a plan with a dynamic filter cannot run twice.
    optimizer.enable_dynamic_filter_pushdown = false;
    optimizer.enable_topk_dynamic_filter_pushdown = false;
    optimizer.enable_join_dynamic_filter_pushdown = false;
    optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // This is the memory that a sort reserves for merging. With the default of 10 MiB, every sort would fail
    // if the pool is small.
    let reserved = &mut config.options_mut().execution.sort_spill_reservation_bytes;
    *reserved = (*reserved).min(options.memory_bytes / 16);
    SessionStateBuilder::new()
        .with_config(config)
        .with_optimizer_rules(rules::logical())
        .with_physical_optimizer_rules(rules::physical(joins, smart, threads))
        .with_runtime_env(runtime)
        .with_query_planner(Arc::new(Planner))
        .build()
}

fn resources(
    options: &QueryOptions,
    temporary: Option<Arc<TemporaryDirectory>>,
) -> Result<RuntimeEnv, DataFusionError> {
    let disk = match temporary {
        Some(directory) => DiskManagerMode::Custom(Arc::new(Spills { directory, quota: Arc::default() })),
        None => DiskManagerMode::Disabled,
    };
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(options.memory_bytes)))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(disk))
        .build()
}

/// Returns which scans of this query run in a smart device. No scan does if the query locks rows, or reads
/// one row.
fn smart_mode(query: &Query<'_>) -> SmartMode {
    match query.select.lock.is_some() || query.only.is_some() {
        true => SmartMode::Off,
        false => query.limits.smart_scan,
    }
}

/// DataFusion's planner, extended by the plan nodes of Varve.
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
            Arc::new(SubqueryScanPlanner),
        ]);
        let plan = join_order::ordered(plan.clone())?;
        planner.create_physical_plan(&plan, session).await
    }
}

impl General for Queries {
    fn run(&self, query: Query<'_>, emit: &mut Emit<'_>) -> varve_sql::Result<u64> {
        let _pool = budget::within(self.state.runtime_env().memory_pool.clone());
        let run = || runtime()?.block_on(self.run_here(query, None, emit)).map_err(|e| self.told(e));
        stacker::grow(STACK_BYTES, run).map(|(count, _)| count)
    }

    fn explain(&self, mut query: Query<'_>, rates: Option<Rates>) -> varve_sql::Result<Step> {
        stacker::grow(STACK_BYTES, || {
            let state = self.first_state(&query);
            let planned = self.physical(&mut query, false, &state);
            let kept = runtime()?.block_on(planned).map_err(unwrapped)?;
            let (_, mut node) = nodes(&kept.plan, None).map_err(unwrapped)?;
            rates.iter().for_each(|rates| costs::add(&mut node, rates));
            Ok(steps::step(&node))
        })
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes as u64
    }

    fn has_smart_device(&self) -> bool {
        self.smart.is_some()
    }

    fn analyze(
        &self,
        query: Query<'_>,
        gauge: Gauge,
        emit: &mut Emit<'_>,
    ) -> varve_sql::Result<(u64, Analyzed)> {
        let _pool = budget::within(self.state.runtime_env().memory_pool.clone());
        let run = || runtime()?.block_on(self.run_here(query, Some(gauge), emit)).map_err(|e| self.told(e));
        let (count, analyzed) = stacker::grow(STACK_BYTES, run)?;
        let analyzed = analyzed.ok_or_else(|| SqlError::internal("a query that was not measured"))?;
        Ok((count, analyzed))
    }
}

/// Returns an async runtime for one query. It runs on this thread.
fn runtime() -> varve_sql::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|e| SqlError::new(SqlState("53000"), format!("could not start the query: {e}")))
}

impl Queries {
    /// Returns the number of plans that were made so far. A plan from the cache is not counted again.
    pub fn plans_made(&self) -> u64 {
        self.kept.made()
    }

    /// Returns the error that a client sees. If the memory was used up, the detail of the error contains the
    /// limit.
    fn told(&self, e: DataFusionError) -> SqlError {
        if !is_out_of_memory(&e) {
            return unwrapped(e);
        }
        let mib = self.memory_bytes >> 20;
        let error = unwrapped(e);
        let limit = format!("All general queries together may use {mib} MiB of memory.");
        let detail =
            error.detail.as_deref().map_or_else(|| limit.clone(), |detail| format!("{detail} {limit}"));
        error.with_detail(detail)
    }

    /// Returns a plan for the query that is ready to run. The plan is from the cache, or it is new.
    async fn ready(&self, query: &mut Query<'_>) -> Result<KeptPlan, DataFusionError> {
        if query.limits.join_method != JoinMethod::Auto {
            let state = self.first_state(query);
            return self.physical(query, false, &state).await;
        }
        if let Some(kept) = self.kept.take(query) {
            return Ok(kept);
        }
        let keeps = self.kept.wants(query);
        self.physical(query, keeps, self.state_for(query, JoinsBy::InMemory)).await
    }

    /// Returns the state with which a query is planned if the session forces no join method.
    fn state_for(&self, query: &Query<'_>, joins: JoinsBy) -> &SessionState {
        let smart = self.smart.as_ref().and_then(|smart| smart.states(smart_mode(query)));
        let pair = smart.map_or([&self.state, &self.thrifty], |[state, thrifty]| [state, thrifty]);
        pair[usize::from(joins == JoinsBy::Spilling)]
    }

    /// Returns the state with which a query is planned first: with hash joins in memory, or with the join
    /// method that the session forces.
    fn first_state(&self, query: &Query<'_>) -> Cow<'_, SessionState> {
        let state = self.state_for(query, JoinsBy::InMemory);
        let method = match query.limits.join_method {
            JoinMethod::Auto => return Cow::Borrowed(state),
            JoinMethod::BlockNestedLoops => varve_spill::JoinMethod::NestedLoops,
            JoinMethod::SortMerge => varve_spill::JoinMethod::SortMerge,
            JoinMethod::GraceHash => varve_spill::JoinMethod::Grace,
            JoinMethod::HybridHash => varve_spill::JoinMethod::Hybrid,
        };
        // Joins of the crate `spill` need files.
        if self.temporary.is_none() {
            return Cow::Borrowed(state);
        }
        let mode = smart_mode(query);
        let smart = self.smart.as_ref().filter(|_| mode != SmartMode::Off);
        let smart = smart.map(|smart| SmartScans { options: smart.options.clone(), mode });
        let rules = rules::physical(JoinsBy::Method(method), smart, &self.threads);
        let builder = SessionStateBuilder::new_from_existing(state.clone());
        Cow::Owned(builder.with_physical_optimizer_rules(rules).build())
    }

    async fn physical(
        &self,
        query: &mut Query<'_>,
        keeps: bool,
        state: &SessionState,
    ) -> Result<KeptPlan, DataFusionError> {
        planted_panic("panic at plan");
        let snapshot = Arc::new(Snapshot::of(query.txn.reader()));
        let assumed = keeps.then(Rc::<RefCell<Assumed>>::default);
        // The plan gets surroundings of its own. The next execution of the plan changes them, and the
        // surroundings of this query may still be used then.
        let around = query.around.apart();
        let logical = translate::plan(query, around.clone(), snapshot.clone(), assumed.clone())?;
        let plan = cancel::physical_plan(state, &logical, &around).await?;
        // A plan with several partitions contains the key ranges of this execution. So it cannot be used
        // again.
        let is_of_one_run = !keeps || self.state.config().target_partitions() > 1;
        let mut assumed = assumed.map(|assumed| assumed.take()).unwrap_or_default();
        assumed.is_of_one_run |= is_of_one_run;
        let (tables, assumed) = (query.tables.clone(), Arc::new(assumed));
        let smart = query.limits.smart_scan;
        Ok(KeptPlan { plan, around, snapshot, tables, assumed, smart, made: Instant::now() })
    }

    /// Plans and runs a query. If there is a gauge, each node of the plan is measured.
    async fn run_here(
        &self,
        mut query: Query<'_>,
        gauge: Option<Gauge>,
        emit: &mut Emit<'_>,
    ) -> Result<(u64, Option<Analyzed>), DataFusionError> {
        let (begin, pages) = (Instant::now(), PageMeter::counts());
        let _running = self.threads.begin();
        let mut kept = self.ready(&mut query).await?;
        let (planning, planning_pages) = (begin.elapsed(), PageMeter::counts() - pages);
        let mut count = 0;
        let node = match self.drive(&kept, &query, gauge, emit, &mut count).await {
            Ok(node) => node,
            // No row was returned yet. So the query can start again with joins that can spill to
            // files.
            Err(e) if count == 0 && is_out_of_memory(&e) => {
                let keeps = !kept.assumed.is_of_one_run;
                drop(kept);
                let state = self.state_for(&query, JoinsBy::Spilling);
                kept = self.physical(&mut query, keeps, state).await?;
                self.drive(&kept, &query, gauge, emit, &mut count).await?
            }
            Err(e) => return Err(e),
        };
        let Some(node) = node else {
            self.kept.put(query.statement, kept)?;
            return Ok((count, None));
        };
        Ok((count, Some(Analyzed { plan: steps::step(&node), planning, planning_pages })))
    }

    /// Runs a plan to its end. `count` is set to the number of rows that were returned, even if the plan
    /// fails.
    async fn drive(
        &self,
        kept: &KeptPlan,
        query: &Query<'_>,
        gauge: Option<Gauge>,
        emit: &mut Emit<'_>,
        count: &mut u64,
    ) -> Result<Option<Node>, DataFusionError> {
        let (plan, mut node) = match gauge {
            None => (kept.plan.clone(), None),
            Some(_) => nodes(&kept.plan, gauge).map(|(plan, node)| (plan, Some(node)))?,
        };
        let rates = gauge.and_then(|gauge| gauge.rates);
        node.iter_mut().zip(&rates).for_each(|(node, rates)| costs::add(node, rates));
        let (types, context) = (shown_types(query.select), self.context(query)?);
        kept.snapshot.begin();
        let mut stream = execute_stream(plan, context)?;
        while let Some(batch) = next(&mut stream, &query.around).await {
            let batch = batch?;
            *count += batch.num_rows() as u64;
            give(&batch, &types, emit).map_err(wrapped)?;
        }
        Ok(node)
    }

    /// Returns the context of an execution, with its limits for memory and temporary files.
    fn context(&self, query: &Query<'_>) -> Result<Arc<TaskContext>, DataFusionError> {
        let mut context = TaskContext::from(&self.state);
        if let Some(directory) = self.temporary.clone() {
            let work_bytes = usize::try_from(query.limits.work_bytes).unwrap_or(usize::MAX);
            let quota = query.limits.temporary.clone();
            let resources = Arc::new(JoinResources { directory, quota, work_bytes });
            let config = context.session_config().clone().with_extension(resources);
            context = context.with_session_config(config);
        }
        if let Some(directory) = &self.temporary {
            context = spill::limited(context, directory.clone(), query.limits.temporary.clone())?;
        }
        Ok(match usize::try_from(query.limits.work_bytes) {
            Ok(bytes) if bytes >> 10 < self.memory_bytes >> 10 => memory::bounded(context, bytes),
            _ => Arc::new(context),
        })
    }
}

fn shown_types(select: &Select) -> Vec<Ty> {
    select.outputs[..select.visible].iter().map(|o| o.t.ty).collect()
}

/// Returns the next batch. Returns the error 57014 if the statement is cancelled.
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

/// Passes the rows of a batch to `emit`.
fn give(batch: &RecordBatch, types: &[Ty], emit: &mut Emit<'_>) -> varve_sql::Result<()> {
    let columns: Vec<Cells<'_>> =
        types.iter().zip(batch.columns()).map(|(t, array)| Cells::of(*t, array)).collect();
    let mut row: Vec<Datum<'_>> = Vec::with_capacity(columns.len());
    for n in 0..batch.num_rows() {
        row.clear();
        row.extend(columns.iter().map(|c| c.get(n)));
        emit(&row)?;
    }
    Ok(())
}
