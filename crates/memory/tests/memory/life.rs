//! Records a run of an allocator, which is called a *life*. The allocator is opened in a region, two threads
//! work with it in turn, and everything that happens to the region is recorded.

use std::sync::Arc;
use std::sync::mpsc;

use varve_device::{Directory, MemoryDirectory, RecordLog, Recorder, Recording};
use varve_memory::{Allocator, MemoryError, Pointer, Step};

use crate::oracle::{self, Chunk, LINK_AT, OWNERS, State};
use crate::rng::Rng;
use crate::skipping::{Call, Skip, Skipping};

pub const DATABASE: u64 = 77;
pub const REGION: &str = "region";
/// The lengths of chunks that operations ask for: many classes, and runs of segments.
const LENGTHS: [u64; 10] = [16, 24, 64, 100, 512, 1000, 4096, 20_000, 65_536, 100_000];

/// Every second life has few kinds of chunks, so that both threads use the same slabs.
const FEW_LENGTHS: [u64; 3] = [64, 20_000, 100_000];

/// One operation. The test knows which states a crash during the operation may leave.
#[derive(Debug, Clone)]
pub enum Work {
    /// Allocates, fills, persists and activates a chunk.
    Insert(Chunk),
    /// Reserves a chunk, and then leaves it reserved or frees it.
    Reserve {
        len_bytes: u64,
        owner: u16,
        frees: bool,
    },
    Free(Pointer),
    FreeAll(Vec<Pointer>),
    /// A new chunk gets into a root, whose old one is freed.
    Swap {
        chunk: Chunk,
        root: String,
        old: Option<Pointer>,
    },
    /// A new chunk is linked from another one.
    Link {
        chunk: Chunk,
        from: Pointer,
    },
    SetRoot {
        root: String,
        value: u64,
    },
    CreateRoot(String),
    RemoveRoot(String),
}

/// A recorded life.
pub struct Life {
    pub recording: Recording,
    /// The states after each operation. The first one is the state at the beginning.
    pub states: Vec<State>,
    /// For each operation, whether a crash may do a part of it (`free_all`).
    pub in_parts: Vec<bool>,
    /// The number of operations that were refused because the region was full.
    pub full_count: u64,
    pub most_events: std::collections::BTreeMap<Call, u64>,
}

/// Returns an empty region of this many bytes.
pub fn empty(len_bytes: u64) -> Arc<MemoryDirectory> {
    let directory = MemoryDirectory::new();
    let region = directory.map(REGION, len_bytes).unwrap_or_else(|error| panic!("{error}"));
    Allocator::format(region, DATABASE).unwrap_or_else(|error| panic!("{error}"));
    directory
}

/// Opens the region in a directory.
pub fn open(directory: &dyn Directory) -> Result<Allocator, MemoryError> {
    let region = directory.map(REGION, 4096).unwrap_or_else(|error| panic!("{error}"));
    Allocator::open(region, DATABASE)
}

struct RegionUnderTest {
    allocator: Allocator,
    region: Arc<Skipping>,
}

/// The thread that does an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker {
    This,
    Other,
}

/// Runs a life of a number of random operations, on a directory whose region has the contents `state`. Events
/// of opening are recorded, too. Returns `Err` if the region cannot be opened.
pub fn live(
    directory: Arc<MemoryDirectory>,
    state: State,
    seed: u64,
    operations: usize,
    skip: Option<Skip>,
) -> Result<Life, String> {
    let mut rng = Rng::new(seed);
    let random = |state: &State, number| {
        let work = choose(&mut rng, state, number);
        (work, if rng.below(2) == 0 { Worker::This } else { Worker::Other })
    };
    live_by(directory, state, operations, skip, random)
}

