//! The examples do what they say: each is run on an empty database of its kind.

use crate::backend::Kind;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![case(the_example_runs)]
}

#[path = "../../examples/memory.rs"]
#[expect(dead_code, reason = "a program's main function is not the suite's")]
mod memory;
#[cfg(feature = "postgres")]
#[path = "../../examples/postgres.rs"]
#[expect(dead_code, reason = "a program's main function is not the suite's")]
mod postgres;
#[cfg(feature = "redis")]
#[path = "../../examples/redis.rs"]
#[expect(dead_code, reason = "a program's main function is not the suite's")]
mod redis;
#[cfg(feature = "sqlite")]
#[path = "../../examples/sqlite.rs"]
#[expect(dead_code, reason = "a program's main function is not the suite's")]
mod sqlite;

fn the_example_runs(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        match kind.name {
            "memory" => assert_eq!(memory::run().await.unwrap(), 1),
            #[cfg(feature = "sqlite")]
            "sqlite" => assert_eq!(sqlite::run(&world.address).await.unwrap(), 1),
            #[cfg(feature = "postgres")]
            "postgres" => assert_eq!(postgres::run(&world.address).await.unwrap(), 1),
            #[cfg(feature = "redis")]
            "redis" => {
                let [first, second] = redis::run(&world.address).await.unwrap();
                assert_eq!(first, second);
            }
            other => panic!("there is no example for {other}"),
        }
    });
}
