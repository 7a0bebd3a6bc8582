//! What `everhook replay` takes.

use clap::Args;

use super::ServerArgs;

pub(super) const EXAMPLES: &str = "\
A filter takes every delivery that matches at that moment, however many a list shows: how many is
counted first, and nothing is sent before somebody said yes. The server does the work; ending this
command does not end it.

Examples:
  everhook replay dlv_0000…
  everhook replay evt_0000… --endpoint ep_0000…
  everhook replay --status dead --endpoint ep_0000… --dry-run
  everhook replay --status dead --type invoice.paid --rate 50 --yes --json
  everhook replay rpl_0000…
  everhook replay rpl_0000… --cancel";

const FILTER: [&str; 5] = ["status", "type", "from", "to", "rate"];

/// `everhook replay`
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A delivery or an event that is sent again, or a bulk replay that is watched to its end
    #[arg(value_name = "ID", conflicts_with_all = FILTER)]
    pub(crate) id: Option<String>,
    /// Deliveries with this status: due, leased, delivered, dead or cancelled
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<String>,
    /// Deliveries to this endpoint
    #[arg(long, value_name = "ID")]
    pub(crate) endpoint: Option<String>,
    /// Deliveries of events of this type
    #[arg(long = "type", id = "type", value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Deliveries of events that were accepted at this time or later, such as 2026-01-31T09:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Deliveries of events that were accepted before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
    /// How many are sent in a second [default: the server's replay.rate_per_second]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) rate: Option<u32>,
    /// Only count what matches
    #[arg(long, conflicts_with_all = ["id", "yes"])]
    pub(crate) dry_run: bool,
    /// Send without being asked
    #[arg(long)]
    pub(crate) yes: bool,
    /// Do not wait for the end
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// End the bulk replay with this id; what was sent stays sent
    #[arg(long, requires = "id", conflicts_with = "endpoint")]
    pub(crate) cancel: bool,
    /// The server, and the token.
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
