//! EXPLAIN ANALYZE: puts a node that measures rows and time around each node of a plan.
//!
//! Invariants
//! 1. The plan of a statement without EXPLAIN ANALYZE has no such nodes.
//! 2. A thread polls one node at a time. So while a node is polled, all work of this thread is done by this
//!    node and the nodes below it.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricValue;
use futures::Stream;
use parking_lot::Mutex;
use varve_engine::PageMeter;
use varve_sql::general::{Actual, Estimate, Gauge};

use crate::apply::ApplyPlan;
use crate::built_once::BuiltOncePlan;
use crate::cancel::Watched;
use crate::children::with_children;
use crate::observed::{Observed, Observer};
use crate::padded::PaddedPlan;
use crate::runtime_filter::CollectKeys;
use crate::scan::{ScanCounts, ScanPlan};
use crate::shared::{Leaf, SharedTable};

/// A node of a plan, with the nodes below it.
pub struct Node {
    /// The node of the plan, without the nodes that measure.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The title that EXPLAIN shows above the node, if it begins a subquery or a query of WITH.
    pub label: Option<String>,
    /// The nodes from which this node reads its rows.
    pub inner: Vec<Node>,
    /// The expected cost and rows of the node, if EXPLAIN shows them.
    pub estimate: Option<Estimate>,
    tally: Option<Arc<Tally>>,
}

impl Node {
    /// Returns the measured values of the node, if it was measured.
    pub fn actual(&self) -> Option<Actual> {
        let tally = self.tally.as_ref()?;
        let left_out = tally.scan.left_out.load(Ordering::Relaxed);
        let unpaired = tally.scan.unpaired.load(Ordering::Relaxed);
        let leaves = *tally.scan.leaves.lock();
        Some(Actual { left_out, unpaired, leaves, ..*tally.sums.lock() })
    }
}

/// The measured values of one node.
#[derive(Debug)]
struct Tally {
    timing: bool,
    sums: Mutex<Actual>,
    /// The counters of a scan.
    scan: Arc<ScanCounts>,
}

impl Tally {
    /// Does some of the node's work, and measures it. Returns the result of the work and the time that it
    /// took.
    fn during<R>(&self, work: impl FnOnce() -> R) -> (R, Duration) {
        let (begin, pages) = (self.timing.then(Instant::now), PageMeter::counts());
        let done = work();
        let took = begin.map(|begin| begin.elapsed()).unwrap_or_default();
        let mut sums = self.sums.lock();
        sums.time += took;
        sums.pages += PageMeter::counts() - pages;
        (done, took)
    }
}

/// Returns a plan and its nodes. If there is a gauge, the returned plan measures each node. Otherwise it is
/// the given plan.
pub fn nodes(plan: &Arc<dyn ExecutionPlan>, gauge: Option<Gauge>) -> Result<(Arc<dyn ExecutionPlan>, Node)> {
    Walk { gauge, shared: HashSet::new(), subplans: 0 }.node(plan)
}

struct Walk {
    gauge: Option<Gauge>,
    /// The queries of WITH whose plans were already returned. They are shown at the node that reads them
    /// first.
    shared: HashSet<*const SharedTable>,
    subplans: usize,
}

