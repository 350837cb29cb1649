//! Runs the partitions of a plan on threads of their own, and returns their rows in any order.
//!
//! The number of threads depends on how many general queries run at the moment. With many queries, each of
//! them runs on one thread. Then the partitions run one after the other on the thread of the connection.
//!
//! Invariants
//! 1. Dropping the stream of rows sets `Stop`, which also wakes threads that wait, and then joins all threads.
//!    So no reader is left.
//! 2. An error or a panic of a thread ends the query as if it had happened on the thread of the connection.
//! 3. At most `AHEAD` batches of each thread wait for the reader of the rows.
//!
//! Which plans may run in this way is decided by `pipelines.rs`.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::future::{Either, select};
use futures::{Stream, StreamExt, TryStreamExt};
use varve_engine::{PageCounts, PageMeter, PlantedFault};
use varve_sql::general::{SqlError, SqlState, WorkerPanic, caught_on_worker};

use crate::budget;
use crate::error::wrapped;
use crate::stop::Stop;

/// The most batches of a thread that wait for the reader.
const AHEAD: usize = 2;
/// The message of a thread that waited for the hash table of a thread that has panicked (`futures::Shared`).
const POISONED_FUTURE: &str = "inner future panicked during poll";
/// The size of a thread's stack. DataFusion walks plans by recursion. Only the used part occupies memory.
const STACK_BYTES: usize = 64 << 20;

/// The threads for general queries.
#[derive(Debug)]
pub struct Threads {
    /// The number of threads for one query, if it is the only one.
    count: usize,
    /// A table with fewer rows is read by one thread.
    rows_min: u64,
    /// The number of general queries that run.
    running: AtomicUsize,
}

/// While this exists, a query counts as running.
pub struct Running(Arc<Threads>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

impl Threads {
    /// Returns threads of which none is used.
    pub fn new(count: usize, rows_min: u64) -> Arc<Threads> {
        Arc::new(Threads { count, rows_min, running: AtomicUsize::new(0) })
    }

    /// The number of rows from which on several threads read a table.
    pub const fn rows_min(&self) -> u64 {
        self.rows_min
    }

    /// The number of threads for one query, if it is the only one.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Counts a query until the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Relaxed);
        Running(self.clone())
    }

    /// The number of threads for each query at the moment.
    fn share(&self) -> usize {
        (self.count / self.running.load(Relaxed).max(1)).max(1)
    }
}

/// The node that runs the partitions of a plan.
pub struct GatherPlan {
    plan: Arc<dyn ExecutionPlan>,
    threads: Arc<Threads>,
    has_run: AtomicBool,
    properties: Arc<PlanProperties>,
}

impl GatherPlan {
    /// Returns the node above a plan.
    pub fn over(plan: Arc<dyn ExecutionPlan>, threads: &Arc<Threads>) -> Arc<dyn ExecutionPlan> {
        let of_plan = plan.properties();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(plan.schema()),
            Partitioning::UnknownPartitioning(1),
            of_plan.emission_type,
            of_plan.boundedness,
        );
        let (threads, has_run) = (threads.clone(), AtomicBool::new(false));
        Arc::new(GatherPlan { plan, threads, has_run, properties: Arc::new(properties) })
    }

    /// The number of threads, if no other query runs.
    pub fn planned(&self) -> usize {
        self.threads.count()
    }
}

impl fmt::Debug for GatherPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Default, f)
    }
}

impl DisplayAs for GatherPlan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GatherPlan: up to {} threads", self.threads.count())
    }
}

