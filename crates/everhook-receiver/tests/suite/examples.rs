//! The examples do what they say.

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
use crate::backend::Kind;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
use crate::{Case, case};

#[cfg(feature = "redis")]
#[path = "../../examples/axum_redis.rs"]
#[expect(dead_code, reason = "an example has a main of its own")]
mod axum_redis;

#[cfg(feature = "postgres")]
#[path = "../../examples/axum_postgres.rs"]
#[expect(dead_code, reason = "an example has a main of its own")]
mod axum_postgres;

#[cfg(feature = "sqlite")]
#[path = "../../examples/inbox.rs"]
#[expect(dead_code, reason = "an example has a main of its own")]
mod inbox;

#[cfg(feature = "redis")]
pub(crate) fn redis_cases() -> Vec<Case> {
    vec![case(the_example_with_redis_runs)]
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres_cases() -> Vec<Case> {
    vec![case(the_example_with_postgres_runs)]
}

#[cfg(feature = "sqlite")]
pub(crate) fn sqlite_cases() -> Vec<Case> {
    vec![case(the_example_of_an_inbox_runs)]
}

#[cfg(feature = "redis")]
fn the_example_with_redis_runs(kind: Kind) {
    let world = kind.create();
    let ran = world.runtime.block_on(axum_redis::run(&world.address)).unwrap();
    assert_eq!(ran, 1);
}

#[cfg(feature = "postgres")]
fn the_example_with_postgres_runs(kind: Kind) {
    let world = kind.create();
    let orders = world.runtime.block_on(axum_postgres::run(&world.address)).unwrap();
    assert_eq!(orders, 1);
}

#[cfg(feature = "sqlite")]
fn the_example_of_an_inbox_runs(kind: Kind) {
    let world = kind.create();
    let ran = world.runtime.block_on(inbox::run(&world.address)).unwrap();
    assert_eq!(ran, 1);
}