impl Walk {
    fn node(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<(Arc<dyn ExecutionPlan>, Node)> {
        let watched = plan.downcast_ref::<Watched>().map(Watched::plan);
        let collected = || plan.downcast_ref::<Observed<CollectKeys>>().map(Observed::plan);
        let padded = || plan.downcast_ref::<PaddedPlan>().map(PaddedPlan::plan);
        let guarded = || plan.downcast_ref::<BuiltOncePlan>().map(BuiltOncePlan::plan);
        if let Some(inner) = watched.or_else(collected).or_else(padded).or_else(guarded) {
            let (made, node) = self.node(inner)?;
            return Ok((with_children(plan.clone(), vec![made])?, node));
        }
        let (mut children, mut inner) = (Vec::new(), Vec::new());
        for child in plan.children() {
            let (child, node) = self.node(child)?;
            children.push(child);
            inner.push(node);
        }
        let counts = Arc::<ScanCounts>::default();
        let mut made = match self.gauge {
            Some(_) if !children.is_empty() => with_children(plan.clone(), children)?,
            _ => plan.clone(),
        };
        if let Some(apply) = plan.downcast_ref::<ApplyPlan>() {
            let (subplan, mut node) = self.node(apply.inner_plan())?;
            if !apply.gives_rows() {
                self.subplans += 1;
                node.label = Some(format!("SubPlan {}", self.subplans));
            }
            inner.push(node);
            if let (Some(_), Some(apply)) = (self.gauge, made.downcast_ref::<ApplyPlan>()) {
                made = Arc::new(apply.with_inner_plan(subplan));
            }
        } else if let Some(table) = plan.downcast_ref::<Leaf>().and_then(Leaf::shared) {
            inner.extend(self.shared_nodes(table)?);
        } else if let (Some(_), Some(scan)) = (self.gauge, plan.downcast_ref::<ScanPlan>()) {
            made = Arc::new(scan.counting(counts.clone()));
        }
        let tally = self.gauge.map(|gauge| {
            Arc::new(Tally { timing: gauge.timing, sums: Mutex::default(), scan: counts.clone() })
        });
        if let Some(tally) = &tally {
            made = Observed::over(made, tally.clone());
        }
        Ok((made, Node { plan: plan.clone(), label: None, inner, estimate: None, tally }))
    }

    /// Returns the plans of a query of WITH at the first call, and nothing at later calls for the same query.
    fn shared_nodes(&mut self, table: &Arc<SharedTable>) -> Result<Vec<Node>> {
        if !self.shared.insert(Arc::as_ptr(table)) {
            return Ok(Vec::new());
        }
        let label = format!("CTE {}", self.shared.len());
        let mut nodes = Vec::new();
        table.change_plans(&mut |plan| {
            let (made, node) = self.node(plan)?;
            nodes.push(Node { label: Some(label.clone()), ..node });
            Ok(made)
        })?;
        Ok(nodes)
    }
}

impl Observer for Arc<Tally> {
    fn execute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (rows, took) = self.during(|| plan.execute(partition, context));
        let rows = rows?;
        self.sums.lock().loops += 1;
        let (plan, tally) = (plan.clone(), self.clone());
        Ok(Box::pin(MeasuredRows { rows, plan, partition, tally, startup: Some(took) }))
    }
}

/// The rows of one run of a node.
struct MeasuredRows {
    rows: SendableRecordBatchStream,
    plan: Arc<dyn ExecutionPlan>,
    partition: usize,
    tally: Arc<Tally>,
    /// The time that the run has taken so far. It is `None` after the run has returned its first row.
    startup: Option<Duration>,
}

impl Stream for MeasuredRows {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let (polled, took) = this.tally.during(|| this.rows.as_mut().poll_next(cx));
        this.startup = this.startup.map(|startup| startup + took);
        let count = match &polled {
            Poll::Ready(Some(Ok(batch))) => batch.num_rows() as u64,
            _ => 0,
        };
        let mut sums = this.tally.sums.lock();
        sums.rows += count;
        if count > 0 || matches!(polled, Poll::Ready(None)) {
            sums.startup += this.startup.take().unwrap_or_default();
        }
        drop(sums);
        polled
    }
}

impl RecordBatchStream for MeasuredRows {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

impl Drop for MeasuredRows {
    fn drop(&mut self) {
        let spilled = |value: &MetricValue| match value {
            MetricValue::SpilledBytes(bytes) => bytes.value() as u64,
            _ => 0,
        };
        let metrics = self.plan.metrics().unwrap_or_default();
        let own = metrics.iter().filter(|m| m.partition() == Some(self.partition));
        self.tally.sums.lock().spilled_bytes += own.map(|m| spilled(m.value())).sum::<u64>();
    }
}
