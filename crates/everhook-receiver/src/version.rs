//! The version gate: of the states of an object that arrive in any order, only newer ones are
//! applied.
//!
//! Each store has a `VersionGate` of its own, because holding a version and writing what it stands
//! for must be one step: in SQLite and PostgreSQL both are in your own transaction, in memory both
//! are under one lock, and in Redis what is written is a value beside its version. Which state is
//! newer is decided by [`decide`], which is the same for all.

#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use everhook_domain::version::{
    Content, ObjectKey, State, TOMBSTONES_KEPT, Verdict, Version, decide,
};
