//! The script that orders twice with one key, through the proxy in front of a shop.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::install;
use crate::job::Job;
use crate::postgres::free_port;
use crate::server::{Server, release_program};
use crate::workspace;

/// What orders.
pub(super) const SCRIPT: &str = "examples/proxy.sh";
/// The service behind the proxy.
const SHOP: &str = "examples/shop.py";

/// Runs the script against a proxy in front of the shop: its two tries must be one order.
///
/// # Errors
/// Something could not be started, or said something else.
pub(super) fn try_ordering(log: &Path) -> Result<()> {
    for program in ["curl", "python3"] {
        install::need(program, &[program], log)?;
    }
    let (port, proxy) = (free_port()?, free_port()?);
    let mut shop = Job::new("python3")
        .args([workspace::root().join(SHOP)])
        .env("PORT", port.to_string())
        .start(&log.with_extension("shop.log"))?;
    super::said(&mut shop, "listening")?;
    let data = workspace::empty_scratch("examples-proxy-data")?;
    let upstream = format!("http://127.0.0.1:{port}");
    let listen = format!("127.0.0.1:{proxy}");
    let settings = [("EVERHOOK_PROXY_UPSTREAM", &*upstream), ("EVERHOOK_PROXY_LISTEN", &*listen)];
    let server_log = log.with_extension("proxy.log");
    let server = Server::start_with(&release_program(), &data, &settings, &server_log)?;
    let said_by_script = Job::new("sh")
        .args([workspace::root().join(SCRIPT)])
        .env("EVERHOOK_PROXY", format!("http://127.0.0.1:{proxy}"))
        .env("EVERHOOK_SERVER", format!("http://{}", server.address()))
        .env("EVERHOOK_TOKEN", Server::token())
        .demand(&log.with_extension("order.log"))?;
    let count = |part: &str| said_by_script.matches(part).count();
    for (part, times) in [
        ("order 1\n", 2),
        ("order 2\n", 1),
        ("order 3\n", 0),
        ("idempotency-replayed: true", 1),
        ("urn:everhook:problem:idempotency-key-reused", 1),
        ("\"subject\":\"POST /orders\"", 1),
    ] {
        ensure!(count(part) == times, "{part:?} is not there {times} times: {said_by_script}");
    }
    Ok(())
}