/// Does the same as [`live`], with the operations that `next` chooses by the state and the operation's
/// number, from 1.
pub fn live_by(
    directory: Arc<MemoryDirectory>,
    state: State,
    operations: usize,
    skip: Option<Skip>,
    mut next: impl FnMut(&State, u64) -> (Work, Worker),
) -> Result<Life, String> {
    let log = RecordLog::new();
    let recorder = Recorder::wrap(directory, Arc::clone(&log));
    let region = recorder.map(REGION, 4096).map_err(|error| error.to_string())?;
    let region = Skipping::wrap(region, skip);
    let opened = region.during(Call::Open, || Allocator::open(region.clone(), DATABASE));
    let world = RegionUnderTest { allocator: opened.map_err(|error| error.to_string())?, region };
    let mut life = Life {
        recording: log.recording(),
        states: vec![state],
        in_parts: Vec::new(),
        full_count: 0,
        most_events: Default::default(),
    };
    log.mark(0);
    let worked = std::thread::scope(|scope| {
        let (to_other, works) = mpsc::channel::<Work>();
        let (answer, answers) = mpsc::channel();
        let world = &world;
        scope.spawn(move || works.iter().all(|work| answer.send(run(world, &work)).is_ok()));
        for number in 1..=operations {
            let Some(state) = life.states.last() else { break };
            let (work, worker) = next(state, number as u64);
            let outcome = match worker {
                Worker::This => run(world, &work),
                Worker::Other => {
                    to_other.send(work.clone()).map_err(|error| error.to_string())?;
                    answers.recv().map_err(|error| error.to_string())?
                }
            };
            note(&mut life, work, outcome)?;
            log.mark(number as u64);
        }
        Ok::<(), String>(())
    });
    worked?;
    life.recording = log.recording();
    life.most_events = world.region.most_events();
    Ok(life)
}

fn choose(rng: &mut Rng, state: &State, number: u64) -> Work {
    let chunks: Vec<Pointer> = state.chunks.keys().copied().collect();
    let (lengths, owners) = match rng.is_odd() {
        true => (&FEW_LENGTHS[..], &OWNERS[..1]),
        false => (&LENGTHS[..], &OWNERS[..]),
    };
    let len_bytes = rng.pick(lengths).unwrap_or(16);
    let owner = rng.pick(owners).unwrap_or(0);
    let chunk = Chunk { owner, len_bytes, tag: number << 32 | rng.below(1 << 20), link: 0 };
    let root = format!("root {}", rng.below(3));
    let held = state.roots.values().copied().map(Pointer::from_u64).collect::<Vec<_>>();
    let is_linked = |pointer: &Pointer| held.contains(pointer);
    let unheld: Vec<Pointer> = chunks.iter().copied().filter(|pointer| !is_linked(pointer)).collect();
    match (rng.below(20), state.roots.get(&root)) {
        (0..5, _) => Work::Insert(chunk),
        (5..7, _) => Work::Reserve { len_bytes, owner, frees: rng.below(4) > 0 },
        (7..10, _) => rng.pick(&unheld).map_or(Work::Insert(chunk), Work::Free),
        (10, _) => Work::FreeAll(unheld.iter().copied().filter(|_| rng.below(2) == 0).take(5).collect()),
        (11..14, Some(value)) => {
            let old = Pointer::from_u64(*value);
            Work::Swap { chunk, root, old: state.chunks.contains_key(&old).then_some(old) }
        }
        (14..17, _) => match rng.pick(&chunks) {
            Some(from) => Work::Link { chunk, from },
            None => Work::Insert(chunk),
        },
        (17, Some(value)) if !state.chunks.contains_key(&Pointer::from_u64(*value)) => {
            Work::SetRoot { root, value: number }
        }
        (18, Some(value)) if !state.chunks.contains_key(&Pointer::from_u64(*value)) => Work::RemoveRoot(root),
        (_, None) => Work::CreateRoot(root),
        _ => Work::Insert(chunk),
    }
}

type Outcome = Result<Pointer, MemoryError>;

