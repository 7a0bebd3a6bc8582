//! `everhook check`: tries a receiver from outside.

use std::time::Duration;

use everhook_domain::inbound::SourceKind;

use crate::check::{Effects, Place, Receiver, Trial};
use crate::cli::CheckArgs;
use crate::config;
use crate::entropy;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::output;

/// Random bytes in what tells the events of one run from those of another.
const RUN_BYTES: usize = 6;

/// Runs the command.
///
/// # Errors
/// Wrong input, a receiver that cannot be reached, or a row that does not pass.
pub(crate) fn run(args: &CheckArgs, environment: &Environment) -> Result<(), Failure> {
    config::check_names(&environment.ours).map_err(Failure::usage)?;
    let place = |from: &str, text: &str| {
        let parsed = text.parse::<Place>();
        parsed.map_err(|error| Failure::usage(format!("{from}: {error}")))
    };
    let kind: SourceKind =
        args.kind.parse().map_err(|error| Failure::usage(format!("--kind: {error}")))?;
    let to = place("URL", &args.url)?;
    let signed_url = args.public_url.clone().unwrap_or_else(|| to.to_string());
    let secret = secret(&args.secret)?;
    let run = entropy::text::<RUN_BYTES>()?;
    let trial = Trial {
        receiver: Receiver::new(to, (kind, &secret, &signed_url), run)?,
        effects: match &args.effects {
            Some(url) => Some(Effects(place("--effects", url)?)),
            None => None,
        },
        within: Duration::from_secs(args.within),
        body_bytes: args.body_bytes,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the runtime does not start: {error}")))?;
    let report = runtime.block_on(trial.run())?;
    if args.json {
        output::line(report.as_json())?;
    } else {
        output::line(report.as_text())?;
    }
    if report.passes() { Ok(()) } else { Err(Failure::failed(report.in_a_sentence())) }
}

/// Reads `SECRET` or `@FILE`.
fn secret(argument: &str) -> Result<String, Failure> {
    let Some(path) = argument.strip_prefix('@') else { return Ok(argument.to_owned()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("--secret: {path} cannot be read: {error}")))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
