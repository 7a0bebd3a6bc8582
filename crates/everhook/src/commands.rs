//! The commands, one file each.

pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod health;
pub(crate) mod listen;
pub(crate) mod manual;
pub(crate) mod proxy;
pub(crate) mod replay;
pub(crate) mod send;
pub(crate) mod serve;
