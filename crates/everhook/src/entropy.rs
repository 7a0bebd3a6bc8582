//! The only place that draws random bytes, from the operating system.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::exit::{Exit, Failure};

/// Random bytes that nobody can guess.
///
/// # Errors
/// The operating system gives none, which does not happen on a machine that works.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// Fills bytes that nobody can guess, or ends the process: a secret that could be guessed would be
/// worse than no server.
pub(crate) fn fill_or_end(bytes: &mut [u8]) {
    if let Err(error) = fill(bytes) {
        tracing::error!(%error, "the process ends");
        std::process::exit(i32::from(Exit::Failed as u8));
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where random bytes are drawn")]
fn fill(bytes: &mut [u8]) -> Result<(), Failure> {
    getrandom::fill(bytes).map_err(|error| {
        Failure::failed(format!("the operating system gives no random bytes: {error}"))
    })
}

/// As many random bytes, as URL-safe base64 without padding.
///
/// # Errors
/// As [`bytes`](fn@bytes).
pub(crate) fn text<const N: usize>() -> Result<String, Failure> {
    Ok(URL_SAFE_NO_PAD.encode(bytes::<N>()?))
}