impl ExecutionPlan for GatherPlan {
    fn name(&self) -> &str {
        "GatherPlan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(GatherPlan::over(children.pop().unwrap_or_else(|| self.plan.clone()), &self.threads))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        // The parts of a scan are given out once.
        let plan = match self.has_run.swap(true, Relaxed) {
            false => self.plan.clone(),
            true => reset_plan_states(self.plan.clone())?,
        };
        let partitions = plan.properties().output_partitioning().partition_count();
        let threads = self.threads.share().min(partitions);
        let schema = self.schema();
        // If the system has no thread left, the partitions run here.
        if threads > 1
            && let Some(gathered) = Gathered::start(&plan, partitions, threads, &context)
        {
            return Ok(Box::pin(gathered));
        }
        let run = move |partition| plan.execute(partition, context.clone());
        let rows = futures::stream::iter(0..partitions).map(run).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// What a thread sends to the reader of the rows.
enum Message {
    /// Rows.
    Rows(RecordBatch, PageCounts),
    /// The thread has ended with an error.
    Failed(DataFusionError),
    /// The thread has panicked.
    Panicked(WorkerPanic),
    /// The thread has no more rows.
    Ended(PageCounts),
}

/// The rows of all threads.
struct Gathered {
    schema: SchemaRef,
    /// `None` when no more rows are wanted.
    rows: Option<Receiver<Message>>,
    workers: Vec<JoinHandle<()>>,
    /// The number of threads that have not sent their last message.
    working: usize,
    stop: Arc<Stop>,
}

/// A part of the work of a plan.
struct Part {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    partitions: Arc<UntakenPartitions>,
    stop: Arc<Stop>,
    to: SyncSender<Message>,
}

/// The partitions that no thread has taken yet.
struct UntakenPartitions {
    next: AtomicUsize,
    count: usize,
}

impl UntakenPartitions {
    fn take(&self) -> Option<usize> {
        let next = self.next.fetch_add(1, Relaxed);
        (next < self.count).then_some(next)
    }
}

impl Gathered {
    /// Starts the threads. If the system has no more threads, it starts fewer of them. Returns `None` if none
    /// could be started.
    fn start(
        plan: &Arc<dyn ExecutionPlan>,
        partitions: usize,
        threads: usize,
        context: &Arc<TaskContext>,
    ) -> Option<Gathered> {
        let (context, stop) = Stop::within(context);
        let (to, rows) = sync_channel(AHEAD * threads);
        let partitions = Arc::new(UntakenPartitions { next: AtomicUsize::new(0), count: partitions });
        let fault = PlantedFault::of_this_thread();
        let start = |_| {
            let (plan, context, partitions) = (plan.clone(), context.clone(), partitions.clone());
            let part = Part { plan, context, partitions, stop: stop.clone(), to: to.clone() };
            let builder = std::thread::Builder::new().name("query".into()).stack_size(STACK_BYTES);
            let run = move || {
                fault.plant();
                part.run();
            };
            builder.spawn(run).ok()
        };
        let workers: Vec<_> = (0..threads).map_while(start).collect();
        let working = workers.len();
        (working > 0).then(|| Gathered { schema: plan.schema(), rows: Some(rows), workers, working, stop })
    }
}

fn no_runtime(e: std::io::Error) -> DataFusionError {
    wrapped(SqlError::new(SqlState("53000"), format!("could not start a thread of a query: {e}")))
}

impl Part {
    fn run(self) {
        let last = match caught_on_worker(|| self.send_rows()) {
            Ok(Ok(pages)) => Message::Ended(pages),
            Ok(Err(e)) => Message::Failed(e),
            Err(panic) => Message::Panicked(panic),
        };
        let Part { plan, context, stop, to, .. } = self;
        // What the thread has used is gone before its end is known.
        drop((plan, context, stop));
        // If nobody receives it, nobody needs it.
        let _ = to.send(last);
    }

    /// Sends all rows. Returns the pages that were not sent with rows.
    fn send_rows(&self) -> Result<PageCounts> {
        let _pool = budget::within(self.context.memory_pool().clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(no_runtime)?;
        let mut reported = PageMeter::counts();
        runtime.block_on(async {
            let mut stopped = pin!(self.stop.wait());
            while let Some(partition) = self.partitions.take() {
                let mut rows = self.plan.execute(partition, self.context.clone())?;
                loop {
                    let batch = match select(rows.next(), stopped.as_mut()).await {
                        Either::Left((Some(batch), _)) => batch?,
                        Either::Left((None, _)) => break,
                        Either::Right(_) => return Err(wrapped(Stop::error())),
                    };
                    let counts = PageMeter::counts();
                    if self.to.send(Message::Rows(batch, counts - reported)).is_err() {
                        return Ok(());
                    }
                    reported = counts;
                }
            }
            Ok::<(), DataFusionError>(())
        })?;
        Ok(PageMeter::counts() - reported)
    }
}

impl Stream for Gathered {
    type Item = Result<RecordBatch>;

    /// Waits for the threads. A poll may block.
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let received = match &self.rows {
                Some(rows) if self.working > 0 => rows.recv(),
                _ => return Poll::Ready(None),
            };
            match received {
                Ok(Message::Rows(batch, pages)) => {
                    PageMeter::add(pages);
                    return Poll::Ready(Some(Ok(batch)));
                }
                Ok(Message::Ended(pages)) => {
                    PageMeter::add(pages);
                    self.working -= 1;
                }
                Ok(Message::Failed(e)) => {
                    self.working = 0;
                    return Poll::Ready(Some(Err(e)));
                }
                Ok(Message::Panicked(panic)) => self.cause(panic).resume(),
                Err(_) => {
                    let e = SqlError::internal("a thread of a query has ended without its rows");
                    return Poll::Ready(Some(Err(wrapped(e))));
                }
            }
        }
    }
}

impl Gathered {
    /// Returns the panic that is the cause of this one. A thread that builds a hash table may panic. The
    /// others then panic, too, and their panic may arrive first.
    fn cause(&mut self, mut panic: WorkerPanic) -> WorkerPanic {
        self.stop.set();
        self.working -= 1;
        while panic.message() == POISONED_FUTURE
            && self.working > 0
            && let Some(rows) = &self.rows
            && let Ok(message) = rows.recv()
        {
            self.working -= usize::from(!matches!(message, Message::Rows(..)));
            if let Message::Panicked(other) = message {
                panic = other;
            }
        }
        panic
    }
}

impl RecordBatchStream for Gathered {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.stop.set();
        self.rows = None;
        for worker in self.workers.drain(..) {
            // It has caught its panic.
            let _ = worker.join();
        }
    }
}
