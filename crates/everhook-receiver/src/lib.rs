//! For services that receive webhooks.
#![doc = include_str!("../README.md")]