/// Does an operation. Returns the pointer of the chunk that it has allocated, if there is one.
fn run(world: &RegionUnderTest, work: &Work) -> Outcome {
    let RegionUnderTest { allocator, region } = world;
    let none = |()| Pointer::NONE;
    let allocate = |owner, len_bytes| {
        region.during(Call::Allocate, || allocator.allocate(oracle::owner(owner), len_bytes))
    };
    // A chunk is as long as its class says.
    let filled = |chunk: &Chunk| -> Outcome {
        let pointer = allocate(chunk.owner, chunk.len_bytes)?;
        let len_bytes = allocator.len_bytes(pointer)?;
        oracle::fill(allocator, pointer, &Chunk { len_bytes, ..*chunk });
        allocator.region().fence();
        Ok(pointer)
    };
    let publish = |steps: &[Step]| region.during(Call::Publish, || allocator.publish(steps));
    match work {
        Work::Insert(chunk) => {
            let pointer = filled(chunk)?;
            region.during(Call::Activate, || allocator.activate(pointer)).map(|()| pointer)
        }
        Work::Reserve { len_bytes, owner, frees } => {
            let pointer = allocate(*owner, *len_bytes)?;
            if *frees { region.during(Call::Free, || allocator.free(pointer)).map(none) } else { Ok(pointer) }
        }
        Work::Free(pointer) => region.during(Call::Free, || allocator.free(*pointer)).map(none),
        Work::FreeAll(pointers) => region.during(Call::FreeAll, || allocator.free_all(pointers)).map(none),
        Work::Swap { chunk, root, old } => {
            let word = allocator.root(root)?;
            let pointer = filled(chunk)?;
            let store = Step::Store { word, value: pointer.to_u64() };
            let steps = [Some(Step::Activate(pointer)), Some(store), old.map(Step::Free)];
            publish(&steps.into_iter().flatten().collect::<Vec<_>>()).map(|()| pointer)
        }
        Work::Link { chunk, from } => {
            let pointer = filled(chunk)?;
            let Some(word) = from.word(LINK_AT) else { panic!("chunks are aligned") };
            let store = Step::Store { word, value: pointer.to_u64() };
            publish(&[Step::Activate(pointer), store]).map(|()| pointer)
        }
        Work::SetRoot { root, value } => {
            region.during(Call::SetRoot, || allocator.set_root(root, *value)).map(none)
        }
        Work::CreateRoot(root) => {
            region.during(Call::CreateRoot, || allocator.create_root(root)).map(|_| Pointer::NONE)
        }
        Work::RemoveRoot(root) => region.during(Call::RemoveRoot, || allocator.remove_root(root)).map(none),
    }
}

/// Returns the length of a chunk that is asked for with one of [`LENGTHS`].
fn class_bytes(len_bytes: u64) -> u64 {
    match len_bytes {
        24 => 32,
        100 => 128,
        1000 => 1024,
        20_000 => 21_760,
        100_000 => 131_072,
        same => same,
    }
}

/// Records the state after an operation. An operation may be refused only if the region is full.
fn note(life: &mut Life, work: Work, outcome: Outcome) -> Result<(), String> {
    let mut state = life.states.last().cloned().unwrap_or_default();
    life.in_parts.push(matches!(work, Work::FreeAll(_)));
    let pointer = match outcome {
        Ok(pointer) => pointer,
        Err(MemoryError::Full { .. }) => {
            life.full_count += 1;
            life.states.push(state);
            return Ok(());
        }
        Err(error) => return Err(format!("{work:?}: {error}")),
    };
    let real = |chunk: Chunk| Chunk { len_bytes: class_bytes(chunk.len_bytes), ..chunk };
    match work {
        Work::Insert(chunk) => {
            state.chunks.insert(pointer, real(chunk));
        }
        Work::Reserve { .. } => {}
        Work::Free(pointer) => {
            state.chunks.remove(&pointer);
        }
        Work::FreeAll(pointers) => pointers.iter().for_each(|pointer| {
            state.chunks.remove(pointer);
        }),
        Work::Swap { chunk, root, old } => {
            state.chunks.insert(pointer, real(chunk));
            state.roots.insert(root, pointer.to_u64());
            old.iter().for_each(|old| {
                state.chunks.remove(old);
            });
        }
        Work::Link { chunk, from } => {
            state.chunks.insert(pointer, real(chunk));
            if let Some(from) = state.chunks.get_mut(&from) {
                from.link = pointer.to_u64();
            }
        }
        Work::SetRoot { root, value } => {
            state.roots.insert(root, value);
        }
        Work::CreateRoot(root) => {
            state.roots.insert(root, 0);
        }
        Work::RemoveRoot(root) => {
            state.roots.remove(&root);
        }
    }
    life.states.push(state);
    Ok(())
}
