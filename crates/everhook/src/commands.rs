//! The commands, one file each.

pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod listen;
pub(crate) mod proxy;
pub(crate) mod send;
pub(crate) mod serve;
