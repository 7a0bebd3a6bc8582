//! `everhook health`: asks a running server whether it is ready, for supervisors that run commands.

use serde_json::Value;

use crate::cli::HealthArgs;
use crate::client;
use crate::config;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output;

/// Runs the command.
///
/// # Errors
/// It is not ready, or does not answer.
pub(crate) fn run(args: &HealthArgs, environment: &Environment) -> Result<(), Failure> {
    config::check_names(&environment.ours).map_err(Failure::usage)?;
    let server = client::server(args.server.as_deref(), environment)?;
    let answer = client::converse(async { Ok(client::read_openly(&server, "/readyz").await?) })?;
    let said = answer.json().ok_or_else(|| {
        Failure::new(
            Exit::Refused,
            format!("the answer of {server} is not JSON: is it an Everhook server?"),
        )
    })?;
    if args.json {
        output::line(&said)?;
    }
    match answer.status.is_success() {
        true if args.json => Ok(()),
        true => output::line(format!("{server} is ready")),
        false => Err(Failure::failed(format!("{server} is not ready: {}", reasons(&said)))),
    }
}

/// What a problem gives as its reason.
fn reasons(said: &Value) -> String {
    let detail = said["detail"].as_str().or(said["title"].as_str());
    detail.unwrap_or("it does not say why").to_owned()
}
