//! Everhook: accepts events durably and delivers them as signed webhooks.
//!
//! This crate only wires: it parses arguments, loads the configuration, builds store, engine and
//! API, runs them, and maps every end to a documented exit code. It alone reads files and the
//! environment. It decides nothing about events.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`cli`] | what there is to type |
//! | [`config`] | default file, file, variables and flags to one checked configuration |
//! | [`environment`] | the only reader of the environment |
//! | [`commands`] | the commands, one file each |
//! | [`client`] | the HTTP client of the commands that talk to a running server |
//! | [`check`] | what `everhook check` tries, and what it finds |
//! | [`server`] | store, engine and API joined, run and stopped |
//! | [`progress`] | progress of long work, for a person |
//! | [`proxy`] | the proxy joined to what hands requests on |
//! | [`demo`] | the story of `everhook demo` |
//! | [`data_dir`] | the data directory and its lock |
//! | [`admin_token`] | the admin token |
//! | [`jwt_keys`] | the keys that JWTs are verified with |
//! | [`exit`] | how the process ends |

mod admin_token;
mod check;
mod cli;
mod client;
mod commands;
mod config;
mod data_dir;
mod demo;
mod entropy;
mod environment;
mod exit;
#[cfg(feature = "faults")]
mod faults;
mod fetch;
mod jwt_keys;
mod key_file;
mod logging;
mod master_key;
mod open_files;
mod output;
mod progress;
mod proxy;
mod server;
mod stop;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::environment::Environment;
use crate::exit::Failure;

fn main() -> ExitCode {
    let environment = Environment::read();
    match run(&Cli::parse().command, &environment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.logged {
                // With standard error closed there is nowhere left to say it; the code still does.
                let _said = writeln!(std::io::stderr(), "everhook: {failure}");
            }
            failure.code()
        }
    }
}

fn run(command: &Command, environment: &Environment) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => commands::serve::run(args, environment),
        Command::Proxy(args) => commands::proxy::run(args, environment),
        Command::Demo(args) => commands::demo::run(args, environment),
        Command::Send(args) => commands::send::run(args, environment),
        Command::Replay(args) => commands::replay::run(args, environment),
        Command::Listen(args) => commands::listen::run(args, environment),
        Command::Health(args) => commands::health::run(args, environment),
        Command::Check(args) => commands::check::run(args, environment),
        Command::Config(command) => commands::config::run(command, environment),
        Command::Completions(args) => commands::manual::completions(args),
        Command::Man(args) => commands::manual::pages(args),
    }
}
