//! `everhook serve`: the server, until a signal asks it to stop.

use std::sync::Arc;

use everhook_domain::time::SystemClock;
use serde_json::json;
use tokio::sync::oneshot;

use crate::admin_token::{self, TokenHash};
use crate::cli::ServeArgs;
use crate::commands::config::load;
use crate::config::{Config, Flag, LogFormat};
use crate::data_dir::DataDir;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::logging;
use crate::open_files;
use crate::output;
use crate::proxy;
use crate::server::{self, Doors, Server};
use crate::stop::StopSignals;

/// Runs the command.
///
/// # Errors
/// It does not start, or a part of it failed.
pub(crate) fn run(args: &ServeArgs, environment: &Environment) -> Result<(), Failure> {
    run_with(args, config(args, Vec::new(), environment)?, environment)
}

/// The configuration of a server: with these options of the command line besides its own.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn config(
    args: &ServeArgs,
    more: Vec<Flag>,
    environment: &Environment,
) -> Result<Config, Failure> {
    let flags = flags(args).into_iter().chain(more).collect();
    let loaded = load(args.config.as_deref(), flags, environment);
    Ok(loaded.map_err(Failure::usage)?.config)
}

/// Runs a server.
///
/// # Errors
/// It does not start, or a part of it failed.
pub(crate) fn run_with(
    args: &ServeArgs,
    config: Config,
    environment: &Environment,
) -> Result<(), Failure> {
    logging::start(&config.log, environment.colour)?;
    let format = config.log.format;
    start(args, config, environment).map_err(|failure| match format {
        LogFormat::Human => failure,
        // Whoever reads objects line by line is not given plain text at the end.
        LogFormat::Json => {
            tracing::error!(reason = failure.message, "ended");
            Failure { logged: true, ..failure }
        }
    })
}

fn start(args: &ServeArgs, config: Config, environment: &Environment) -> Result<(), Failure> {
    #[cfg(feature = "faults")]
    crate::faults::install(environment)?;
    let data_dir = DataDir::take(&config.store.data_dir)?;
    if data_dir.is_open_to_others() {
        let path = data_dir.path().display();
        tracing::warn!(%path, "other users can look into the data directory; `chmod 700` it");
    }
    open_files::raise_limit(server::open_files_max(&config));
    let given = environment.get(admin_token::VARIABLE)?;
    server::runtime(config.server.threads)?.block_on(serve(args, config, data_dir, given))
}

fn flags(args: &ServeArgs) -> Vec<Flag> {
    let data_dir = args.data_dir.clone().map(|dir| ("--data-dir", "store.data_dir", dir));
    let listen = args.listen.clone().map(|listen| ("--listen", "server.listen", listen));
    data_dir.into_iter().chain(listen).collect()
}

async fn serve(
    args: &ServeArgs,
    config: Config,
    mut data_dir: DataDir,
    given: Option<&str>,
) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    let (listener, address) = server::bind(config.server.listen, "--listen").await?;
    let proxy = proxy::Place::take(&config).await?;
    let token = settle_token(&data_dir, given, args.json)?;
    data_dir.announce(&address.to_string())?;
    let url = format!("http://{address}");
    let greeting = greeting(args.json, &config, &data_dir, (&url, proxy.as_ref()));
    let clock = Arc::new(SystemClock::start());
    let doors = Doors { api: listener, proxy };
    let server = Server::new(config, &data_dir.database(), doors, token, clock)?;
    output::line(greeting)?;
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "serving");
    let (stop, stopped) = oneshot::channel();
    let asked = async {
        let signal = signals.next().await;
        tracing::info!(signal, "stopping; a second signal ends the process at once");
        // The server may have ended by itself in this instant.
        let _ended = stop.send(());
        signals.end_at_next().await
    };
    tokio::select! {
        result = server.run(async { drop(stopped.await) }) => result,
        never = asked => never,
    }?;
    tracing::info!("stopped");
    Ok(())
}

fn settle_token(data_dir: &DataDir, given: Option<&str>, json: bool) -> Result<TokenHash, Failure> {
    admin_token::settle(data_dir, given, |made| {
        output::important_line(if json {
            json!({ "admin_token": made }).to_string()
        } else {
            format!("Admin token, shown only now: {made}")
        })
    })
}

/// What is printed once everything is ready.
fn greeting(
    json: bool,
    config: &Config,
    data_dir: &DataDir,
    (url, proxy): (&str, Option<&proxy::Place>),
) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let path = data_dir.path().display().to_string();
    let outside = config.server.public_url.as_ref().map(ToString::to_string);
    let ingest = format!("{}/in", outside.as_deref().unwrap_or(url));
    let allowed: Vec<_> = config.security.allow_targets.iter().map(ToString::to_string).collect();
    if json {
        let proxy = proxy.map(|proxy| {
            json!({
                "url": format!("http://{}", proxy.address),
                "upstream": proxy.upstream.to_string(),
            })
        });
        return json!({
            "url": url,
            "api": format!("{url}/api/v1"),
            "ingest": ingest,
            "version": version,
            "data_dir": path,
            "allow_targets": allowed,
            "proxy": proxy,
        })
        .to_string();
    }
    let targets = if allowed.is_empty() {
        "public addresses only (security.allow_targets can allow others)".to_owned()
    } else {
        format!("public addresses, and {}", allowed.join(", "))
    };
    let proxy = proxy.map_or_else(String::new, |proxy::Place { address, upstream, .. }| {
        format!("\n  proxy    http://{address}, in front of {upstream}")
    });
    format!(
        "Everhook {version} listens on {url}\n  API      {url}/api/v1\n  \
         webhooks {ingest}/{{source}}\n  data     {path}\n  sends to {targets}{proxy}"
    )
}
