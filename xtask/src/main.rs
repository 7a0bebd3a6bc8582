//! Everhook's own tools: `cargo xtask test`, `cargo xtask check`, `cargo xtask bench send`.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`mod@test`] | runs everything there is, part by part, and counts |
//! | [`check`] | format, lints, dependencies, tidiness, crate edges |
//! | [`postgres`], [`redis`] | a PostgreSQL and a Redis of our own for the run |
//! | [`interop`] | our signatures, judged by the official libraries |
//! | [`book`] | the pages in `docs/`, their links, and their commands |
//! | [`package`], [`packaging`] | what is handed out, and whether it runs |
//! | [`fuzz`] | the fuzz targets, for a bounded time |
//! | [`mod@bench`] | speed, CPU, latency and memory of the whole product |
//! | [`server`] | starts a real `everhook serve` and talks to it |
//! | [`http`] | the smallest HTTP/1.1 client and server that a load can be made with |
//! | [`job`] | other programs: output to a file, a time limit, an end |
//!
//! This crate depends on no other crate of the workspace: it judges them from outside. Whatever it
//! starts ends with it, also when it is killed (see [`job`]), and everything it writes is under
//! `target/xtask` or a temporary folder.

#![expect(unreachable_pub, reason = "a program has no outside that `pub` could reach")]
#![expect(clippy::print_stdout, reason = "a command line tool talks to its terminal")]
#![expect(clippy::print_stderr, reason = "a command line tool talks to its terminal")]
#![expect(
    clippy::disallowed_methods,
    reason = "a tool runs in real time and reads its environment; the rules are the product's"
)]

mod args;
mod bench;
mod book;
mod check;
mod dropping;
mod examples;
mod fuzz;
mod http;
mod install;
mod interop;
mod job;
mod package;
mod packaging;
mod postgres;
mod redis;
mod server;
mod test;
mod workspace;

use std::process::ExitCode;

use crate::args::Args;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  test [--seeds N] [--fuzz-seconds N] [--only PART,PART]
                     run everything there is; `--only` takes names of parts (see `test --list`)
  check              only the checks that need no running program: format, lints, tidy, edges, deny
  bench send [--seconds N] [--count N] [--connections N] [--payload BYTES]
             [--rate N] [--latency-seconds N] [--compare FILE]
                     measure a release build under load, and compare with the last run
  package            build one static program with its manual, for this kind of machine
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let result = match command.as_str() {
        "test" => Args::parse(words).and_then(test::command),
        "check" => Args::parse(words).and_then(test::checks),
        "bench" => bench::command(words),
        "package" => package::command(words),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}
