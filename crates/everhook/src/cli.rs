//! The command line: what there is to type, and its help.

mod replay;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use replay::ReplayArgs;

/// Help is wrapped at this column, whatever the terminal.
const HELP_WIDTH: usize = 100;

const ABOUT: &str = "Accepts events durably and delivers them as signed webhooks";

const ENVIRONMENT_AND_CODES: &str = "\
Environment:
  EVERHOOK_SECTION_KEY  sets section.key, as EVERHOOK_DELIVERY_TIMEOUT=5s; see `config default`
  EVERHOOK_CONFIG       the configuration file, as --config
  EVERHOOK_ADMIN_TOKEN  sets the admin token of the server anew (32 or more characters)
  EVERHOOK_SERVER       the server that commands such as `send` talk to, as --server
  EVERHOOK_TOKEN        the token that they use, as --token

Exit codes:
  0  done
  1  failed while running; starting again may help
  2  the command line, the configuration or the input is wrong
  3  another process has the data directory
  4  the server cannot be reached, or its answer was lost
  5  the server refused the request

Examples:
  everhook demo
  everhook serve --data-dir /var/lib/everhook --listen 127.0.0.1:8080
  everhook send invoice.paid --data '{\"invoice\": 7}'";

/// What was typed.
#[derive(Debug, Parser)]
#[command(name = "everhook", version, about = ABOUT, after_help = ENVIRONMENT_AND_CODES)]
#[command(max_term_width = HELP_WIDTH, disable_help_subcommand = true)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Run the server with a proxy that makes the POSTs of another service run once for each key
    #[command(after_help = PROXY_EXAMPLES)]
    Proxy(ProxyArgs),
    /// Watch it work: a server, an unreliable receiver and some events, in a few seconds
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Publish an event to a running server
    #[command(after_help = SEND_EXAMPLES)]
    Send(SendArgs),
    /// Send again what failed, or anything else: a delivery, an event, or all that match a filter
    #[command(after_help = replay::EXAMPLES)]
    Replay(ReplayArgs),
    /// Bring the webhooks that a source receives to a program on this machine, while developing
    #[command(after_help = LISTEN_EXAMPLES)]
    Listen(ListenArgs),
    /// Ask a running server whether it is ready
    #[command(after_help = HEALTH_EXAMPLES)]
    Health(HealthArgs),
    /// Try a receiver of webhooks from outside: what it does with duplicates, forgeries, failures
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show and check the configuration
    #[command(subcommand, disable_help_subcommand = true)]
    Config(ConfigCommand),
    /// Print what makes a shell complete the command line
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write the manual pages, one for each command
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

/// Which running server a command talks to, and as whom.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server [default: EVERHOOK_SERVER, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The token [default: EVERHOOK_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
}

const HEALTH_EXAMPLES: &str = "\
The exit code is 0 if it is ready, 1 if it says that it is not and why, 4 if it does not answer.
No token is needed.

Examples:
  everhook health
  everhook health --server http://10.0.0.7:8080 --json";

/// `everhook health`
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// The server [default: EVERHOOK_SERVER, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  everhook completions bash > /etc/bash_completion.d/everhook
  everhook completions zsh > ~/.zfunc/_everhook
  everhook completions fish > ~/.config/fish/completions/everhook.fish";

/// `everhook completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

const MAN_EXAMPLES: &str = "\
Examples:
  everhook man --to /usr/local/share/man/man1
  everhook man --to . && man ./everhook-send.1";

/// `everhook man`
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory that the pages go to; created if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}

const SERVE_EXAMPLES: &str = "\
The admin token is printed once, at the first start; or set EVERHOOK_ADMIN_TOKEN.
SIGTERM or Ctrl-C stops it: requests under way are finished, the rest waits in the store. A second
one ends it at once; nothing that was accepted is lost either way.

Examples:
  everhook serve
  everhook serve --data-dir /var/lib/everhook --listen 0.0.0.0:8080
  EVERHOOK_SECURITY_ALLOW_TARGETS=127.0.0.0/8 everhook serve --config everhook.toml";

/// `everhook serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where everything is kept; created if missing [default: ./everhook-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// Where the API is served [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print what is said at start as JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

const PROXY_EXAMPLES: &str = "\
Requests with an Idempotency-Key reach the service once, whoever hangs up or dies meanwhile; those
without one stream through. Clients call the proxy; records are looked at and settled at the API.
Every other setting is in the section [proxy]; with proxy.upstream set, `serve` does the same.

Examples:
  everhook proxy --upstream http://127.0.0.1:3000
  everhook proxy --upstream https://shop.internal --proxy-listen 0.0.0.0:8081
  curl -H 'Idempotency-Key: k1' -H 'Authorization: Bearer t' -d item=7 localhost:8081/orders";

