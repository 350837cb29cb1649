//! The sources of the pager and the engine, as the build script has changed them for the model checkers.

include!(concat!(env!("OUT_DIR"), "/modelled.rs"));
