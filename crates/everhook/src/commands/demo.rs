//! `everhook demo`: a server, a receiver that is not reliable, and a few events.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everhook_domain::time::{Clock, SystemClock};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::oneshot;

use crate::admin_token;
use crate::cli::DemoArgs;
use crate::config::{self, Config, Sources};
use crate::data_dir::DataDir;
use crate::demo::api::Api;
use crate::demo::receiver::{Arrival, Receiver};
use crate::demo::screen::Screen;
use crate::demo::story::{SCHEDULE, Story};
use crate::entropy;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::logging;
use crate::output;
use crate::server::{self, Doors, Server};
use crate::stop::StopSignals;

/// The only settings that the demo takes from the environment begin with this.
const LOG_VARIABLES: &str = "EVERHOOK_LOG_";
/// What the demo's own address is allowed by.
const LOOPBACK: &str = "127.0.0.0/8";
/// Random bytes in the name of the temporary directory.
const NAME_BYTES: usize = 6;

/// A directory that goes with this value.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "left behind; it can be removed");
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Something that it promises was not seen.
pub(crate) fn run(args: &DemoArgs, environment: &Environment) -> Result<(), Failure> {
    config::check_names(&environment.ours).map_err(Failure::usage)?;
    let (path, _temporary) = match &args.data_dir {
        Some(path) => (unused(path)?, None),
        None => {
            let name = format!("everhook-demo-{}", entropy::text::<NAME_BYTES>()?);
            let path = environment.temp_dir.join(name);
            (path.clone(), Some(Temporary(path)))
        }
    };
    let config = configure(&path, args, environment)?;
    logging::start(&config.log, environment.colour)?;
    let mut data_dir = DataDir::take(&path)?;
    let colour = environment.colour && io::stdout().is_terminal();
    server::runtime(config.server.threads)?.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let screen = Screen::new(Arc::clone(&clock), colour, args.json);
        let token = admin_token::make()?;
        let hash = admin_token::settle(&data_dir, Some(&token), |_| Ok(()))?;
        let (listener, address) = server::bind(config.server.listen, "--listen").await?;
        data_dir.announce(&address.to_string())?;
        let prefix = config.headers.prefix.clone();
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let receiver = Receiver::start(Arc::clone(&clock), prefix, arrived).await?;
        let doors = Doors { api: listener, proxy: None };
        let server = Server::new(config, &data_dir.database(), doors, hash, clock)?;
        let url = format!("http://{address}");
        screen.print(format_args!(
            "Everhook {} on {url}. Attempts at {SCHEDULE}, where a real server takes a day.\n",
            env!("CARGO_PKG_VERSION")
        ))?;
        let api = Api::new(url.parse().map_err(Failure::failed)?, &token)?;
        let stage = Stage { url, token, api, receiver, screen };
        perform(args, stage, server, arrivals).await
    })
}

/// A given directory must not be one that is in use otherwise: the demo sets the admin token.
fn unused(path: &Path) -> Result<PathBuf, Failure> {
    let used = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if used {
        return Err(Failure::usage(format!(
            "--data-dir: {} is not empty; the demo needs a directory of its own",
            path.display()
        )));
    }
    Ok(path.to_owned())
}

/// The built-in defaults with a short schedule, and loopback allowed, for this run only.
fn configure(path: &Path, args: &DemoArgs, environment: &Environment) -> Result<Config, Failure> {
    let log =
        |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(LOG_VARIABLES.as_bytes());
    let variables: Vec<_> =
        environment.ours.iter().filter(|(name, _)| log(name)).cloned().collect();
    let mut flags = vec![
        ("--data-dir", "store.data_dir", path.display().to_string()),
        ("--listen", "server.listen", args.listen.to_string()),
        ("demo", "retry.schedule", SCHEDULE.to_owned()),
        ("demo", "security.allow_targets", LOOPBACK.to_owned()),
    ];
    if variables.is_empty() {
        flags.push(("demo", "log.level", "error".to_owned()));
    }
    let sources = Sources { file: None, variables, flags };
    Ok(config::load(&sources).map_err(Failure::usage)?.config)
}

/// What the demo plays on.
struct Stage {
    url: String,
    token: String,
    api: Api,
    receiver: Receiver,
    screen: Screen,
}

/// Runs the server for as long as the story takes, and then for as long as somebody looks around.
async fn perform(
    args: &DemoArgs,
    stage: Stage,
    server: Server,
    mut arrivals: UnboundedReceiver<Arrival>,
) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    let (stop, stopped) = oneshot::channel();
    let running = server.run(async { drop(stopped.await) });
    tokio::pin!(running);
    let told = tokio::select! {
        ended = &mut running => return ended,
        told = tell(args, &stage, &mut arrivals) => told,
        signal = signals.next() => {
            Err(Failure::failed(format!("the demo was ended early by {signal}")))
        }
    };
    if told.is_ok() && args.keep_running {
        tokio::select! {
            ended = &mut running => return ended,
            watched = look_around(&stage, &mut arrivals) => watched?,
            _ = signals.next() => {}
        }
    }
    // The server may have ended by itself in this instant.
    let _ended = stop.send(());
    tokio::select! {
        ended = running => ended?,
        never = signals.end_at_next() => never,
    }
    told
}

async fn tell(
    args: &DemoArgs,
    stage: &Stage,
    arrivals: &mut UnboundedReceiver<Arrival>,
) -> Result<(), Failure> {
    let Stage { receiver, screen, .. } = stage;
    let summary = Story::new(&stage.api, receiver, arrivals, screen).play().await?;
    if args.json {
        output::line(summary.as_json())?;
    } else {
        screen.print(format_args!("\n{}", summary.as_text()))?;
    }
    if !summary.is_complete() {
        return Err(Failure::failed("the demo did not see everything that it promises"));
    }
    if args.keep_running { Ok(()) } else { screen.print(NEXT) }
}

async fn look_around(
    stage: &Stage,
    arrivals: &mut UnboundedReceiver<Arrival>,
) -> Result<(), Failure> {
    let Stage { receiver, screen, .. } = stage;
    screen.print(around(stage))?;
    Story::new(&stage.api, receiver, arrivals, screen).watch_for_ever().await
}

const NEXT: &str = "\
Next:
  everhook demo --keep-running   look around with curl
  everhook serve                 the real thing; it prints its admin token once
  everhook config default        every setting";

/// What to type while the demo goes on.
fn around(Stage { url, token, .. }: &Stage) -> String {
    let curl = format!("curl -s -H 'Authorization: Bearer {token}'");
    let json = "-H 'Content-Type: application/json'";
    let new = r#"-d '{"type": "order.created", "data": {"order": 3}}'"#;
    let api = format!("{url}/api/v1");
    format!(
        "Look around; Ctrl-C ends it:\n  {curl} {api}/deliveries\n  {curl} {api}/events\n  {curl} \
         {api}/endpoints\n  {curl} {json} {new} {api}/events\n  EVERHOOK_SERVER={url} \
         EVERHOOK_TOKEN={token} everhook send invoice.created --data '{{\"invoice\": 3}}'\n"
    )
}