/// `everhook proxy`
#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// The service that requests are handed on to [default: proxy.upstream]
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,
    /// Where clients call the proxy [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) proxy_listen: Option<String>,
    /// The server that it is a part of.
    #[command(flatten)]
    pub(crate) server: ServeArgs,
}

const DEMO_EXAMPLES: &str = "\
Everything stays on this machine, unless --listen says otherwise. The exit code is 0 only if
everything that it promises was really seen.

Examples:
  everhook demo
  everhook demo --keep-running";

/// `everhook demo`
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the data here; must be missing or empty [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Where the API is served
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Go on until Ctrl-C, to look around with curl
    #[arg(long)]
    pub(crate) keep_running: bool,
    /// Print the summary as one JSON object, and nothing else
    #[arg(long, conflicts_with = "keep_running")]
    pub(crate) json: bool,
}

const SEND_EXAMPLES: &str = "\
An answer that gets lost is asked for again with the same Idempotency-Key, so there is one event
whatever happens. The token is best given in EVERHOOK_TOKEN: others can see a command line.

Examples:
  everhook send invoice.paid --data '{\"invoice\": 7}'
  everhook send invoice.paid --data @invoice.json --source-event-id inv-7-paid
  generate-report | everhook send report.ready --data - --json";

/// `everhook send`
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The event's type, such as invoice.paid
    #[arg(value_name = "TYPE")]
    pub(crate) event_type: String,
    /// The event's data: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}", allow_hyphen_values = true)]
    pub(crate) data: String,
    /// Your own ID of what happened: the same ID within 24 h makes no second event
    #[arg(long, value_name = "ID")]
    pub(crate) source_event_id: Option<String>,
    /// The same key makes no second event and gives the same answer [default: a random one]
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// The server, and a token that may publish.
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const LISTEN_EXAMPLES: &str = "\
It begins with what comes in from now on, once for each event, and changes nothing on the server:
endpoints get theirs as well, and what your program answers is only shown. Bodies come byte for byte
with the provider's headers and `webhook-id`; credentials among them are left out. Ctrl-C ends it.

Examples:
  everhook listen --source shop --to http://localhost:3000/hook
  everhook listen --source shop --to http://localhost:3000/hook --json";

/// `everhook listen`
#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// The source, by its name or id
    #[arg(long, value_name = "NAME")]
    pub(crate) source: String,
    /// Where your program takes webhooks
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// The server, and a token that may read.
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print JSON, one object a webhook
    #[arg(long)]
    pub(crate) json: bool,
}

const CHECK_EXAMPLES: &str = "\
It sends webhooks that are made for this: their type is everhook.check. Some of what can go wrong
shows in what the receiver answers; the rest only in what it does, which it can tell at --effects:
see docs/checking.md. Kinds whose webhooks only the provider can sign cannot be tried: aws_sns,
paypal, sendgrid_events, sendgrid_parse, telnyx; nor those that sign nothing: cloudevents, none,
postmark.

The exit code is 0 only if every row passes or does not apply to the kind. A row that was not tried
is no pass: without --effects the code is never 0. It is 1 if a row fails or was not tried, 2 if
the command line is wrong, and 4 if the receiver cannot be reached.

Examples:
  everhook check http://localhost:3000/hook --secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
  everhook check http://localhost:3000/stripe --kind stripe --secret @stripe-secret.txt
  everhook check http://localhost:3000/hook --secret @secret.txt \\
      --effects http://localhost:3000/effects --json";

/// `everhook check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Where the receiver takes webhooks
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// What it verifies them with, or @FILE: others can see a command line
    #[arg(long, value_name = "SECRET|@FILE")]
    pub(crate) secret: String,
    /// Whose webhooks it takes, as the kind of a source
    #[arg(long, value_name = "KIND", default_value = "message")]
    pub(crate) kind: String,
    /// Where it tells how often each event was applied, and fails when it is asked to
    #[arg(long, value_name = "URL")]
    pub(crate) effects: Option<String>,
    /// The URL that is signed, for kinds that sign it [default: URL]
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// How soon a webhook must be answered, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) within: u64,
    /// The size of a large body, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) body_bytes: usize,
    /// Print as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `everhook config`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and show what is in effect, and from where
    #[command(after_help = CONFIG_CHECK_EXAMPLES)]
    Check(ConfigCheckArgs),
    /// Print the built-in default file: every setting, what it does and what it may be
    Default,
}

const CONFIG_CHECK_EXAMPLES: &str = "\
The exit code is 0 if the server would start with it, else 2; everything that is wrong is told at
once. Secrets are not shown.

Examples:
  everhook config check --config everhook.toml
  EVERHOOK_DELIVERY_TIMEOUT=5s everhook config check --json";

/// `everhook config check`
#[derive(Debug, Args)]
pub(crate) struct ConfigCheckArgs {
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
