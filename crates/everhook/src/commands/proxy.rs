//! `everhook proxy`: the server, with a proxy in front of a service.

use crate::cli::ProxyArgs;
use crate::commands::serve;
use crate::environment::Environment;
use crate::exit::Failure;

/// Runs the command.
///
/// # Errors
/// It does not start, or a part of it failed.
pub(crate) fn run(args: &ProxyArgs, environment: &Environment) -> Result<(), Failure> {
    let upstream = args.upstream.clone().map(|url| ("--upstream", "proxy.upstream", url));
    let listen = args.proxy_listen.clone();
    let listen = listen.map(|address| ("--proxy-listen", "proxy.listen", address));
    let flags = upstream.into_iter().chain(listen).collect();
    let config = serve::config(&args.server, flags, environment)?;
    if config.proxy.upstream.is_none() {
        return Err(Failure::usage(
            "which service is the proxy in front of? Name it with --upstream URL, or in the \
             setting proxy.upstream",
        ));
    }
    serve::run_with(&args.server, config, environment)
}
