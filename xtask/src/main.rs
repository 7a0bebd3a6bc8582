//! Everhook's own tools. Depends on no other crate of the workspace.

fn main() {}
