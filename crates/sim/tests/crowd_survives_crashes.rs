//! Group commit, page writers and checkpoints at once survive any crash.

use varve_sim::crowd::Crowd;
use varve_sim::{Found, Plan, search};

#[test]
fn threads_that_commit_together() {
    let mut found = Found::default();
    for (seed, commits) in [(1, 100), (2, 700)] {
        found.add(search(&Crowd { commits }, Plan::new(seed, 200)));
    }
    println!("crowd: {}", found.summary());
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
}
