//! A pager with several threads survives any crash during group commit, page writes and checkpoints.

use varve_sim::crowd::Crowd;
use varve_sim::engine::search_throng;
use varve_sim::{Part, Plan, SearchResult, search};

#[test]
fn sessions_of_the_engine() {
    let mut found = SearchResult::default();
    for (seed, commits) in [(1, 20), (2, 80)] {
        found.add(search_throng(seed, commits, 160));
    }
    println!("throng: {}", found.summary());
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
}

#[test]
fn threads_that_commit_together() {
    let mut found = SearchResult::default();
    for (seed, commits) in [(1, 100), (2, 700)] {
        found.add(search(&Crowd { commits, part: Part::Doublewrite }, Plan::new(seed, 200)));
    }
    println!("crowd: {}", found.summary());
    assert!(found.failures.is_empty(), "{:#?}", found.failures);
}
